package policies

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/admissioncel"
	"github.com/sampan-io/sampan/internal/sorting"
)

// maxTypes is with how many kinds the expressions of a policy are checked, as upstream.
const maxTypes = 10

// Schemas returns the schema of a kind without references, or nil if there is none.
type Schemas func(kind schema.GroupVersionKind) *spec.Schema

// Warnings checks the expressions of a policy against the types of the kinds that its rules name, and returns what does not fit:
// a policy that reads a field which the kind does not have fails for every object. Rules with wildcards are not checked.
func Warnings(p *admissionregistrationv1.ValidatingAdmissionPolicy, c *catalog.Catalog, schemas Schemas) []admissionregistrationv1.ExpressionWarning {
	type expression struct{ ref, text string }
	var all []expression
	for i, v := range p.Spec.Validations {
		at := fmt.Sprintf("spec.validations[%d].", i)
		all = append(all, expression{at + "expression", v.Expression})
		if v.MessageExpression != "" {
			all = append(all, expression{at + "messageExpression", v.MessageExpression})
		}
	}
	d := admissioncel.Declarations{Params: p.Spec.ParamKind != nil, Authorizer: true}
	var params *apicel.DeclType
	if k := p.Spec.ParamKind; k != nil {
		if gv, err := schema.ParseGroupVersion(k.APIVersion); err == nil {
			params = declaredType(gv.WithKind(k.Kind), schemas)
		}
	}
	found := map[string][]string{} // by fieldRef
	for _, kind := range kindsToCheck(p, c.Snapshot()) {
		object := declaredType(kind, schemas)
		if object == nil {
			continue
		}
		compiler := admissioncel.NewTypeChecker(admissioncel.Types{Object: object, Params: params})
		for _, v := range p.Spec.Variables {
			compiler.Define(v.Name, v.Expression, d)
		}
		for _, e := range all {
			program := compiler.Compile(e.text, d, cel.AnyType)
			switch {
			case program.Issues != nil:
				issues := &apicel.Error{Type: apicel.ErrorTypeInvalid, Detail: program.Issues.String()}
				found[e.ref] = append(found[e.ref], fmt.Sprintf("%v: %s\n", kind, issues))
			case program.Err != nil:
				found[e.ref] = append(found[e.ref], fmt.Sprintf("%v: type checking error: %v\n", kind, program.Err))
			}
		}
	}
	var warnings []admissionregistrationv1.ExpressionWarning
	for _, e := range all {
		if messages := found[e.ref]; len(messages) > 0 {
			warnings = append(warnings, admissionregistrationv1.ExpressionWarning{FieldRef: e.ref, Warning: strings.Join(messages, "\n")})
		}
	}
	return warnings
}

// kindsToCheck returns the kinds that the rules name, sorted.
func kindsToCheck(p *admissionregistrationv1.ValidatingAdmissionPolicy, kinds *catalog.Snapshot) (all []schema.GroupVersionKind) {
	if p.Spec.MatchConstraints == nil {
		return nil
	}
	for i := range p.Spec.MatchConstraints.ResourceRules {
		r := &p.Spec.MatchConstraints.ResourceRules[i]
		if slices.ContainsFunc(slices.Concat(r.APIGroups, r.APIVersions), func(s string) bool { return strings.Contains(s, "*") }) {
			continue
		}
		for _, group := range slices.Sorted(slices.Values(r.APIGroups)) {
			for _, version := range slices.Sorted(slices.Values(r.APIVersions)) {
				for _, resource := range slices.Sorted(slices.Values(r.Resources)) {
					kind := kinds.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
					if kind != nil && len(all) < maxTypes && !slices.Contains(all, kind.GroupVersionKind) {
						all = append(all, kind.GroupVersionKind)
					}
				}
			}
		}
	}
	sorting.Slice(all, func(a, b schema.GroupVersionKind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}

func declaredType(kind schema.GroupVersionKind, schemas Schemas) *apicel.DeclType {
	s := schemas(kind)
	if s == nil {
		return nil
	}
	t := common.SchemaDeclType(&openapi.Schema{Schema: s}, true)
	if t == nil {
		return nil
	}
	// Two kinds of the same name may be in one check: that of the object and that of the parameter.
	return t.MaybeAssignTypeName(strings.NewReplacer(".", "_", "-", "_").Replace(kind.Kind + "_" + kind.Group + "_" + kind.Version))
}

const refPrefix = "#/components/schemas/"

// maxExpanded is how many parts an expanded schema may have. The largest built-in kinds have a few thousand.
const maxExpanded = 100_000

// Expand returns the schema of a kind among those of a document, with its references replaced. A schema in itself is an object
// without known fields there.
func Expand(schemas map[string]*spec.Schema, kind schema.GroupVersionKind) *spec.Schema {
	for _, s := range schemas {
		var names []struct{ Group, Version, Kind string }
		if s == nil || s.Extensions.GetObject("x-kubernetes-group-version-kind", &names) != nil {
			continue
		}
		for _, n := range names {
			if n.Group == kind.Group && n.Version == kind.Version && n.Kind == kind.Kind {
				e := expansion{schemas: schemas, left: maxExpanded}
				return e.expand(s, nil)
			}
		}
	}
	return nil
}

type expansion struct {
	schemas map[string]*spec.Schema
	left    int
}

// expand returns a copy of s without references; inside are the names of the schemas that it is a part of.
func (e *expansion) expand(s *spec.Schema, inside []string) *spec.Schema {
	unknown := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	if ref := reference(s); ref != "" {
		to := e.schemas[ref]
		if to == nil || slices.Contains(inside, ref) {
			return unknown
		}
		s, inside = to, append(slices.Clip(inside), ref)
	}
	if e.left--; e.left < 0 {
		return unknown
	}
	out := *s
	if s.Properties != nil {
		out.Properties = make(map[string]spec.Schema, len(s.Properties))
		for name := range s.Properties {
			property := s.Properties[name]
			out.Properties[name] = *e.expand(&property, inside)
		}
	}
	if a := s.AdditionalProperties; a != nil && a.Schema != nil {
		out.AdditionalProperties = &spec.SchemaOrBool{Allows: a.Allows, Schema: e.expand(a.Schema, inside)}
	}
	if s.Items != nil && s.Items.Schema != nil {
		out.Items = &spec.SchemaOrArray{Schema: e.expand(s.Items.Schema, inside)}
	}
	return &out
}

// reference returns the name of the schema that s stands for, or "". A reference with a description is in allOf.
func reference(s *spec.Schema) string {
	if name, ok := strings.CutPrefix(s.Ref.String(), refPrefix); ok {
		return name
	}
	if len(s.AllOf) == 1 {
		return strings.TrimPrefix(s.AllOf[0].Ref.String(), refPrefix)
	}
	return ""
}
