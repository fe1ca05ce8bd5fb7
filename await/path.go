package await

import (
	"github.com/sampan-io/sampan/await/fieldpath"
)

// An Operator compares the value at a path with another.
type Operator = fieldpath.Operator

// The operators. Less, Greater, AtMost and AtLeast compare numbers, quantities (500m, 2Gi) or times (RFC 3339). All but
// Absent are false if there is no value.
const (
	Equals  = fieldpath.Equals
	Differs = fieldpath.Differs
	Less    = fieldpath.Less
	Greater = fieldpath.Greater
	AtMost  = fieldpath.AtMost
	AtLeast = fieldpath.AtLeast
	Exists  = fieldpath.Exists // the path yields exactly one value, whatever it is
	Absent  = fieldpath.Absent // the path yields nothing
)

// JSONPath is reached when op is true for the value at the path and the given value. The path has kubectl's form, with or
// without braces and the leading dot.
func JSONPath(path string, op Operator, value string) (Degree, error) {
	return onPath(fieldpath.New(path, op, value))
}

func onPath(q *fieldpath.Question, err error) (Degree, error) {
	if err != nil {
		return Degree{}, err
	}
	return Degree{name: "jsonpath", path: q}, nil
}

func judgePath(q *fieldpath.Question, object map[string]any) (Verdict, error) {
	holds, why, err := q.Holds(object)
	switch {
	case err != nil:
		return Verdict{}, err
	case holds:
		return done(), nil
	}
	return waiting("%s", why), nil
}
