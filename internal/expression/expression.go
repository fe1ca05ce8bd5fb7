package expression

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
)

const (
	// MaxText is the longest text of an expression, in bytes.
	MaxText = 2048
	// MaxCost is the most that one evaluation may cost, in CEL's units: about one
	// per step, and one per ten bytes of text that are looked at; and the most parts of
	// the object that it may look at. The largest objects (a Node with hundreds of
	// images) cost some thousands.
	MaxCost = 100_000

	maxDepth = 100 // of nested brackets and calls
	maxLoops = 3   // of comprehensions, one in the other or one on the result of the other
)

// An Expression is a compiled question. It is immutable and safe for concurrent use.
type Expression struct {
	text    string
	program cel.Program
	source  *ast.SourceInfo // for the position of an error in an evaluation
}

// environment is made when the first expression is compiled, since many programs
// compile none; it never changes after that.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("object", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("self", cel.MapType(cel.StringType, cel.DynType)),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.OptionalTypes(),
		cel.ParserExpressionSizeLimit(MaxText),
		cel.ParserRecursionLimit(maxDepth),
		cel.ASTValidators(
			cel.ValidateDurationLiterals(),
			cel.ValidateTimestampLiterals(),
			cel.ValidateRegexLiterals(),
			cel.ValidateComprehensionNestingLimit(maxLoops),
		),
		ext.Strings(),
		ext.Sets(),
		ext.Lists(ext.ListsVersion(0)), // slice; what came later is worse than linear in one call
		ext.Math(),
		ext.TwoVarComprehensions(),
	)
})

// Compile reads an expression. Its static type must be bool, or unknown until it is
// asked, as that of object.spec.paused is.
//
// What is wrong with the text is a [*SyntaxError].
func Compile(text string) (*Expression, error) {
	switch {
	case strings.TrimSpace(text) == "":
		return nil, &SyntaxError{Faults: []Fault{{1, 1, "the expression is empty"}}}
	case len(text) > MaxText:
		return nil, &SyntaxError{Faults: []Fault{{1, 1, fmt.Sprintf("the expression is %d bytes long, want at most %d", len(text), MaxText)}}}
	}
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("expression: making the environment: %w", err)
	}
	checked, issues := env.Compile(text)
	if faults := faultsIn(issues); len(faults) > 0 {
		return nil, &SyntaxError{Faults: faults}
	}
	if faults := tooDear(checked.NativeRep()); len(faults) > 0 {
		return nil, &SyntaxError{Faults: faults}
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return nil, &SyntaxError{Faults: []Fault{{1, 1, fmt.Sprintf("the expression gives %s, want bool: compare it with something", typeName(t.String()))}}}
	}
	program, err := env.Program(checked, cel.EvalOptions(cel.OptOptimize), cel.CostTracking(price{}), cel.CostLimit(MaxCost),
		cel.CustomDecoratorV2(limitPatterns))
	if err != nil { // such as a constant part that cannot be worked out
		return nil, &SyntaxError{Faults: []Fault{{1, 1, plain(err.Error())}}}
	}
	return &Expression{text: text, program: program, source: checked.NativeRep().SourceInfo()}, nil
}

// String returns the text that was compiled.
func (e *Expression) String() string { return e.text }

// Holds reports whether the expression is true of the object, which must be as JSON is
// decoded: map[string]any, []any, string, bool, nil, and numbers of any Go type. The
// object is read, and not kept.
//
// If the answer hangs on a field, a key or an element that does not exist, the answer is
// false. An error is an [*EvalError]: types that do not go together, a result that is not
// a bool, or an evaluation that went beyond its limits.
func (e *Expression) Holds(object map[string]any) (bool, error) {
	self := (&budget{left: MaxCost}).NativeToValue(object)
	value, _, err := e.program.Eval(map[string]any{"object": self, "self": self})
	if err != nil {
		return false, e.why(err)
	}
	switch v := value.(type) {
	case types.Bool:
		return bool(v), nil
	case types.Null: // object.spec.paused, which is null
		return false, nil
	}
	return false, &EvalError{Text: e.text, Message: fmt.Sprintf("the result is %s, want bool", typeName(value.Type().TypeName()))}
}

// why turns the evaluator's error into ours, or into nil if it says that something is
// missing.
func (e *Expression) why(err error) error {
	if _, cancelled := errors.AsType[interpreter.EvalCancelledError](err); cancelled {
		return &EvalError{Text: e.text, Limit: true, Message: fmt.Sprintf("it takes too many steps for this object (cost limit %d)", MaxCost)}
	}
	if missing(err) {
		return nil
	}
	at := &EvalError{Text: e.text, Message: plain(err.Error())}
	var fault *types.Err
	if errors.As(err, &fault) && fault.NodeID() != 0 {
		place := e.source.GetStartLocation(fault.NodeID())
		at.Line, at.Column = place.Line(), place.Column()+1
	}
	return at
}

// missing reports whether an error says that a key or an element does not exist. The
// evaluator's errors have no types, only these beginnings; a test pins them.
func missing(err error) bool {
	return slices.ContainsFunc([]string{"no such key: ", "no such attribute", "index out of bounds: "}, func(s string) bool {
		return strings.HasPrefix(err.Error(), s)
	})
}
