package apiextensions

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/sampan-io/sampan/internal/sorting"
)

// Kubernetes' limits for the estimated costs of a rule, and of all rules of a version.
const (
	maxRuleCost   = 10_000_000
	maxSchemaCost = 100_000_000
)

// A scope is the environment in which the rules of a schema are compiled.
type scope struct {
	schema   *schema
	parent   *scope
	relation relation
	within   bool   // whether this schema or one above has rules
	times    uint64 // how often a value can occur in an object; unbounded if nothing limits that
	costs    *costs // of the version
	types    *types // once they have been made
	err      error
}

const unbounded = math.MaxUint64

// types is a schema as CEL sees it.
type types struct {
	structural *structuralschema.Structural
	declared   *apiservercel.DeclType
}

// costs are the estimated costs of the rules of a version.
type costs struct {
	total uint64
	large []cost // the largest, at most four, each at least a hundredth of maxSchemaCost
}

type cost struct {
	at    *field.Path
	value uint64
}

func newScope(root *schema) *scope {
	return &scope{schema: root, within: len(root.XValidations) > 0, times: 1, costs: &costs{}}
}

// child returns the scope of a schema in s, or nil if s has no scope.
func (c *scope) child(s, child *schema, r relation) *scope {
	if c == nil {
		return nil
	}
	return &scope{
		schema: child, parent: c, relation: r, costs: c.costs,
		within: c.within || len(child.XValidations) > 0,
		times:  times(c.times, elements(s)),
	}
}

// elements returns how often a value directly below s can occur in one value of s.
func elements(s *schema) uint64 {
	limit := func(n *int64) uint64 {
		if n == nil {
			return unbounded
		}
		return uint64(max(*n, 0)) // not negative
	}
	switch {
	case s.Type == "array":
		return limit(s.MaxItems)
	case s.Type == "object" && s.AdditionalProperties != nil:
		return limit(s.MaxProperties)
	}
	return 1
}

// times multiplies, and returns the largest number for a product that is larger.
func times(a, b uint64) uint64 {
	if a == unbounded || b == unbounded {
		return unbounded
	}
	return product(a, b)
}

func product(a, b uint64) uint64 {
	if high, low := bits.Mul64(a, b); high == 0 {
		return low
	}
	return math.MaxUint64
}

// typed returns the types of the schema. It takes them from the parent if that has any for it, because making them takes
// long for a large schema.
func (c *scope) typed() (*types, error) {
	if c.types != nil || c.err != nil || !c.within {
		return c.types, c.err
	}
	if c.parent != nil && c.parent.within {
		parent, err := c.parent.typed()
		if err != nil {
			c.err = err
			return nil, err
		}
		if c.types = parent.child(c.relation); c.types != nil {
			return c.types, nil
		}
	}
	c.types, c.err = typesOf(c.schema, c.parent == nil || c.schema.XEmbeddedResource)
	return c.types, c.err
}

func typesOf(s *schema, root bool) (*types, error) {
	structural, err := structuralschema.NewStructural(s)
	if err != nil {
		return nil, err
	}
	declared := model.SchemaDeclType(structural, root)
	if declared == nil {
		return nil, errors.New("unable to convert structural schema to CEL declarations")
	}
	return &types{structural, declared}, nil
}

// child returns the types of a schema directly in that of t, or nil if t has none for it.
func (t *types) child(r relation) *types {
	switch {
	case t == nil:
	case r.field == "properties":
		name, ok := apiservercel.Escape(r.name)
		if declared := t.declared.Fields[name]; ok && declared != nil {
			structural := t.structural.Properties[r.name]
			return &types{&structural, declared.Type}
		}
	case r.field == "items" && t.structural.Items != nil && t.declared.ElemType != nil:
		return &types{t.structural.Items, t.declared.ElemType}
	case r.field == "additionalProperties" && t.structural.AdditionalProperties != nil && t.structural.AdditionalProperties.Structural != nil && t.declared.ElemType != nil:
		return &types{t.structural.AdditionalProperties.Structural, t.declared.ElemType}
	}
	return nil
}

