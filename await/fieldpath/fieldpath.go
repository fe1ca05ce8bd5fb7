package fieldpath

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/util/jsonpath"

	"github.com/sampan-io/sampan/internal/quantity"
)

// An Operator says how the value at a path is compared.
type Operator string

// The operators. The four that order compare numbers, quantities (500m, 2Gi) or
// times (RFC 3339). All but Absent hold only where there is a value.
const (
	Equals  Operator = "="
	Differs Operator = "!="
	Less    Operator = "<"
	Greater Operator = ">"
	AtMost  Operator = "<="
	AtLeast Operator = ">="
	Exists  Operator = "exists" // the path yields exactly one value, whatever it is
	Absent  Operator = "absent" // the path yields nothing
)

// A Question is a JSONPath and its wanted value. It is immutable and safe for
// concurrent use.
type Question struct {
	text  string // with braces
	op    Operator
	value string
	order func(a string) (int, error) // how a value stands to value; nil where order does not matter
}

// New returns the question whether the value that the path yields stands to value as
// op says. The path has kubectl's form, with or without braces and the leading dot.
func New(text string, op Operator, value string) (*Question, error) {
	relaxed, err := relax(text)
	if err != nil {
		return nil, err
	}
	if _, err := jsonpath.Parse("await", relaxed); err != nil {
		return nil, fmt.Errorf("jsonpath %q: %w", text, err)
	}
	q := &Question{text: relaxed, op: op, value: value}
	switch op {
	case Equals, Differs:
	case Exists, Absent:
		q.value = ""
	case Less, Greater, AtMost, AtLeast:
		if q.order = ordering(value); q.order == nil {
			return nil, fmt.Errorf("jsonpath %s%s%s: want a number, a quantity such as 500m or 2Gi, or a time such as 2026-01-31T12:00:00Z to compare with", relaxed, op, value)
		}
	default:
		return nil, fmt.Errorf("jsonpath %q: unknown operator %q", text, op)
	}
	return q, nil
}

// String is the question as [Parse] reads it.
func (q *Question) String() string {
	switch q.op {
	case Exists:
		return q.text
	case Absent:
		return q.text + " absent"
	default:
		return q.text + string(q.op) + q.value
	}
}

// Quoted is String with the value of a comparison in quotes, for where it stands among other
// things.
func (q *Question) Quoted() string {
	if q.op == Exists || q.op == Absent {
		return q.String()
	}
	quote := "'"
	if strings.Contains(q.value, quote) {
		quote = `"`
	}
	return q.text + string(q.op) + quote + q.value + quote
}

// relax gives a path the braces and the leading dot that the parser wants.
func relax(text string) (string, error) {
	p := strings.TrimSpace(text)
	if inner, ok := strings.CutPrefix(p, "{"); ok {
		if p, ok = strings.CutSuffix(inner, "}"); !ok {
			return "", fmt.Errorf("jsonpath %q: the closing brace is missing", text)
		}
	} else if strings.HasSuffix(p, "}") {
		return "", fmt.Errorf("jsonpath %q: the opening brace is missing", text)
	}
	if strings.ContainsAny(p, "{}") {
		return "", fmt.Errorf("jsonpath %q: want one expression", text)
	}
	if p == "" {
		return "", errors.New("jsonpath: the path is empty")
	}
	quote := rune(0)
	for _, c := range p {
		switch {
		case quote == c:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		}
	}
	if quote != 0 {
		return "", fmt.Errorf("jsonpath %q: its %c has no counterpart", text, quote)
	}
	if p[0] != '.' && p[0] != '[' && p[0] != '$' {
		p = "." + p
	}
	return "{" + p + "}", nil
}

// Parse reads PATH, PATH=VALUE, PATH>=VALUE, …, PATH exists, PATH absent.
func Parse(text string) (*Question, error) {
	rest := strings.TrimSpace(text)
	op, at, width := Exists, len(rest), 0
	if i, w, o := operatorIn(rest); o != "" {
		op, at, width = o, i, w
	} else {
		for _, o := range []Operator{Exists, Absent} {
			if before, found := strings.CutSuffix(rest, " "+string(o)); found {
				op, at, width = o, len(before), len(rest)-len(before)
			}
		}
	}
	value := strings.TrimSpace(rest[at+width:])
	if op != Exists && op != Absent && value == "" || strings.TrimSpace(rest[:at]) == "" {
		return nil, fmt.Errorf("jsonpath=%s: want jsonpath=PATH=VALUE (or != < > <= >=), jsonpath=PATH exists or jsonpath=PATH absent", text)
	}
	return New(rest[:at], op, strings.Trim(value, `"'`))
}

