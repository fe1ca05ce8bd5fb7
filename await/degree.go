package await

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sampan-io/sampan/await/fieldpath"
)

// A Degree says what counts as done. The zero Degree is not valid; use the
// variables below, [Settled], [Condition], [JSONPath], [CEL], [All], [Any] or
// [ParseDegree]. Degrees with a name, and conditions, may be compared.
type Degree struct {
	name      string
	settle    time.Duration // of settled
	condition string        // its type
	value     string        // the wanted value of the condition
	path      *fieldpath.Question
	cel       *cel
	all, any  *several
}

type several struct{ of []Degree }

// The degrees with a name. What each means exactly depends on the kind: see the
// file of the kind in this package. A degree without a meaning for a kind is a
// [*MisuseError].
//
// OldGone finds old pods by owner references, not by labels. So it counts those of a
// ReplicationController that a rolling update renamed or replaced, and those of a replica
// set that is deleted already. A pod that its controller has released has no owner and
// does not count.
var (
	Accepted  = Degree{name: "accepted"}  // the server has it as it was written
	Observed  = Degree{name: "observed"}  // and its controller or node has seen that
	Scheduled = Degree{name: "scheduled"} // its pods have nodes
	Running   = Degree{name: "running"}   // it has started; whether it went on does not matter
	Ready     = Degree{name: "ready"}     // ready by the rules of its kind; every kind has this
	Serving   = Degree{name: "serving"}   // ready, and in the endpoints of the services that select it
	OldGone   = Degree{name: "old-gone"}  // ready, and no pod of an older revision is left, not even one that is ending
	Finished  = Degree{name: "finished"}  // it has ended, and well
	Complete  = Degree{name: "complete"}  // the same, as Jobs call it
	Deleted   = Degree{name: "deleted"}   // the object with this UID is gone
	Created   = Degree{name: "created"}   // it exists
)

var named = []Degree{Accepted, Observed, Scheduled, Running, Ready, Serving, OldGone, Finished, Complete, Deleted, Created}

// Names returns the names of degrees that have no value, as [ParseDegree] reads them.
func Names() []string {
	all := make([]string, 0, len(named))
	for _, d := range named {
		all = append(all, d.name)
	}
	return all
}

// Settled is reached by an object that has been ready for this long without a break. The time begins when the wait sees
// the object ready, and begins again when the object becomes unready or one of its containers restarts. A time of 0 or
// less is the same as [Ready].
func Settled(d time.Duration) Degree {
	if d <= 0 {
		return Ready
	}
	return Degree{name: "settled", settle: d}
}

// Condition is reached when status.conditions has one of this type (compared
// without regard to case) with this value; an empty value means True. A condition
// that says by its observedGeneration that it is about an older object does not
// count.
func Condition(kind, value string) Degree {
	if value == "" {
		value = "True"
	}
	return Degree{name: "condition", condition: kind, value: value}
}

// All is reached when every one of the degrees is.
func All(of ...Degree) Degree { return join("all", of) }

// Any is reached when one of the degrees is. It has failed when all of them
// have: Any(Complete, Condition("Failed", "")) is a Job that ended, no matter how.
func Any(of ...Degree) Degree { return join("any", of) }

func join(name string, of []Degree) Degree {
	if len(of) == 1 {
		return of[0]
	}
	if len(of) == 0 || slices.ContainsFunc(of, Degree.isZero) {
		return Degree{}
	}
	d := Degree{name: name}
	if name == "all" {
		d.all = &several{slices.Clone(of)}
	} else {
		d.any = &several{slices.Clone(of)}
	}
	return d
}

func (d Degree) isZero() bool { return d == Degree{} }

// leaves returns the degrees that d is made of; d itself if it is simple.
func (d Degree) leaves() []Degree {
	var several *several
	switch {
	case d.all != nil:
		several = d.all
	case d.any != nil:
		several = d.any
	default:
		return []Degree{d}
	}
	var all []Degree
	for _, o := range several.of {
		all = append(all, o.leaves()...)
	}
	return all
}

func (d Degree) has(which ...Degree) bool {
	return slices.ContainsFunc(d.leaves(), func(o Degree) bool { return o.isOneOf(which...) })
}

// ofParts returns the degree by which the parts of an object are judged that shall reach d.
func (d Degree) ofParts() Degree {
	for _, o := range []Degree{Deleted, Finished, Complete, OldGone, Running, Scheduled} {
		if d.has(o) {
			return o
		}
	}
	return Ready
}

// base returns the degree by which a single pod is judged, without the time and without its owner.
func (d Degree) base() Degree {
	if d.settle > 0 || d == OldGone {
		return Ready
	}
	return d
}

