package policies_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/admission/policies"
	"github.com/sampan-io/sampan/apiserver/auth"
)

// BenchmarkPolicies measures what a Deployment pays for policies: without any, and for one whose expression holds.
func BenchmarkPolicies(b *testing.B) {
	for _, test := range []struct{ name, policy string }{
		{"none", ""},
		{"another resource", policy("p", `validations: [{expression: "object.spec.replicas <= 5"}]`)},
		{"one expression", policy("p", `validations: [{expression: "object.spec.replicas <= 5"}]`)},
		{"all containers", policy("p", `validations: [{expression: "object.spec.template.spec.containers.all(c, c.image.startsWith('registry/'))"}]`)},
		{"message and variables", policy("p", `variables: [{name: count, expression: "object.spec.replicas"}], validations: [{expression: "variables.count <= 5", messageExpression: "'at most 5, not ' + string(variables.count)"}]`)},
	} {
		b.Run(test.name, func(b *testing.B) {
			f := serve(b)
			if test.policy != "" {
				f.apply(test.policy)
				f.apply(bindingOf("p", "p", deny))
			}
			validating := policies.NewValidating(policies.Options{Set: f.set, Catalog: f.kinds, Objects: f.Reader(), Authorizer: f.z})
			text := `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: default}, spec: {replicas: 5, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: registry/i}]}}}}`
			if test.name == "another resource" {
				text = `{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: default}}`
			}
			kind, obj := f.decode(text)
			if d, ok := obj.(*appsv1.Deployment); ok && *d.Spec.Replicas != 5 {
				b.Fatal("the object was not read")
			}
			user := &auth.User{Name: "alice", Groups: []string{"developers"}}
			b.ReportAllocs()
			for b.Loop() {
				a := admission.Attributes{Operation: admission.Create, Kind: kind, Namespace: "default", Name: obj.GetName(), User: user, Object: obj}
				if err := validating.Validate(b.Context(), &a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