// operatorIn finds the first operator, leaving alone those of filters inside
// brackets, braces and quotes.
func operatorIn(s string) (at, width int, op Operator) {
	depth, quote := 0, rune(0)
	for i, r := range s {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
			continue
		case depth > 0 && (r == '\'' || r == '"'):
			quote = r
		case r == '{' || r == '[' || r == '(':
			depth++
		case r == '}' || r == ']' || r == ')':
			depth--
		}
		if depth != 0 {
			continue
		}
		for _, o := range []Operator{Differs, AtMost, AtLeast, "==", Equals, Less, Greater} {
			if strings.HasPrefix(s[i:], string(o)) {
				if o == "==" {
					return i, 2, Equals
				}
				return i, len(o), o
			}
		}
	}
	return 0, 0, ""
}

// ordering returns how values are compared with b, which is a number, a quantity or
// a time; nil if it is none.
func ordering(b string) func(string) (int, error) {
	if y, err := strconv.ParseFloat(b, 64); err == nil {
		return func(a string) (int, error) {
			x, err := strconv.ParseFloat(a, 64)
			if err != nil {
				q, quantityErr := quantity.Parse(a)
				if quantityErr != nil {
					return 0, errors.New("not a number")
				}
				x = q.AsApproximateFloat64()
			}
			return cmp.Compare(x, y), nil
		}
	}
	if y, err := quantity.Parse(b); err == nil {
		return func(a string) (int, error) {
			x, err := quantity.Parse(a)
			if err != nil {
				return 0, errors.New("not a quantity")
			}
			return x.Cmp(y), nil
		}
	}
	if y, err := time.Parse(time.RFC3339, b); err == nil {
		return func(a string) (int, error) {
			x, err := time.Parse(time.RFC3339, a)
			if err != nil {
				return 0, errors.New("not a time")
			}
			return x.Compare(y), nil
		}
	}
	return nil
}

// Holds looks into an object, which must be as JSON is decoded, and says whether the
// answer is yes and otherwise why not. An error is a path that yields several values.
func (q *Question) Holds(object map[string]any) (holds bool, why string, err error) {
	j := jsonpath.New("await").AllowMissingKeys(true) // one each time: it is not safe for concurrent use
	if err := j.Parse(q.text); err != nil {
		return false, "", fmt.Errorf("jsonpath %s: %w", q.text, err)
	}
	results, err := j.FindResults(object)
	switch {
	case err != nil && q.op == Absent: // an index that is out of range
		return true, "", nil
	case err != nil:
		return false, fmt.Sprintf("%s: %v", q.text, err), nil
	case len(results) == 0 || len(results[0]) == 0:
		if q.op == Absent {
			return true, "", nil
		}
		return false, fmt.Sprintf("%s has no value", q.text), nil
	case q.op == Absent && len(results) == 1 && len(results[0]) == 1 && results[0][0].Interface() == nil:
		return true, "", nil
	case q.op == Absent:
		return false, fmt.Sprintf("%s has a value", q.text), nil
	case len(results) > 1 || len(results[0]) > 1:
		return false, "", fmt.Errorf("jsonpath %s yields several values, want one", q.text)
	case q.op == Exists:
		return true, "", nil
	}
	var text bytes.Buffer
	if err := j.PrintResults(&text, results[0]); err != nil {
		return false, "", fmt.Errorf("jsonpath %s: %w", q.text, err)
	}
	holds, err = q.compare(text.String())
	switch {
	case err != nil:
		return false, fmt.Sprintf("%s is %q, %v", q.text, text.String(), err), nil
	case holds:
		return true, "", nil
	}
	return false, fmt.Sprintf("%s is %q", q.text, text.String()), nil
}

func (q *Question) compare(value string) (bool, error) {
	switch q.op {
	case Equals:
		return value == q.value, nil
	case Differs:
		return value != q.value, nil
	default: // the others order
	}
	c, err := q.order(value)
	if err != nil {
		return false, err
	}
	switch q.op {
	case Less:
		return c < 0, nil
	case Greater:
		return c > 0, nil
	case AtMost:
		return c <= 0, nil
	default:
		return c >= 0, nil
	}
}
