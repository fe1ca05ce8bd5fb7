package expression

import (
	"errors"
	"regexp/syntax"

	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// maxPattern is the largest regular expression, in the steps that it is compiled to. A text of MaxText bytes such as
// a{1000}b{1000}… has hundreds of times as many.
const maxPattern = 1000

var errPattern = errors.New("the regular expression is too large")

// checkPattern refuses regular expressions that are too large. Others that are wrong are for the evaluator to report.
func checkPattern(pattern string) error {
	if len(pattern) > MaxText {
		return errPattern
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil // the evaluator parses it again
	}
	if steps(tree) > maxPattern {
		return errPattern
	}
	return nil
}

// steps returns about how many steps a regular expression is compiled to, without compiling it: that is what costs time and
// memory. It stops counting beyond maxPattern.
func steps(tree *syntax.Regexp) int {
	n := 1
	if tree.Op == syntax.OpLiteral {
		n = len(tree.Rune)
	}
	for _, sub := range tree.Sub {
		if n += steps(sub); n > maxPattern {
			return maxPattern + 1
		}
	}
	if tree.Op == syntax.OpRepeat {
		n *= max(tree.Min, tree.Max, 1)
	}
	return min(n, maxPattern+1)
}

// limitPatterns is a decorator for the steps of a program: each call of matches checks its pattern first. Constant
// patterns are checked here, because they are compiled once, when the program is made.
func limitPatterns(step interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, ok := step.(interpreter.InterpretableCall)
	if !ok || call.Function() != overloads.Matches || len(call.Args()) != 2 {
		return step, nil
	}
	if constant, ok := call.Args()[1].(interpreter.InterpretableConst); ok {
		if pattern, ok := constant.Value().(types.String); ok {
			return step, checkPattern(string(pattern))
		}
		return step, nil
	}
	return &matchCall{call}, nil
}

// matchCall is a call of matches whose pattern is known when it is evaluated.
type matchCall struct{ interpreter.InterpretableCall }

// Exec implements interpreter.InterpretableV2.
func (c *matchCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	if pattern, ok := c.Args()[1].Exec(frame).(types.String); ok {
		if err := checkPattern(string(pattern)); err != nil {
			return types.LabelErrNode(c.ID(), types.WrapErr(err))
		}
	}
	return c.InterpretableCall.Exec(frame)
}

// Eval implements interpreter.Interpretable.
func (c *matchCall) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}
