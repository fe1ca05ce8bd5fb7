package await

import (
	"github.com/sampan-io/sampan/await/fieldpath"
)

// An Operator says how the value at a path is compared.
type Operator = fieldpath.Operator

// The operators. The four that order compare numbers, quantities (500m, 2Gi) or
// times (RFC 3339). All but Absent hold only where there is a value.
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

// JSONPath is reached when the value that the path yields stands to value as op
// says. The path has kubectl's form, with or without braces and the leading dot.
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
