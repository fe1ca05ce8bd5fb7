package await

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// A Degree says what counts as done. The zero Degree is not valid; use the
// variables below, [Condition], [JSONPath] or [ParseDegree].
type Degree struct {
	name  string
	arg   string // the condition's type, or the path
	value string // what the condition or path must be
	any   bool   // a path need only have a value
}

// The degrees with a name. What each means depends on the kind: see the file of
// the kind in this package.
var (
	Ready    = Degree{name: "ready"}    // it does what it is there for
	Running  = Degree{name: "running"}  // it has started; whether it went on does not matter
	Finished = Degree{name: "finished"} // it has ended, and well
	Complete = Degree{name: "complete"} // the same, as Jobs call it
	Deleted  = Degree{name: "deleted"}  // the object with this UID is gone
	Created  = Degree{name: "created"}  // it exists
)

// Condition is reached when status.conditions has one of this type (compared
// without regard to case) with this value; an empty value means True.
func Condition(kind, value string) Degree {
	if value == "" {
		value = "True"
	}
	return Degree{name: "condition", arg: kind, value: value}
}

// JSONPath is reached when the path yields exactly one value, equal to this one;
// with any, when it yields exactly one value whatever that is. The path has
// kubectl's form, with or without braces and the leading dot.
func JSONPath(path, value string, any bool) (Degree, error) {
	relaxed, err := relax(path)
	if err != nil {
		return Degree{}, err
	}
	if _, err := jsonpath.Parse("await", relaxed); err != nil {
		return Degree{}, fmt.Errorf("jsonpath %q: %w", path, err)
	}
	return Degree{name: "jsonpath", arg: relaxed, value: value, any: any}, nil
}

// relax gives a path the braces and the leading dot that the parser wants.
func relax(path string) (string, error) {
	p := strings.TrimSpace(path)
	if inner, ok := strings.CutPrefix(p, "{"); ok {
		if p, ok = strings.CutSuffix(inner, "}"); !ok {
			return "", fmt.Errorf("jsonpath %q: the closing brace is missing", path)
		}
	} else if strings.HasSuffix(p, "}") {
		return "", fmt.Errorf("jsonpath %q: the opening brace is missing", path)
	}
	if strings.ContainsAny(p, "{}") {
		return "", fmt.Errorf("jsonpath %q: want one expression", path)
	}
	if p == "" {
		return "", errors.New("jsonpath: the path is empty")
	}
	if p[0] != '.' && p[0] != '[' && p[0] != '$' {
		p = "." + p
	}
	return "{" + p + "}", nil
}

// ParseDegree reads the text of a --for flag:
//
//	ready | running | finished | complete | deleted | created
//	condition=NAME[=VALUE]
//	jsonpath=PATH[=VALUE]
//	delete | create                (kubectl's words for deleted and created)
func ParseDegree(text string) (Degree, error) {
	word, rest, has := strings.Cut(text, "=")
	word = strings.ToLower(word)
	switch word {
	case "condition":
		kind, value, valued := strings.Cut(rest, "=")
		if kind == "" || valued && value == "" {
			return Degree{}, fmt.Errorf("%q: want condition=NAME or condition=NAME=VALUE", text)
		}
		return Condition(kind, value), nil
	case "jsonpath":
		path, value, valued := cutPath(rest)
		if path == "" || valued && value == "" {
			return Degree{}, fmt.Errorf("%q: want jsonpath=PATH or jsonpath=PATH=VALUE", text)
		}
		return JSONPath(path, value, !valued)
	case "delete":
		word = Deleted.name
	case "create":
		word = Created.name
	}
	for _, d := range []Degree{Ready, Running, Finished, Complete, Deleted, Created} {
		if d.name == word && !has {
			return d, nil
		}
	}
	return Degree{}, fmt.Errorf("nothing can be waited for that is called %q: want ready, running, finished, complete, deleted, created, condition=NAME[=VALUE] or jsonpath=PATH[=VALUE]", text)
}

// cutPath splits PATH=VALUE, leaving alone the equals signs of filters inside
// brackets or braces.
func cutPath(s string) (path, value string, found bool) {
	depth := 0
	for i, r := range s {
		switch r {
		case '{', '[', '(':
			depth++
		case '}', ']', ')':
			depth--
		case '=':
			if depth == 0 {
				return s[:i], strings.Trim(s[i+1:], `"'`), true
			}
		}
	}
	return s, "", false
}

// String returns what ParseDegree reads.
func (d Degree) String() string {
	switch {
	case d.name == "jsonpath" && d.any:
		return "jsonpath=" + d.arg
	case d.name == "jsonpath":
		return "jsonpath=" + d.arg + "=" + d.value
	case d.name == "condition" && d.value == "True":
		return "condition=" + d.arg
	case d.name == "condition":
		return "condition=" + d.arg + "=" + d.value
	}
	return d.name
}

// Infinitive is the degree in a sentence that begins "waiting for it to …".
func (d Degree) Infinitive() string {
	switch d.name {
	case "ready", "complete", "deleted", "created":
		return "be " + d.name
	case "running":
		return "run"
	case "finished":
		return "finish"
	}
	return "meet " + d.String()
}

// Reached is the degree in a sentence that begins with the object's name.
func (d Degree) Reached() string {
	switch d.name {
	case "ready", "complete", "deleted", "created":
		return "is " + d.name
	case "running":
		return "is running or has run"
	case "finished":
		return "has finished"
	}
	return "condition met"
}

// needsNoMembers reports whether a wait may begin although nothing is there.
func (d Degree) needsNoMembers() bool { return d == Deleted || d == Created }

func (d Degree) isOneOf(others ...Degree) bool { return slices.Contains(others, d) }

// A MisuseError says that a degree means nothing for a kind.
type MisuseError struct {
	Degree Degree
	Kind   string
	Hint   string // what to ask for instead
}

func (e *MisuseError) Error() string {
	return fmt.Sprintf("a %s cannot %s: %s", e.Kind, e.Degree.Infinitive(), e.Hint)
}