// compact reports whether it is enough to keep the verdict on a pod, without the pod.
func (d Degree) compact() bool {
	return d.all == nil && d.any == nil && d.path == nil && d.cel == nil && d.condition == "" && d != Serving
}

// asks reports whether the degree may depend on any field of an object, not only the fields that the kind's file reads.
func (d Degree) asks() bool {
	return slices.ContainsFunc(d.leaves(), func(o Degree) bool { return o.path != nil || o.cel != nil || o.condition != "" })
}

// LooksAtFields reports whether a path or an expression decides. These may read any field, so objects are needed exactly
// as the server sends them.
func (d Degree) LooksAtFields() bool {
	return slices.ContainsFunc(d.leaves(), func(o Degree) bool { return o.path != nil || o.cel != nil })
}

// settles returns the times for which an object must have been ready; none if time does not matter.
func (d Degree) settles() (all []time.Duration) {
	for _, o := range d.leaves() {
		if o.settle > 0 {
			all = append(all, o.settle)
		}
	}
	return all
}

// needsParts reports whether a controller can't be done before its pods are known.
func (d Degree) needsParts() bool { return d.has(Scheduled, Running, OldGone, Serving) }

// needsSlices reports whether EndpointSlices are needed to judge the degree.
func (d Degree) needsSlices() bool { return d.has(Serving) }

// ParseDegree reads the text of a --for flag:
//
//	accepted | observed | scheduled | running | ready | serving | old-gone
//	finished | complete | deleted | created
//	settled=DURATION
//	condition=NAME[=VALUE]         failed is condition=Failed, which Jobs have
//	jsonpath=PATH[=VALUE]          and != < > <= >= VALUE; PATH exists; PATH absent
//	cel=EXPRESSION                 over object, e.g. object.status.replicas >= 3
//	delete | create                (kubectl's words for deleted and created)
//	any(DEGREE, …), all(DEGREE, …) one of them, all of them at the same time
//
// A comma within brackets, braces, parentheses or quotes does not end a degree.
func ParseDegree(text string) (Degree, error) {
	if name, of, is := joined(text); is {
		return parseJoined(text, name, of)
	}
	word, rest, has := strings.Cut(text, "=")
	word = strings.ToLower(strings.TrimSpace(word))
	switch {
	case word == "condition":
		kind, value, valued := strings.Cut(rest, "=")
		if kind == "" || valued && value == "" {
			return Degree{}, fmt.Errorf("%q: want condition=NAME or condition=NAME=VALUE", text)
		}
		return Condition(kind, value), nil
	case word == "jsonpath":
		return onPath(fieldpath.Parse(rest))
	case word == "cel" && has:
		return CEL(rest)
	case word == "settled":
		d, err := time.ParseDuration(rest)
		if err != nil || d <= 0 {
			return Degree{}, fmt.Errorf("%q: want settled=DURATION, e.g. settled=30s", text)
		}
		return Settled(d), nil
	case word == "failed" && !has:
		return Condition("Failed", ""), nil
	case word == "delete":
		word = Deleted.name
	case word == "create":
		word = Created.name
	}
	var names []string
	for _, d := range named {
		if d.name == word && !has {
			return d, nil
		}
		names = append(names, d.name)
	}
	return Degree{}, fmt.Errorf("nothing can be waited for that is called %q: want %s, settled=DURATION, condition=NAME[=VALUE], jsonpath=PATH[=VALUE], cel=EXPRESSION, any(…) or all(…)",
		text, strings.Join(names, ", "))
}

// joined splits any(…) and all(…) into the name and the text after the opening parenthesis.
func joined(text string) (name, of string, is bool) {
	text = strings.TrimSpace(text)
	name, rest, found := strings.Cut(text, "(")
	name = strings.ToLower(strings.TrimSpace(name))
	if !found || name != "any" && name != "all" {
		return "", "", false
	}
	return name, rest, true
}

func parseJoined(text, name, of string) (Degree, error) {
	of, closed := strings.CutSuffix(of, ")")
	if !closed {
		return Degree{}, fmt.Errorf("%q: want a ) at its end", text)
	}
	parts, open := splitList(of)
	if open != 0 {
		return Degree{}, fmt.Errorf("%q: its %c has no counterpart", text, open)
	}
	var all []Degree
	for _, p := range parts {
		if p = strings.TrimSpace(p); p == "" {
			return Degree{}, fmt.Errorf("%q: want degrees with commas between them, as in %s(complete, condition=Failed)", text, name)
		}
		d, err := ParseDegree(p)
		if err != nil {
			return Degree{}, err
		}
		if parts, open := splitList(d.among()); open != 0 || len(parts) != 1 {
			return Degree{}, fmt.Errorf("%q: its value cannot stand within %s(…)", p, name)
		}
		all = append(all, d)
	}
	return join(name, all), nil
}

