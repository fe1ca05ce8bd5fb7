package admissioncel

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/lazy"
	"k8s.io/apiserver/pkg/cel/library"
)

// Value returns a Go value as expressions see it: as it would be after a conversion to JSON and back. The value is
// read when an expression needs it and must not change as long as the result is in use. Nil, and a nil pointer, is
// null. The result is for one goroutine.
func Value(v any) ref.Val {
	if u, ok := v.(*unstructured.Unstructured); ok && u != nil {
		return types.DefaultTypeAdapter.NativeToValue(u.Object)
	}
	return common.SchemalessTypedToVal(v)
}

// Values are the variables of one request. A nil value is null; the authorizer's are unknown then. They are
// for one goroutine.
type Values struct {
	Object, OldObject, Request, Namespace, Params ref.Val

	authorizer, requestResource ref.Val
}

// A RequestResource is what authorizer.requestResource checks.
type RequestResource struct {
	Resource                     schema.GroupVersionResource
	Subresource, Namespace, Name string
}

// GetName implements [library.Resource].
func (r *RequestResource) GetName() string { return r.Name }

// GetNamespace implements [library.Resource].
func (r *RequestResource) GetNamespace() string { return r.Namespace }

// GetResource implements [library.Resource].
func (r *RequestResource) GetResource() schema.GroupVersionResource { return r.Resource }

// GetSubresource implements [library.Resource].
func (r *RequestResource) GetSubresource() string { return r.Subresource }

// Authorize returns v with the variables authorizer and authorizer.requestResource, which ask z about the user.
func (v Values) Authorize(u user.Info, z authorizer.UnconditionalAuthorizer, r *RequestResource) Values {
	v.authorizer, v.requestResource = library.NewAuthorizerVal(u, z), library.NewResourceAuthorizerVal(u, z, r)
	return v
}

// WithoutAuthorizer returns v without the variables of [Values.Authorize].
func (v Values) WithoutAuthorizer() Values {
	v.authorizer, v.requestResource = nil, nil
	return v
}

// Variables are the spec.variables of a policy.
type Variables struct {
	declared *apicel.DeclType // nil: the expressions do not know variables
	list     []variable
}

// An Evaluation runs programs with the same values, out of one budget. It is for one goroutine.
type Evaluation struct {
	Budget int64 // what is left

	ctx       context.Context //nolint:containedctx // of the evaluation: variables are evaluated when a program reads them
	values    Values
	variables any
	spent     int64 // by variables, in the program that runs now
}

// NewEvaluation returns an evaluation that ends with an error when ctx is over. Variables are evaluated when a program
// reads them, at most once.
func NewEvaluation(ctx context.Context, v Values, defined Variables, budget int64) *Evaluation {
	e := &Evaluation{Budget: budget, ctx: ctx, values: v}
	if defined.declared != nil {
		m := lazy.NewMapValue(defined.declared)
		for i := range defined.list {
			def := &defined.list[i]
			m.Append(def.name, func(*lazy.MapValue) ref.Val { return e.variable(def) })
		}
		e.variables = m
	}
	return e
}

// ResolveName implements the activation of CEL.
func (e *Evaluation) ResolveName(name string) (any, bool) {
	switch name {
	case varObject:
		return orNull(e.values.Object), true
	case varOldObject:
		return orNull(e.values.OldObject), true
	case varParams:
		return orNull(e.values.Params), true
	case varRequest:
		return orNull(e.values.Request), true
	case varNamespace:
		return orNull(e.values.Namespace), true
	case varAuthorizer:
		return e.values.authorizer, e.values.authorizer != nil
	case varRequestResource:
		return e.values.requestResource, e.values.requestResource != nil
	case varVariables:
		return e.variables, e.variables != nil
	}
	return nil, false
}

// Parent implements the activation of CEL.
func (*Evaluation) Parent() interpreter.Activation { return nil }

func orNull(v ref.Val) ref.Val {
	if v == nil {
		return types.NullValue
	}
	return v
}

func (e *Evaluation) variable(def *variable) ref.Val {
	if def.program.Err != nil {
		return types.NewErr("composited variable %q fails to compile: %v", def.name, def.program.Err)
	}
	v, details, err := def.program.program.ContextEval(e.ctx, e)
	cost, known := costOf(details)
	if !known {
		return types.NewErr("unable to calculate cost of variable %q", def.name)
	}
	e.spent += cost
	if err != nil {
		return types.NewErr("composited variable %q fails to evaluate: %v", def.name, err)
	}
	return v
}

// costOf returns what an evaluation has cost, at most half of the largest number, so that sums do not overflow.
func costOf(details *cel.EvalDetails) (int64, bool) {
	if details == nil || details.ActualCost() == nil {
		return 0, false
	}
	return int64(min(*details.ActualCost(), math.MaxInt64/2)), true
}

// A Result is what a program came to: a value, or an error of the program alone.
type Result struct {
	Value ref.Val
	Err   error
	Took  time.Duration
}

// Run evaluates a program. Its own error is one after which no further program must be run: the budget is spent.
func (e *Evaluation) Run(p *Program) (r Result, err error) {
	switch {
	case p.Err != nil:
		r.Err = &apicel.Error{Type: apicel.ErrorTypeInvalid, Detail: fmt.Sprintf("compilation error: %v", p.Err), Cause: p.Err}
		return r, nil
	case p.program == nil:
		r.Err = &apicel.Error{Type: apicel.ErrorTypeInternal, Detail: "unexpected internal error compiling expression"}
		return r, nil
	}
	start := time.Now()
	e.spent = 0
	v, details, fault := p.program.ContextEval(e.ctx, e)
	r.Took = time.Since(start)
	cost, known := costOf(details)
	if !known {
		e.Budget = -1
		return r, &apicel.Error{
			Type:   apicel.ErrorTypeInvalid,
			Detail: fmt.Sprintf("runtime cost could not be calculated for expression: %v, no further expression will be run", p.Text),
			Cause:  apicel.ErrOutOfBudget,
		}
	}
	if cost += min(e.spent, math.MaxInt64/2); cost > e.Budget {
		e.Budget = -1
		return r, &apicel.Error{
			Type:   apicel.ErrorTypeInvalid,
			Detail: "validation failed due to running out of cost budget, no further validation rules will be run",
			Cause:  apicel.ErrOutOfBudget,
		}
	}
	e.Budget -= cost
	if fault != nil {
		r.Err = &apicel.Error{Type: apicel.ErrorTypeInvalid, Detail: fmt.Sprintf("expression '%v' resulted in error: %v", p.Text, fault)}
		return r, nil
	}
	r.Value = v
	return r, nil
}
