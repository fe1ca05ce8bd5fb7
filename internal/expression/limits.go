package expression

import (
	"fmt"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// A budget turns an object's parts into values of the evaluator, one by one as they are
// looked at, and counts them. The evaluator's own limit counts a call after it was made,
// by the length of its arguments, and so does not see what one comparison of deep lists
// costs: every part that it compares comes through here.
type budget struct{ left int }

// NativeToValue implements types.Adapter. It ends the evaluation, in the evaluator's own
// way, if the budget is used up.
func (b *budget) NativeToValue(value any) ref.Val {
	if b.left--; b.left < 0 {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: "too many parts of the object were looked at"})
	}
	switch v := value.(type) {
	case map[string]any:
		return types.NewStringInterfaceMap(b, v)
	case []any:
		return types.NewDynamicList(b, v)
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

// dear are the functions of the string extension of which one call can make a text that
// is longer than its arguments multiplied. A question hardly needs them.
var dear = map[string]bool{"replace": true, "join": true, "format": true}

// tooDear finds calls that are not worth their risk on a server.
func tooDear(tree *ast.AST) []Fault {
	var faults []Fault
	fault := func(e ast.Expr, format string, args ...any) {
		at := tree.SourceInfo().GetStartLocation(e.ID())
		if len(faults) < maxFaults {
			faults = append(faults, Fault{max(at.Line(), 1), max(at.Column(), 0) + 1, fmt.Sprintf(format, args...)})
		}
	}
	ast.PreOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		call := e.AsCall()
		switch name := call.FunctionName(); name {
		case "sets.contains", "sets.equivalent", "sets.intersects":
			for _, arg := range call.Args() {
				if arg.Kind() == ast.ListKind {
					return
				}
			}
			fault(e, "one argument of %s must be a list that is written out, such as [\"a\", \"b\"]", name)
		case overloads.Matches:
			for _, arg := range call.Args() {
				if pattern, ok := literal(arg); ok && checkPattern(pattern) != nil {
					fault(arg, "%v", errPattern)
				}
			}
		default:
			if dear[name] {
				fault(e, "%s() is not supported", name)
			}
		}
	}))
	return faults
}

// literal returns the text that an expression is, if it is one.
func literal(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}

// price says what a call costs. The evaluator's own table has costs only for overloads. A call on
// parts of the object, whose type is unknown, has no overload: it costs one there, even if it joins
// two texts of a megabyte.
type price struct{}

// CallCost implements the evaluator's ActualCostEstimator.
func (price) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	var cost uint64
	switch function {
	case "size", "type", "string", "bytes", "int", "double", "bool", "_[_]", "!_", "@not_strictly_false":
	case "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "startsWith", "endsWith":
		cost = length(args[0])
		for _, a := range args[1:] {
			cost = min(cost, length(a)) // the comparison ends with the shorter
		}
	case "matches":
		if len(args) == 2 {
			cost = (1 + length(args[0])) * (1 + length(args[1]))
		}
	case "sets.contains", "sets.intersects", "sets.equivalent":
		if len(args) == 2 {
			cost = length(args[0]) * length(args[1])
		}
	case "_+_": // joining lists copies nothing
		if _, list := result.(traits.Lister); !list {
			cost = length(result)
		}
	default:
		for _, a := range args {
			cost += length(a)
		}
		cost += length(result)
	}
	cost++
	return &cost
}

// length returns the number of elements, or a tenth of the bytes, of a value.
func length(value ref.Val) uint64 {
	switch v := value.(type) {
	case types.String:
		return uint64(len(v)) / 10
	case types.Bytes:
		return uint64(len(v)) / 10
	case traits.Sizer:
		if n, ok := v.Size().(types.Int); ok {
			return uint64(max(n, 0))
		}
	}
	return 0
}
