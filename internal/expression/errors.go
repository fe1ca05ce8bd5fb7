package expression

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
)

// A Fault is one thing that is wrong with the text of an expression.
type Fault struct {
	Line, Column int // both from 1; the column counts characters
	Message      string
}

// A SyntaxError says why a text is not an expression.
type SyntaxError struct {
	Faults []Fault // at least one, in the order of the text
}

func (e *SyntaxError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = fmt.Sprintf("%d:%d: %s", f.Line, f.Column, f.Message)
	}
	return strings.Join(lines, "; ")
}

// An EvalError says why an expression could not be answered for an object.
type EvalError struct {
	Text         string // the expression
	Line, Column int    // both from 1, or 0 if the place is not known
	Message      string // what went wrong, in plain words
	Limit        bool   // the evaluation was ended by a limit
}

func (e *EvalError) Error() string {
	place := ""
	if e.Line > 0 {
		place = fmt.Sprintf("%d:%d: ", e.Line, e.Column)
	}
	return fmt.Sprintf("expression %q: %s%s", shorten(e.Text, 80), place, e.Message)
}

// maxFaults is how many faults an error lists: the parser goes on after an error, and further
// faults are mostly consequences of the first.
const maxFaults = 3

func faultsIn(issues *cel.Issues) []Fault {
	var faults []Fault
	for _, e := range issues.Errors() {
		if len(faults) < maxFaults {
			faults = append(faults, Fault{max(e.Location.Line(), 1), max(e.Location.Column(), 0) + 1, plain(e.Message)})
		}
	}
	return faults
}

// A rewording puts a message of the compiler or the evaluator into plain words.
type rewording struct {
	from *regexp.Regexp
	to   func(m []string) string
}

// rewordings are compiled for the first message. A message that matches none of them is left as it
// is.
var rewordings = sync.OnceValue(func() []rewording {
	return []rewording{
		{
			regexp.MustCompile(`(?s)^Syntax error: (?:mismatched|extraneous) input '(.*?)' expecting .*$`),
			func(m []string) string { return notExpected(m[1]) },
		},
		{
			regexp.MustCompile(`(?s)^Syntax error: no viable alternative at input '(.*)'$`),
			func(m []string) string { return notExpected(m[1]) },
		},
		{
			regexp.MustCompile(`(?s)^Syntax error: missing (.*) at '(.*?)'$`),
			func(m []string) string { return fmt.Sprintf("%s is missing before %s", m[1], token(m[2])) },
		},
		{
			regexp.MustCompile(`(?s)^Syntax error: token recognition error at: '(.*)'$`),
			func(m []string) string {
				if strings.HasPrefix(m[1], `"`) || strings.HasPrefix(m[1], "'") {
					return "the text that begins here has no closing quote: " + shorten(m[1], 40)
				}
				return "not a part of the language: " + shorten(strings.TrimSpace(m[1]), 40)
			},
		},
		{
			regexp.MustCompile(`(?s)^undeclared reference to 'now'.*$`),
			func([]string) string {
				return "there is no clock: an expression is evaluated again only when its object changes"
			},
		},
		{
			regexp.MustCompile(`(?s)^undeclared reference to '(.*?)'.*$`),
			func(m []string) string {
				return fmt.Sprintf("there is no variable or function %q (the variables are object and self; a field is object.%s)", m[1], m[1])
			},
		},
		{
			regexp.MustCompile(`(?s)^found no matching overload for '(.*?)' applied to '(.*)'$`),
			func(m []string) string {
				receiver, args, method := strings.Cut(m[2], ".(")
				if method {
					return fmt.Sprintf("%s of %s cannot be used with (%s", operator(m[1]), typeName(receiver), typeName(args))
				}
				return fmt.Sprintf("%s cannot be used with %s", operator(m[1]), typeName(m[2]))
			},
		},
		{
			regexp.MustCompile(`^no such overload(?:: (.*))?$`),
			func(m []string) string {
				if m[1] != "" {
					return "types that do not go together: " + typeName(m[1])
				}
				return "types that do not go together: a function, an operator or a field is used with a value of another type"
			},
		},
		{
			regexp.MustCompile(`(?s)^expression of type '(.*)' cannot be range of a comprehension.*$`),
			func(m []string) string { return fmt.Sprintf("%s has no elements", typeName(m[1])) },
		},
		{
			regexp.MustCompile(`^comprehension exceeds nesting limit$`),
			func([]string) string {
				return fmt.Sprintf("more than %d macros such as all() and map() in one another", maxLoops)
			},
		},
		{
			regexp.MustCompile(`^invalid (\w+) argument$`),
			func(m []string) string {
				switch m[1] {
				case "matches":
					return "not a regular expression"
				case "duration":
					return "not a duration such as \"90s\" or \"1h30m\""
				}
				return "not a " + m[1] + ", such as \"2026-01-02T15:04:05Z\""
			},
		},
		{
			regexp.MustCompile(`(?s)^type '(.*)' does not support field selection$`),
			func(m []string) string { return fmt.Sprintf("%s has no fields", typeName(m[1])) },
		},
		{
			regexp.MustCompile(`(?s)^(?:expression recursion limit|max recursion depth) exceeded.*$`),
			func([]string) string { return fmt.Sprintf("it is nested more than %d deep", maxDepth) },
		},
	}
})

// plain puts a message of the compiler or the evaluator into plain words.
func plain(message string) string {
	for _, r := range rewordings() {
		if m := r.from.FindStringSubmatch(message); m != nil {
			return r.to(m)
		}
	}
	return strings.TrimPrefix(message, "Syntax error: ")
}

func notExpected(at string) string {
	if at == "<EOF>" {
		return "the expression ends too early"
	}
	return "not expected here: " + token(at)
}

func token(t string) string {
	if t == "<EOF>" {
		return "the end"
	}
	return shorten(t, 40)
}

// operator returns how a function of the compiler is written: _==_ is ==.
func operator(name string) string {
	switch name {
	case "_[_]":
		return "an index"
	case "_?_:_":
		return "the conditional ?:"
	case "@in":
		return "in"
	}
	return strings.Trim(name, "_")
}

// typeName puts the compiler's names of types into the user's words.
func typeName(name string) string {
	return strings.NewReplacer(
		"google.protobuf.Duration", "duration",
		"google.protobuf.Timestamp", "timestamp",
		"null_type", "null",
		"dyn", "any value",
	).Replace(name)
}

// shorten cuts a text at so many characters.
func shorten(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i] + "…"
		}
		n--
	}
	return text
}
