package admissioncel

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/traits"
	apiconfig "k8s.io/apiserver/pkg/apis/cel"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// Limits of evaluations, in units of CEL's cost.
const (
	// Budget is what all expressions of a policy may cost for one binding and parameter.
	Budget int64 = apiconfig.RuntimeCELCostBudget
	// MatchBudget is what the match conditions of a policy or a webhook may cost.
	MatchBudget int64 = apiconfig.RuntimeCELCostBudgetMatchConditions
)

// MaxMessage is the longest result of a messageExpression that is used, in bytes.
const MaxMessage = apiconfig.MaxEvaluatedMessageExpressionSizeBytes

// An Origin says what expressions a compiler accepts.
type Origin = environment.Type

const (
	// New expressions are written now: they may use only what the previous minor version knows as well, so that an
	// upgrade can be undone.
	New = environment.NewExpressions
	// Stored expressions were accepted once: they may use everything.
	Stored = environment.StoredExpressions
)

// A Program is a compiled expression, or the reason why there is none. It is immutable.
type Program struct {
	Text string
	Err  *apicel.Error // why it cannot be evaluated, or nil

	// Issues has the errors of the compiler that Err reports, or nil.
	Issues *cel.Issues

	output  *cel.Type
	program cel.Program
}

// A Compiler compiles the expressions of one policy or webhook. It is for one goroutine.
type Compiler struct {
	origin    Origin
	types     Types
	checks    bool // types only: makes no programs
	variables *apicel.DeclType
	envs      map[Declarations]*environment.EnvSet
	compiled  []variable
}

type variable struct {
	name    string
	program Program
}

// NewCompiler returns a compiler without the variable variables, as match conditions of webhooks have it.
func NewCompiler(origin Origin) *Compiler {
	return &Compiler{origin: origin, envs: map[Declarations]*environment.EnvSet{}}
}

// NewPolicyCompiler returns a compiler with the variable variables, to which [Compiler.Define] adds.
func NewPolicyCompiler(origin Origin) *Compiler {
	c := NewCompiler(origin)
	c.variables = apicel.NewObjectType("kubernetes.variables", map[string]*apicel.DeclField{})
	return c
}

// NewTypeChecker returns a compiler of a policy that knows the types of objects, and whose programs cannot be run.
func NewTypeChecker(t Types) *Compiler {
	c := NewPolicyCompiler(Stored)
	c.types, c.checks = t, true
	return c
}

// Accept sets where the expressions that are compiled next come from.
func (c *Compiler) Accept(o Origin) { c.origin = o }

// env returns the environment with these declarations. The caller's policy has its own if it has variables or types.
func (c *Compiler) env(d Declarations) (*cel.Env, error) {
	if set := c.envs[d]; set != nil {
		return set.Env(c.origin)
	}
	set, err := base(d)
	if c.types != (Types{}) && err == nil {
		set, err = d.extend(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()), c.types)
	}
	if c.variables != nil && err == nil {
		set, err = set.Extend(environment.VersionedOptions{
			IntroducedVersion: always,
			EnvOptions:        []cel.EnvOption{cel.Variable(varVariables, c.variables.CelType())},
			DeclTypes:         []*apicel.DeclType{c.variables},
		})
	}
	if err != nil {
		return nil, err
	}
	c.envs[d] = set
	return set.Env(c.origin)
}

// Define compiles an expression of spec.variables, which the expressions that are compiled later can use. It must be
// called only with compilers of policies, and once with each name.
func (c *Compiler) Define(name, text string, d Declarations) Program {
	p := c.Compile(text, d, cel.AnyType, cel.DynType)
	c.variables.Fields[name] = apicel.NewDeclField(name, declared(p.output), true, nil, nil)
	c.compiled = append(c.compiled, variable{name, p})
	return p
}

// Compile compiles an expression whose result must have one of the given types; [cel.AnyType] admits all.
func (c *Compiler) Compile(text string, d Declarations, results ...*cel.Type) Program {
	p := Program{Text: text}
	fail := func(kind apicel.ErrorType, cause error, format string, args ...any) Program {
		p.Err = &apicel.Error{Type: kind, Detail: fmt.Sprintf(format, args...), Cause: cause}
		return p
	}
	env, err := c.env(d)
	if err != nil {
		return fail(apicel.ErrorTypeInternal, nil, "unexpected error loading CEL environment: %v", err)
	}
	ast, issues := env.Compile(text)
	if issues != nil {
		p.Issues = issues
		return fail(apicel.ErrorTypeInvalid, apicel.NewCompilationError(issues), "compilation failed: %s", issues.String())
	}
	fits := func(want *cel.Type) bool { return ast.OutputType().IsExactType(want) || cel.AnyType.IsExactType(want) }
	if !slices.ContainsFunc(results, fits) {
		if len(results) == 1 {
			return fail(apicel.ErrorTypeInvalid, nil, "must evaluate to %v but got %v", results[0], ast.OutputType())
		}
		return fail(apicel.ErrorTypeInvalid, nil, "must evaluate to one of %v but got %v", results, ast.OutputType())
	}
	p.output = ast.OutputType()
	if c.checks {
		return p
	}
	if p.program, err = env.Program(ast, cel.InterruptCheckFrequency(apiconfig.CheckFrequency)); err != nil {
		return fail(apicel.ErrorTypeInternal, nil, "program instantiation failed: %v", err)
	}
	return p
}

// Variables returns the variables that were defined so far, for evaluations.
func (c *Compiler) Variables() Variables {
	return Variables{declared: c.variables, list: slices.Clone(c.compiled)}
}

// declared returns a type of an expression as the declaration of a variable, so that later expressions are checked
// against it. Types with fields of their own are not followed.
func declared(t *cel.Type) *apicel.DeclType {
	if t == nil {
		return apicel.DynType
	}
	for _, simple := range []*apicel.DeclType{
		apicel.AnyType, apicel.BoolType, apicel.BytesType, apicel.DoubleType, apicel.DurationType, apicel.IntType,
		apicel.NullType, apicel.StringType, apicel.TimestampType, apicel.UintType,
	} {
		if t == simple.CelType() {
			return simple
		}
	}
	if t.HasTrait(traits.ContainerType) && t.HasTrait(traits.IndexerType) {
		switch of := t.Parameters(); len(of) {
		case 1:
			return apicel.NewListType(declared(of[0]), -1)
		case 2:
			return apicel.NewMapType(declared(of[0]), declared(of[1]), -1)
		}
	}
	return apicel.DynType
}

// The types that expressions of mutations have.
var (
	// JSONPatches is a list of JSONPatch{}.
	JSONPatches = cel.ListType(cel.ObjectType(mutation.JSONPatchTypeName))
	// AppliedObject is Object{}.
	AppliedObject = cel.ObjectType(mutation.ObjectTypeName)
)
