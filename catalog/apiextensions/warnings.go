package apiextensions

import (
	"fmt"
	"slices"

	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/cel/environment"
	openapispec "k8s.io/kube-openapi/pkg/validation/spec"
)

// warn returns what d has without effect and old, unless it is nil, had not.
func warn(d, old *definition) []string {
	formats, items := warnings(d)
	if old != nil {
		hadFormats, hadItems := warnings(old)
		formats = slices.DeleteFunc(formats, sets.New(hadFormats...).Has)
		items = slices.DeleteFunc(items, sets.New(hadItems...).Has)
	}
	return append(formats, items...)
}

func warnings(d *definition) (formats, items []string) {
	in, err := internalOf(d)
	if err != nil {
		return nil, nil
	}
	seen := sets.New[string]()
	anySchema(&in.Spec, func(s *schema) bool {
		if s.Format != "" {
			typed := &openapispec.Schema{SchemaProps: openapispec.SchemaProps{Format: s.Format, Type: []string{s.Type}}}
			for _, format := range apiservervalidation.GetUnrecognizedFormats(typed, environment.DefaultCompatibilityVersion()) {
				formats = append(formats, fmt.Sprintf("unrecognized format %q", format))
			}
		}
		if s.XListType != nil && *s.XListType == "set" && s.Items != nil && s.Items.Schema != nil {
			if t := s.Items.Schema.Type; t == "object" || t == "array" {
				seen.Insert(fmt.Sprintf("x-kubernetes-list-type: set for items of type %q is not supported by server-side apply or CEL validation rules", t))
			}
		}
		return false
	})
	return formats, sets.List(seen)
}
