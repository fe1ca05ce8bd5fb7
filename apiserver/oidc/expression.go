package oidc

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/library"
)

const (
	claimsVariable = "claims"
	userVariable   = "user"

	// callLimit is the cost of one evaluation, as upstream's PerCallLimit.
	callLimit = 1_000_000

	// checkFrequency is after how many steps of a comprehension it is checked whether the request has ended.
	checkFrequency = 100
)

// userInfo is the variable user.
type userInfo struct {
	Username string              `cel:"username"`
	UID      string              `cel:"uid"`
	Groups   []string            `cel:"groups"`
	Extra    map[string][]string `cel:"extra"`
}

// A program is a compiled expression.
type program struct {
	text     string
	variable string
	program  cel.Program
	tree     ast.Expr
	escapes  bool // it may name fields by escaped names

	message string // of a rule
	key     string // of an extra value
}

// A compiler compiles expressions. The zero value is ready; environments are made when they are needed.
type compiler struct {
	environments map[string]*cel.Env
}

func (c *compiler) environment(variable string) (*cel.Env, error) {
	if env := c.environments[variable]; env != nil {
		return env, nil
	}
	options := []cel.EnvOption{
		cel.HomogeneousAggregateLiterals(), cel.DefaultUTCTimeZone(true), cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals(), cel.ValidateHomogeneousAggregateLiterals()),
		ext.Strings(ext.StringsVersion(2)), ext.Sets(), ext.TwoVarComprehensions(), ext.Lists(ext.ListsVersion(3)), library.Regex(),
	}
	if variable == userVariable {
		options = append(options, ext.NativeTypes(reflect.TypeFor[userInfo](), ext.ParseStructTags(true)), cel.Variable(userVariable, cel.ObjectType("oidc.userInfo")))
	} else {
		options = append(options, cel.Variable(claimsVariable, cel.MapType(cel.StringType, cel.DynType)))
	}
	env, err := cel.NewEnv(options...)
	if err == nil {
		if c.environments == nil {
			c.environments = map[string]*cel.Env{}
		}
		c.environments[variable] = env
	}
	return env, err
}

// condition compiles an expression that is true or false.
func (c *compiler) condition(variable, text string, path *field.Path) (*program, *field.Error) {
	p, t, err := c.compile(variable, text, path)
	if err == nil && !t.IsExactType(cel.BoolType) {
		return nil, field.Invalid(path, text, "must evaluate to bool")
	}
	return p, err
}

// mapping compiles an expression over the claims.
func (c *compiler) mapping(text string, path *field.Path) (*program, *field.Error) {
	p, _, err := c.compile(claimsVariable, text, path)
	return p, err
}

func (c *compiler) compile(variable, text string, path *field.Path) (*program, *cel.Type, *field.Error) {
	env, err := c.environment(variable)
	if err != nil {
		return nil, nil, field.InternalError(path, fmt.Errorf("unexpected error loading CEL environment: %w", err))
	}
	tree, issues := env.Compile(text)
	if issues.Err() != nil {
		return nil, nil, field.Invalid(path, text, "compilation failed: "+issues.String())
	}
	p, err := env.Program(tree, cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost), cel.CostLimit(callLimit), cel.InterruptCheckFrequency(checkFrequency))
	if err != nil {
		return nil, nil, field.Invalid(path, text, "program instantiation failed: "+err.Error())
	}
	return &program{text: text, variable: variable, program: p, tree: tree.NativeRep().Expr(), escapes: strings.Contains(text, "__")}, tree.OutputType(), nil
}

// eval evaluates the expression.
func (p *program) eval(ctx context.Context, variable any) (v ref.Val, err error) {
	defer func() {
		// A fault of the evaluator must not answer for the user.
		if fault := recover(); fault != nil {
			v, err = nil, fmt.Errorf("expression '%s' resulted in error: %v", p.text, fault)
		}
	}()
	v, _, err = p.program.ContextEval(ctx, map[string]any{p.variable: variable})
	if err != nil {
		return nil, fmt.Errorf("expression '%s' resulted in error: %w", p.text, err)
	}
	return v, nil
}

// uses reports whether the expression reads a claim of that name, as claims.NAME or claims.?NAME.
func (p *program) uses(claim string) bool {
	found := false
	isClaims := func(e ast.Expr) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == claimsVariable }
	ast.PreOrderVisit(p.tree, ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.SelectKind:
			s := e.AsSelect()
			found = found || isClaims(s.Operand()) && s.FieldName() == claim
		case ast.CallKind:
			call := e.AsCall()
			if args := call.Args(); call.FunctionName() == operators.OptSelect && len(args) == 2 && isClaims(args[0]) && args[1].Kind() == ast.LiteralKind {
				found = found || args[1].AsLiteral().Equal(types.String(claim)) == types.True
			}
		}
	}))
	return found
}

// texts converts a value to a list of strings. An empty string and null are none; empty strings in a list are left out.
func texts(v ref.Val) ([]string, error) {
	errType := fmt.Errorf("expression must return a string or a list of strings")
	switch v := v.(type) {
	case types.Null:
		return nil, nil
	case types.String:
		if v == "" {
			return nil, nil
		}
		return []string{string(v)}, nil
	}
	native, err := v.ConvertToNative(reflect.TypeFor[[]any]())
	if err != nil {
		return nil, errType
	}
	var all []string
	for _, one := range native.([]any) {
		if val, ok := one.(ref.Val); ok {
			one = val.Value()
		}
		s, ok := one.(string)
		if !ok {
			return nil, errType
		}
		if s != "" {
			all = append(all, s)
		}
	}
	return all, nil
}

// escape returns the name by which a field whose name is not an identifier can be selected in Kubernetes' expressions, and false if
// that is the name itself.
func escape(name string) (string, bool) {
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		return "", false
	}
	if reserved[name] {
		return "__" + name + "__", true
	}
	escaped := strings.NewReplacer("__", "__underscores__", ".", "__dot__", "-", "__dash__", "/", "__slash__").Replace(name)
	return escaped, escaped != name
}

// reserved are the words of CEL that are not identifiers, and the words that Kubernetes reserves.
var reserved = map[string]bool{
	"true": true, "false": true, "null": true, "in": true, "as": true, "break": true, "const": true, "continue": true, "else": true, "for": true,
	"function": true, "if": true, "import": true, "let": true, "loop": true, "package": true, "namespace": true, "return": true, "var": true, "void": true, "while": true,
}

// withEscapes returns a JSON value in which each field has its escaped name as well.
func withEscapes(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, value := range v {
			value = withEscapes(value)
			out[name] = value
			if escaped, ok := escape(name); ok {
				if _, taken := v[escaped]; !taken {
					out[escaped] = value
				}
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = withEscapes(v[i])
		}
		return out
	}
	return v
}
