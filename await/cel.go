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

// CEL is reached when the expression over `object` (or `self`, which is the same)
// is true. A field that does not exist makes it not hold; has() need not be asked.
// The language is that of cel.dev, without functions of the time of day.
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
		return Verdict{}, err // which has the expression
	case holds:
		return done(), nil
	}
	return waiting("%s is not true", c.text), nil
}
