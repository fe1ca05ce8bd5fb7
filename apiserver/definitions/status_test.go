package definitions

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"
)

func TestNamesAreAccepted(t *testing.T) {
	want := names{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList", ShortNames: []string{"w", "wd"}, Categories: []string{"all"}}
	tests := map[string]struct {
		have, others names
		accepted     names
		reason       string
		message      string
	}{
		"free":       {accepted: want, reason: "NoConflicts", message: "no conflicts found"},
		"own":        {have: want, others: want, accepted: want, reason: "NoConflicts", message: "no conflicts found"},
		"plural":     {others: names{Singular: "widgets"}, accepted: names{Singular: "widget", Kind: "Widget", ListKind: "WidgetList", ShortNames: want.ShortNames, Categories: want.Categories}, reason: "PluralConflict", message: `"widgets" is already in use`},
		"kind":       {others: names{ListKind: "Widget"}, accepted: names{Plural: "widgets", Singular: "widget", ListKind: "WidgetList", ShortNames: want.ShortNames, Categories: want.Categories}, reason: "KindConflict", message: `"Widget" is already in use`},
		"short":      {others: names{ShortNames: []string{"wd"}}, accepted: names{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList", Categories: want.Categories}, reason: "ShortNamesConflict", message: `"wd" is already in use`},
		"two shorts": {others: names{ShortNames: []string{"wd", "w"}}, accepted: names{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList", Categories: want.Categories}, reason: "ShortNamesConflict", message: `["w" is already in use, "wd" is already in use]`},
		"stays":      {have: names{Singular: "gadget"}, others: names{Singular: "widget"}, accepted: names{Plural: "widgets", Singular: "gadget", Kind: "Widget", ListKind: "WidgetList", ShortNames: want.ShortNames, Categories: want.Categories}, reason: "SingularConflict", message: `"widget" is already in use`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			others := newTaken()
			others.add(&tt.others)
			accepted, c := accept(&want, &tt.have, others)
			if diff := cmp.Diff(tt.accepted, accepted); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			if c.Reason != tt.reason || c.Message != tt.message || (c.Status == apiextensionsv1.ConditionTrue) != (tt.reason == "NoConflicts") {
				t.Errorf("condition %+v", c)
			}
		})
	}
}

func TestConditionsOfDefinitions(t *testing.T) {
	d := &definition{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, testing"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "widgets.k8s.io", PreserveUnknownFields: true,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": {}},
			}}}},
		},
	}
	if c := approval(d); c == nil || c.Reason != "UnapprovedAnnotation" || c.Status != apiextensionsv1.ConditionFalse {
		t.Errorf("approval: %+v", c)
	}
	want := "[spec.preserveUnknownFields: Invalid value: true: must be false, spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields]"
	if c := structural(d); c == nil || c.Reason != "Violations" || c.Message != want {
		t.Errorf("structure: %+v", c)
	}
	d.Spec.PreserveUnknownFields, d.Spec.Group, d.Spec.Versions = false, "example.com", nil
	if a, s := approval(d), structural(d); a != nil || s != nil {
		t.Errorf("conditions %v, %v of a definition without faults", a, s)
	}
}
