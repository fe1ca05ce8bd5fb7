package plugin

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A method with the name of one of the contract's but another signature compiles, and makes the type silently not
// implement the interface. So each method whose name is in the contract must have the contract's signature.

// pluginContract is the interfaces that the scheduler looks for in a plug-in.
func pluginContract() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[QueueSort](), reflect.TypeFor[PreEnqueue](), reflect.TypeFor[PreFilter](), reflect.TypeFor[Filter](),
		reflect.TypeFor[Explainer](), reflect.TypeFor[PostFilter](), reflect.TypeFor[PreScore](), reflect.TypeFor[Score](),
		reflect.TypeFor[Normalizer](), reflect.TypeFor[Reserve](), reflect.TypeFor[Permit](), reflect.TypeFor[PreBind](),
		reflect.TypeFor[PreFlight](), reflect.TypeFor[Bind](), reflect.TypeFor[PostBind](), reflect.TypeFor[Signer](),
		reflect.TypeFor[Configurable](), reflect.TypeFor[Needer](), reflect.TypeFor[OptionalNeeder](), reflect.TypeFor[Hinter](),
	}
}

// checkContract is the interfaces that the scheduler looks for in a [Check].
func checkContract() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[Check](), reflect.TypeFor[Narrower](), reflect.TypeFor[Follower](), reflect.TypeFor[CheckExplainer](),
	}
}

// scorerContract is the interfaces that the scheduler looks for in a [Scorer].
func scorerContract() []reflect.Type {
	return []reflect.Type{reflect.TypeFor[Scorer](), reflect.TypeFor[Normalizer]()}
}

// methodsOf returns an error for each method of a plug-in that the scheduler would silently not call: one with the name of
// a method in this package's interfaces but another signature, and one that lacks a counterpart (Reserve without Unreserve).
func methodsOf(p Plugin) []error {
	contract := pluginContract()
	// A plug-in can be its own Check or Scorer.
	_, check := p.(Check)
	if _, prepares := p.(PreFilter); check && prepares {
		contract = append(contract, checkContract()...)
	}
	_, scorer := p.(Scorer)
	if _, prepares := p.(PreScore); scorer && prepares {
		contract = append(contract, scorerContract()...)
	}
	errs := methodFaults(reflect.TypeOf(p), contract)
	_, explains := p.(Explainer)
	if _, filters := p.(Filter); explains && !filters {
		errs = append(errs, errors.New("method Explain is never called: method Filter, whose refusals it explains, is missing"))
	}
	_, normalizes := p.(Normalizer)
	if _, scores := p.(Score); normalizes && !scores && !scorer {
		errs = append(errs, errors.New("method Normalize is never called: method Score, whose scores it normalizes, is missing"))
	}
	return errs
}

// ValidateCheck returns an error for each method of a check that the scheduler would silently not call, because it has the
// name of a method of [Check], [Narrower], [Follower] or [CheckExplainer] but another signature, or lacks a counterpart.
func ValidateCheck(c Check) error {
	return errors.Join(methodFaults(reflect.TypeOf(c), checkContract())...)
}

// ValidateNoCheck returns an error if a plug-in, whose PreFilter has returned a nil [Check], has the methods of a [Narrower] or
// [Follower] itself. They are those of a Check, and would never be called; the plug-in can be its own Check.
func ValidateNoCheck(p Plugin) error {
	var methods []string
	if _, is := p.(interface{ Narrow() ([]string, bool) }); is {
		methods = append(methods, "Narrow")
	}
	if _, is := p.(interface {
		PodAdded(pod *Pod, node *Node)
		PodRemoved(pod *Pod, node *Node)
	}); is {
		methods = append(methods, "PodAdded", "PodRemoved")
	}
	if len(methods) == 0 {
		return nil
	}
	return fmt.Errorf("PreFilter returns no Check, so %s of the %T would never be called: return the plug-in itself as the Check", strings.Join(methods, " and "), p)
}

// ValidateScorer is [ValidateCheck] for [Scorer] and [Normalizer].
func ValidateScorer(s Scorer) error {
	return errors.Join(methodFaults(reflect.TypeOf(s), scorerContract())...)
}

