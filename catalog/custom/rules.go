package custom

import (
	"context"
	"math"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
)

// A ruleset is the rules of a schema and of those in it, compiled to find out whether all are true. Kubernetes' validator,
// which explains what is not, makes the schemas of all properties again whenever a rule looks at one. A nil ruleset has
// no rules.
type ruleset struct {
	programs   []program
	view       common.Schema // how the rules see values
	transition bool          // a rule here or below uses oldSelf

	properties map[string]*ruleset
	more       *ruleset // of further properties
	items      *ruleset
	keyed      bool // the items have keys by which old ones are found
	correlated bool // properties of old and new values correspond
}

type program struct {
	celgo.Program
	usesOld  bool
	optional bool // oldSelf is optional
}

// newRuleset compiles the rules of s; ok is false if they are left to Kubernetes' validator.
func newRuleset(s *structuralschema.Structural) (r *ruleset, ok bool) {
	return compileRules(s, model.SchemaDeclType(s, true), true)
}

func compileRules(s *structuralschema.Structural, declared *apiservercel.DeclType, root bool) (*ruleset, bool) {
	if declared == nil || rulesInAllOf(s.ValueValidation) {
		return nil, declared == nil && !hasRules(s)
	}
	r := &ruleset{correlated: cel.MapIsCorrelatable(s.XMapType), keyed: s.XListType != nil && *s.XListType == "map"}
	if len(s.XValidations) > 0 && !r.compile(s, declared, root) {
		return nil, false
	}
	for name, property := range s.Properties {
		if !hasRules(&property) {
			continue
		}
		escaped, ok := apiservercel.Escape(name)
		field := declared.Fields[escaped]
		if !ok || field == nil {
			return nil, false
		}
		below, ok := compileRules(&property, field.Type, property.XEmbeddedResource)
		if !ok {
			return nil, false
		}
		if r.properties == nil {
			r.properties = map[string]*ruleset{}
		}
		r.properties[name] = below
		r.transition = r.transition || below.transition
	}
	for _, part := range []struct {
		schema *structuralschema.Structural
		into   **ruleset
	}{{s.Items, &r.items}, {moreOf(s), &r.more}} {
		if part.schema == nil || !hasRules(part.schema) {
			continue
		}
		below, ok := compileRules(part.schema, declared.ElemType, part.schema.XEmbeddedResource)
		if !ok {
			return nil, false
		}
		*part.into = below
		r.transition = r.transition || below.transition
	}
	return r, true
}

// compile compiles the rules of s itself, and reports whether all are fine.
func (r *ruleset) compile(s *structuralschema.Structural, declared *apiservercel.DeclType, root bool) bool {
	set := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	results, err := cel.Compile(s, declared, celconfig.PerCallLimit, set, cel.StoredExpressionsEnvLoader())
	if err != nil {
		return false
	}
	for i := range results {
		if results[i].Error != nil || results[i].Program == nil {
			return false
		}
		optional := s.XValidations[i].OptionalOldSelf
		r.programs = append(r.programs, program{results[i].Program, results[i].UsesOldSelf, optional != nil && *optional})
		r.transition = r.transition || results[i].UsesOldSelf
	}
	if root {
		s = model.WithTypeAndObjectMeta(s)
	}
	r.view = newView(s)
	return true
}

func moreOf(s *structuralschema.Structural) *structuralschema.Structural {
	if s.AdditionalProperties == nil {
		return nil
	}
	return s.AdditionalProperties.Structural
}

// hasRules reports whether there are rules in s.
func hasRules(s *structuralschema.Structural) bool {
	found := false
	visitor := structuralschema.Visitor{
		Structural: func(s *structuralschema.Structural) bool {
			found = found || len(s.XValidations) > 0
			return false
		},
		NestedValueValidation: func(v *structuralschema.NestedValueValidation) bool {
			found = found || len(v.ValidationExtensions.XValidations) > 0
			return false
		},
	}
	visitor.Visit(s)
	return found
}

