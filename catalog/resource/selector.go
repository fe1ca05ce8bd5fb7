package resource

import (
	"regexp"

	"github.com/google/cel-go/common/ast"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"
)

// validateExpression compiles the selector of a device as the scheduler does, and refuses one that could cost more than
// the scheduler lets an evaluation cost. The environment is made when the first expression is compiled.
func validateExpression(text string, at *field.Path) field.ErrorList {
	if len(text) > resourcev1.CELSelectorExpressionMaxLength {
		return field.ErrorList{field.TooLong(at, "", resourcev1.CELSelectorExpressionMaxLength)}
	}
	compiler := cel.GetCompiler(cel.Features{EnableConsumableCapacity: true}) // the gates that are open by default in v1.37
	result := compiler.CompileCELExpression(text, cel.Options{EnvType: new(environment.NewExpressions)})
	switch {
	case result.Error == nil && result.MaxCost > resourcev1.CELSelectorExpressionMaxCost:
		return field.ErrorList{field.Forbidden(at, "too complex, exceeds cost limit")}
	case result.Error == nil:
		return checkQuantities(text, &result, at)
	case result.Error.Type == apicel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(at, text, result.Error.Detail)}
	case result.Error.Type == apicel.ErrorTypeRequired:
		return field.ErrorList{field.Required(at, result.Error.Detail)}
	}
	return field.ErrorList{field.InternalError(at, result.Error)}
}

// smallQuantity is the form of quantities that are read and compared in little time: "1e2147483647" takes minutes and
// gigabytes, which the cost of an expression does not show.
var smallQuantity = regexp.MustCompile(`^[+-]?[0-9.]{1,64}([eE][+-]?[0-9]{1,3}|[numkMGTPE]?|[KMGTPE]i)$`)

// checkQuantities refuses quantities that could stop the scheduler: large ones, and arguments that only an
// evaluation knows.
func checkQuantities(text string, compiled *cel.CompilationResult, at *field.Path) (errs field.ErrorList) {
	parsed, issues := compiled.Environment.Parse(text)
	if issues.Err() != nil {
		return field.ErrorList{field.InternalError(at, issues.Err())} // it has been compiled
	}
	ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		call := e.AsCall()
		if name := call.FunctionName(); name != "quantity" && name != "isQuantity" {
			return
		}
		for _, arg := range call.Args() {
			if arg.Kind() == ast.LiteralKind {
				if literal, ok := arg.AsLiteral().Value().(string); ok && smallQuantity.MatchString(literal) {
					continue
				}
			}
			errs = append(errs, field.Invalid(at, text, call.FunctionName()+"() takes a string literal of at most 64 digits, with an exponent of at most three"))
		}
	}))
	return errs
}