// compile compiles the rules of the schema.
func (n node) compile() (errs field.ErrorList) {
	all := n.at.Child("x-kubernetes-validations")
	internal := func(err error) field.ErrorList { return field.ErrorList{field.InternalError(all, err)} }
	t, err := n.scope.typed()
	if err != nil {
		return internal(fmt.Errorf("internal error: failed to construct type information for x-kubernetes-validations rules: %w", err))
	}
	if t == nil {
		return internal(errors.New("internal error: failed to retrieve type information for x-kubernetes-validations"))
	}
	set := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	results, err := cel.Compile(t.structural, t.declared, celconfig.PerCallLimit, set, n.known)
	if err != nil {
		return internal(err)
	}
	for i := range results {
		errs = append(errs, n.judge(i, &results[i], all.Index(i))...)
	}
	return errs
}

// judge checks what became of the rule with index i.
func (n node) judge(i int, r *cel.CompilationResult, at *field.Path) (errs field.ErrorList) {
	rule := n.XValidations[i]
	observe := func(at *field.Path, name string, value uint64) {
		if value > maxRuleCost && !n.costly {
			errs = append(errs, field.Forbidden(at, overBudget(name, value, maxRuleCost)))
		}
		n.scope.costs.add(cost{at, value})
	}
	occurs := n.scope.times
	if occurs == unbounded {
		occurs = r.MaxCardinality
	}
	observe(at.Child("rule"), "estimated rule cost", product(r.MaxCost, occurs))
	if r.Error != nil {
		if r.Error.Type == apiservercel.ErrorTypeRequired {
			errs = append(errs, field.Required(at.Child("rule"), r.Error.Detail))
		} else {
			errs = append(errs, field.Invalid(at.Child("rule"), rule, r.Error.Detail))
		}
	}
	if r.MessageExpressionError != nil {
		errs = append(errs, field.Invalid(at.Child("messageExpression"), rule, r.MessageExpressionError.Detail))
	} else if r.MessageExpression != nil {
		observe(at.Child("messageExpression"), "estimated messageExpression cost", r.MessageExpressionMaxCost)
	}
	switch {
	case r.UsesOldSelf && n.uncorrelated != nil:
		errs = append(errs, field.Invalid(at.Child("rule"), rule.Rule,
			fmt.Sprintf("oldSelf cannot be used on the uncorrelatable portion of the schema within %v", n.uncorrelated)))
	case !r.UsesOldSelf && rule.OptionalOldSelf != nil:
		errs = append(errs, field.Invalid(at.Child("optionalOldSelf"), *rule.OptionalOldSelf, "may not be set if oldSelf is not used in rule"))
	}
	return errs
}

func (c *costs) add(one cost) {
	if c.total += one.value; c.total < one.value {
		c.total = math.MaxUint64
	}
	if one.value < maxSchemaCost/100 {
		return
	}
	c.large = append(c.large, one)
	sorting.Stable(c.large, func(a, b cost) int { return cmp.Compare(b.value, a.value) })
	c.large = c.large[:min(len(c.large), 4)]
}

// totalFaults returns the faults of the costs of all rules of a version, at the path of its schema.
func (c *scope) totalFaults(at *field.Path) (errs field.ErrorList) {
	if c == nil || c.costs.total <= maxSchemaCost {
		return nil
	}
	for _, one := range c.costs.large {
		errs = append(errs, field.Forbidden(one.at, "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"))
	}
	const name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
	return append(errs, field.Forbidden(at, overBudget(name, c.costs.total, maxSchemaCost)))
}

func overBudget(name string, value, limit uint64) string {
	by, factor := float64(value)/float64(limit), ""
	switch {
	case by > 100:
		factor = "more than 100x"
	case by < 1.5:
		factor = fmt.Sprintf("%fx", by)
	default:
		factor = fmt.Sprintf("%.1fx", by)
	}
	return fmt.Sprintf("%s exceeds budget by factor of %s (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)", name, factor)
}
