package apiextensions_test

import (
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/sampan-io/sampan/catalog/apiextensions"
)

// nested returns a schema in which depth objects are nested; each of them is changed by change.
func nested(depth int, change func(s *apiextensionsv1.JSONSchemaProps)) apiextensionsv1.JSONSchemaProps {
	s := apiextensionsv1.JSONSchemaProps{Type: "object"}
	if depth > 0 {
		s.Properties = map[string]apiextensionsv1.JSONSchemaProps{"a": nested(depth-1, change)}
	}
	change(&s)
	return s
}

func rules(n int) (all apiextensionsv1.ValidationRules) {
	for i := range n {
		all = append(all, apiextensionsv1.ValidationRule{Rule: fmt.Sprintf("%d < %d", i, i+1)})
	}
	return all
}

func TestHostileSchemasAreRefused(t *testing.T) {
	nothing := func(*apiextensionsv1.JSONSchemaProps) {}
	object := &apiextensionsv1.JSON{Raw: []byte("{}")}
	for name, c := range map[string]struct {
		schema apiextensionsv1.JSONSchemaProps
		want   string
	}{
		"deep":        {nested(81, nothing), "schemas must be nested at most 80 deep"},
		"deeper":      {nested(9_000, nothing), "schemas must be nested at most 80 deep"},
		"many rules":  {nested(1, func(s *apiextensionsv1.JSONSchemaProps) { s.XValidations = rules(2_501) }), "checking it compiles 5002, at most 5000 are accepted"},
		"rules below": {nested(79, func(s *apiextensionsv1.JSONSchemaProps) { s.Default, s.XValidations = object, rules(2) }), "must have fewer CEL rules, or fewer defaults around them"},
		"long rule":   {prop(apiextensionsv1.JSONSchemaProps{Type: "string", XValidations: apiextensionsv1.ValidationRules{{Rule: "self == '" + strings.Repeat("a", 200_000) + "'"}}}), "expression code point size exceeds limit"},
		"deep rule":   {prop(apiextensionsv1.JSONSchemaProps{Type: "string", XValidations: apiextensionsv1.ValidationRules{{Rule: strings.Repeat("(", 20_000) + "true" + strings.Repeat(")", 20_000)}}}), "recursion limit exceeded"},
		"pattern":     {prop(apiextensionsv1.JSONSchemaProps{Type: "string", Pattern: strings.Repeat("a{1000}", 200)}), "it compiles to more than 100000 instructions"},
		"number":      {prop(apiextensionsv1.JSONSchemaProps{Type: "number", Default: &apiextensionsv1.JSON{Raw: []byte("1e400")}}), "1e400"},
		"not JSON":    {prop(apiextensionsv1.JSONSchemaProps{Type: "number", Enum: []apiextensionsv1.JSON{{Raw: []byte("{")}}}), "unexpected end of JSON input"},
		"costly rule": {prop(apiextensionsv1.JSONSchemaProps{Type: "string", XValidations: apiextensionsv1.ValidationRules{{Rule: strings.Repeat("[1,2,3,4,5,6,7,8,9].all(x, ", 9) + "true" + strings.Repeat(")", 9)}}}), "estimated rule cost exceeds budget by factor of"},
	} {
		d := &apiextensionsv1.CustomResourceDefinition{}
		d.Name = "boats.example.com"
		d.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.ClusterScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "boats", Kind: "Boat"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &c.schema}}},
		}
		k := apiextensions.Kinds()[0]
		k.Default(d)
		k.Prepare(d, nil)
		errs := k.Validate(t.Context(), d, nil)
		if len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), c.want) {
			t.Errorf("%s: %.500v, want %q", name, errs, c.want)
		}
		k.Validate(t.Context(), d, d)
		k.Warn(d, nil)
	}
}

// prop returns a schema of an object whose property spec has another.
func prop(s apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": s}}
}
