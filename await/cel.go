package await

import (
	"fmt"

	"github.com/sampan-io/sampan/internal/expression"
)

// A cel is a compiled CEL expression.
type cel struct {
	text       string
	expression *expression.Expression
}

// CEL is reached when the CEL expression over `object` (or `self`, which is the same) is true. An expression that reads a
// missing field is not true, so has() is not needed. The language is that of cel.dev, without functions that read the
// clock.
func CEL(text string) (Degree, error) {
	e, err := expression.Compile(text)
	if err != nil {
		return Degree{}, fmt.Errorf("cel=%s: %w", text, err)
	}
	return Degree{name: "cel", cel: &cel{text, e}}, nil
}

func (c *cel) judge(object map[string]any) (Verdict, error) {
	holds, err := c.expression.Holds(object)
	switch {
	case err != nil:
		return Verdict{}, err // its text has the expression
	case holds:
		return done(), nil
	}
	return waiting("%s is not true", c.text), nil
}