// methodFaults compares the methods of a type with those of the interfaces of a contract.
func methodFaults(t reflect.Type, contract []reflect.Type) []error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	right := map[string]bool{}
	for _, name := range contractMethods() {
		var want []reflect.Type
		for _, i := range contract {
			if m, ok := methodOf(i, name); ok {
				want = append(want, m.Type)
			}
		}
		if want == nil {
			continue
		}
		if m, ok := methodOf(t, name); ok {
			right[name] = slices.ContainsFunc(want, func(w reflect.Type) bool { return sameSignature(m.Type, w) })
			if !right[name] {
				fault("method %s is %s, want %s", name, signature(m.Type, 1), signatures(want))
			}
		} else if _, ok := methodOf(reflect.PointerTo(t), name); ok {
			fault("method %s has a pointer receiver, which a value of type %s does not have: use a *%s", name, t, t)
		}
	}
	if len(errs) > 0 {
		return errs // a method that is missing below may be one of these
	}
	for _, i := range contract {
		has, lacks := split(i, right)
		for _, name := range has {
			if len(lacks) > 0 && !slices.ContainsFunc(contract, func(other reflect.Type) bool {
				has, lacks := split(other, right)
				return slices.Contains(has, name) && lacks == nil
			}) {
				fault("method %s is never called: method %s, which belongs to it, is missing", name, strings.Join(lacks, " and method "))
			}
		}
	}
	return errs
}

// split returns the methods of an interface that are in right, and the methods that are not.
func split(i reflect.Type, right map[string]bool) (has, lacks []string) {
	for _, name := range contractMethods() {
		if _, ok := methodOf(i, name); !ok {
			continue
		}
		if right[name] {
			has = append(has, name)
		} else {
			lacks = append(lacks, name)
		}
	}
	return has, lacks
}

// contractMethods returns the names of the contract's methods, apart from Name.
func contractMethods() []string {
	return []string{
		"Less", "PreEnqueue", "PreFilter", "Filter", "Explain", "PostFilter", "PreScore", "Score", "Normalize",
		"Reserve", "Unreserve", "Permit", "PreBind", "Busy", "Bind", "PostBind", "Sign", "Configure", "Needs",
		"Optional", "Hints", "Narrow", "PodAdded", "PodRemoved",
	}
}

// methodOf is [reflect.Type.MethodByName] for these names. They are constants in the calls because otherwise the linker
// keeps every method of every type, a seventh of the program.
func methodOf(t reflect.Type, name string) (reflect.Method, bool) {
	switch name {
	case "Less":
		return t.MethodByName("Less")
	case "PreEnqueue":
		return t.MethodByName("PreEnqueue")
	case "PreFilter":
		return t.MethodByName("PreFilter")
	case "Filter":
		return t.MethodByName("Filter")
	case "Explain":
		return t.MethodByName("Explain")
	case "PostFilter":
		return t.MethodByName("PostFilter")
	case "PreScore":
		return t.MethodByName("PreScore")
	case "Score":
		return t.MethodByName("Score")
	case "Normalize":
		return t.MethodByName("Normalize")
	case "Reserve":
		return t.MethodByName("Reserve")
	case "Unreserve":
		return t.MethodByName("Unreserve")
	case "Permit":
		return t.MethodByName("Permit")
	case "PreBind":
		return t.MethodByName("PreBind")
	case "Busy":
		return t.MethodByName("Busy")
	case "Bind":
		return t.MethodByName("Bind")
	case "PostBind":
		return t.MethodByName("PostBind")
	case "Sign":
		return t.MethodByName("Sign")
	case "Configure":
		return t.MethodByName("Configure")
	case "Needs":
		return t.MethodByName("Needs")
	case "Optional":
		return t.MethodByName("Optional")
	case "Hints":
		return t.MethodByName("Hints")
	case "Narrow":
		return t.MethodByName("Narrow")
	case "PodAdded":
		return t.MethodByName("PodAdded")
	case "PodRemoved":
		return t.MethodByName("PodRemoved")
	}
	return reflect.Method{}, false
}

// sameSignature reports whether a method of a type, whose first parameter is the receiver, has the signature of
// that of an interface.
func sameSignature(method, want reflect.Type) bool {
	if method.NumIn() != want.NumIn()+1 || method.NumOut() != want.NumOut() || method.IsVariadic() != want.IsVariadic() {
		return false
	}
	for i := range want.NumIn() {
		if method.In(i+1) != want.In(i) {
			return false
		}
	}
	for i := range want.NumOut() {
		if method.Out(i) != want.Out(i) {
			return false
		}
	}
	return true
}

func signatures(all []reflect.Type) string {
	var texts []string
	for _, t := range all {
		if text := signature(t, 0); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, " or ")
}

// signature prints a method's type as Go code, without its first parameters.
func signature(t reflect.Type, skip int) string {
	var in, out []string
	for i := skip; i < t.NumIn(); i++ {
		name := t.In(i).String()
		if t.IsVariadic() && i == t.NumIn()-1 {
			name = "..." + t.In(i).Elem().String()
		}
		in = append(in, name)
	}
	for o := range t.Outs() {
		out = append(out, o.String())
	}
	text := "func(" + strings.Join(in, ", ") + ")"
	switch len(out) {
	case 0:
		return text
	case 1:
		return text + " " + out[0]
	default:
		return text + " (" + strings.Join(out, ", ") + ")"
	}
}