// rulesInAllOf reports whether there are rules in an allOf.
func rulesInAllOf(v *structuralschema.ValueValidation) bool {
	if v == nil {
		return false
	}
	for i := range v.AllOf {
		if hasRules(&structuralschema.Structural{ValueValidation: &structuralschema.ValueValidation{AllOf: v.AllOf[i : i+1]}}) {
			return true
		}
	}
	return false
}

// hold reports whether all rules are certainly true of value, which replaces old unless that is nil, within a budget of
// costs; false says nothing.
func (r *ruleset) hold(ctx context.Context, value, old any, budget *int64) bool {
	if r == nil || value == nil {
		return true
	}
	if len(r.programs) > 0 && !r.holdHere(ctx, value, old, budget) {
		return false
	}
	switch value := value.(type) {
	case map[string]any:
		before, _ := old.(map[string]any)
		if !r.correlated {
			before = nil
		}
		if r.more != nil {
			for name, v := range value {
				if !r.more.hold(ctx, v, before[name], budget) {
					return false
				}
			}
		}
		for name, below := range r.properties {
			if !below.hold(ctx, value[name], before[name], budget) {
				return false
			}
		}
	case []any:
		if r.items == nil {
			return true
		}
		if before, _ := old.([]any); len(before) > 0 && r.keyed && r.items.transition {
			return false
		}
		for _, item := range value {
			if !r.items.hold(ctx, item, nil, budget) {
				return false
			}
		}
	}
	return true
}

// holdHere evaluates the rules of the schema itself.
func (r *ruleset) holdHere(ctx context.Context, value, old any, budget *int64) bool {
	if *budget <= 0 {
		return false
	}
	names := &activation{self: common.UnstructuredToVal(value, r.view)}
	optional := &activation{self: names.self, old: types.OptionalNone, hasOld: true}
	if old != nil && r.transition {
		names.old, names.hasOld = common.UnstructuredToVal(old, r.view), true
		optional.old = types.OptionalOf(names.old)
	}
	for _, p := range r.programs {
		if p.usesOld && old == nil && !p.optional {
			continue
		}
		with := names
		if p.optional {
			with = optional
		}
		result, details, err := p.ContextEval(ctx, with)
		if err != nil || result != types.True || details == nil || details.ActualCost() == nil {
			return false
		}
		cost := *details.ActualCost()
		if cost > math.MaxInt64 || int64(cost) > *budget {
			return false
		}
		*budget -= int64(cost)
	}
	return true
}

// An activation has the values of self and oldSelf.
type activation struct {
	self, old ref.Val
	hasOld    bool
}

// ResolveName implements interpreter.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case cel.ScopedVarName:
		return a.self, true
	case cel.OldScopedVarName:
		return a.old, a.hasOld
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (a *activation) Parent() interpreter.Activation { return nil }

// A view is a schema as rules see it, made once for all evaluations.
type view struct {
	*model.Structural
	properties map[string]common.Schema
	items      common.Schema
	more       common.SchemaOrBool
}

func newView(s *structuralschema.Structural) common.Schema {
	v := &view{Structural: &model.Structural{Structural: s}}
	if s.Properties != nil {
		v.properties = make(map[string]common.Schema, len(s.Properties))
	}
	for name, property := range s.Properties {
		v.properties[name] = newView(&property)
	}
	if s.Items != nil {
		v.items = newView(s.Items)
	}
	if s.AdditionalProperties != nil {
		more := &moreView{allows: s.AdditionalProperties.Bool}
		if s.AdditionalProperties.Structural != nil {
			more.schema = newView(s.AdditionalProperties.Structural)
		}
		v.more = more
	}
	return v
}

// Properties implements common.Schema, as the following methods do.
func (v *view) Properties() map[string]common.Schema { return v.properties }

// Items returns the schema of items.
func (v *view) Items() common.Schema { return v.items }

// AdditionalProperties returns the schema of further properties.
func (v *view) AdditionalProperties() common.SchemaOrBool { return v.more }

type moreView struct {
	schema common.Schema
	allows bool
}

// Schema implements common.SchemaOrBool.
func (m *moreView) Schema() common.Schema { return m.schema }

// Allows implements common.SchemaOrBool.
func (m *moreView) Allows() bool { return m.allows }