// splitList splits at the commas that are in no brackets and no quotes. Open is what was
// opened or closed without its counterpart, 0 if nothing was.
func splitList(text string) (parts []string, open rune) {
	var (
		stack []rune
		quote rune
		from  int
		last  rune
	)
	closes := map[rune]rune{')': '(', ']': '[', '}': '{'}
	for i, c := range text {
		switch {
		case quote != 0:
			if c == quote && last != '\\' {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '(' || c == '[' || c == '{':
			stack = append(stack, c)
		case closes[c] != 0:
			if len(stack) == 0 || stack[len(stack)-1] != closes[c] {
				return nil, c
			}
			stack = stack[:len(stack)-1]
		case c == ',' && len(stack) == 0:
			parts = append(parts, text[from:i])
			from = i + 1
		}
		if last == '\\' && c == '\\' {
			c = 0 // it is escaped, and escapes nothing
		}
		last = c
	}
	switch {
	case quote != 0:
		return nil, quote
	case len(stack) > 0:
		return nil, stack[len(stack)-1]
	}
	return append(parts, text[from:]), 0
}

// String returns what ParseDegree reads.
func (d Degree) String() string {
	switch {
	case d.all != nil, d.any != nil:
		return d.name + "(" + d.list(Degree.among, ", ") + ")"
	case d.path != nil:
		return "jsonpath=" + d.path.String()
	case d.cel != nil:
		return "cel=" + d.cel.text
	case d.settle > 0:
		return "settled=" + d.settle.String()
	case d.condition != "" && d.value == "True":
		return "condition=" + d.condition
	case d.condition != "":
		return "condition=" + d.condition + "=" + d.value
	}
	return d.name
}

// among is String for use in a list of degrees: it quotes a path that has a comma.
func (d Degree) among() string {
	text := d.String()
	if parts, open := splitList(text); d.path != nil && (open != 0 || len(parts) != 1) {
		return "jsonpath=" + d.path.Quoted()
	}
	return text
}

func (d Degree) list(text func(Degree) string, between string) string {
	var parts []string
	for _, o := range append(slices.Clone(d.part(d.all)), d.part(d.any)...) {
		parts = append(parts, text(o))
	}
	return strings.Join(parts, between)
}

func (d Degree) part(s *several) []Degree {
	if s == nil {
		return nil
	}
	return s.of
}

// Infinitive is the degree in a sentence that begins "waiting for it to …".
func (d Degree) Infinitive() string {
	switch d.name {
	case "ready", "complete", "deleted", "created", "accepted", "observed", "scheduled":
		return "be " + d.name
	case "running":
		return "run"
	case "finished":
		return "finish"
	case "serving":
		return "serve"
	case "old-gone":
		return "be ready and have no old pods"
	case "settled":
		return "be ready for " + d.settle.String()
	case "all":
		return d.list(Degree.Infinitive, " and ")
	case "any":
		return d.list(Degree.Infinitive, " or ")
	}
	return "meet " + d.String()
}

// Reached is the degree in a sentence that begins with the object's name.
func (d Degree) Reached() string {
	switch d.name {
	case "ready", "complete", "deleted", "created", "accepted", "observed", "scheduled":
		return "is " + d.name
	case "running":
		return "is running or has run"
	case "finished":
		return "has finished"
	case "serving":
		return "is serving"
	case "old-gone":
		return "is ready and its old pods are gone"
	case "settled":
		return "has been ready for " + d.settle.String()
	}
	return "condition met"
}

func (d Degree) isOneOf(others ...Degree) bool { return slices.Contains(others, d) }

// A MisuseError reports that a kind does not support a degree.
type MisuseError struct {
	Degree Degree
	Kind   string
	Hint   string // the degrees to use instead
}

func (e *MisuseError) Error() string {
	article := "a"
	if strings.ContainsRune("aeiou", []rune(e.Kind + "b")[0]) {
		article = "an"
	}
	return fmt.Sprintf("%s %s cannot %s: %s", article, e.Kind, e.Degree.Infinitive(), e.Hint)
}

// misuse returns a [*MisuseError] that lists the degrees that the kind does support.
func misuse(d Degree, kind string, instead ...Degree) (Verdict, error) {
	var names []string
	for _, o := range instead {
		names = append(names, o.name)
	}
	return Verdict{}, &MisuseError{d, words(kind), "wait for " + strings.Join(append(names, "deleted"), ", ")}
}
