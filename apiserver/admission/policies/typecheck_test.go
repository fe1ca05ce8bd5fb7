package policies_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/apiserver/admission/policies"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/openapi"
	"github.com/sampan-io/sampan/internal/run"
)

// published returns the schemas of the program's documents.
func published(t *testing.T) policies.Schemas {
	handler := openapi.New(apiservertest.Kinds(t), "v1.37.0")
	return func(kind schema.GroupVersionKind) *spec.Schema {
		path := "/openapi/v3/apis/" + kind.GroupVersion().String()
		if kind.Group == "" {
			path = "/openapi/v3/api/" + kind.Version
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		var doc struct {
			Components struct{ Schemas map[string]*spec.Schema }
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &doc); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return policies.Expand(doc.Components.Schemas, kind)
	}
}

func TestTypeChecking(t *testing.T) {
	var p admissionregistrationv1.ValidatingAdmissionPolicy
	err := yaml.UnmarshalStrict([]byte(`
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments, deployments/scale, statefulsets]}
    - {apiGroups: [apps], apiVersions: ["*"], operations: [CREATE], resources: [daemonsets]}
  variables:
  - {name: replicas, expression: object.spec.replicas}
  validations:
  - expression: object.spec.replicas <= int(params.data.max) && variables.replicas > 0 && has(object.metadata.labels.app)
  - expression: object.spec.replica <= 3
    messageExpression: "'no ' + string(object.spec.nothing)"
  - expression: object.spec.strategy.type == 'Recreate'
  - expression: object.metadata.name > 3
  - expression: params.dat == null && authorizer.requestResource.check('get').allowed() && request.operation == 'CREATE'
`), &p)
	if err != nil {
		t.Fatal(err)
	}
	got := policies.Warnings(&p, apiservertest.Kinds(t), published(t))
	for i, want := range []struct {
		ref   string
		texts []string
	}{
		{"spec.validations[1].expression", []string{"apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'replica'", "apps/v1, Kind=StatefulSet: ERROR"}},
		{"spec.validations[1].messageExpression", []string{"undefined field 'nothing'"}},
		{"spec.validations[2].expression", []string{"apps/v1, Kind=StatefulSet: ERROR: <input>:1:12: undefined field 'strategy'"}},
		{"spec.validations[3].expression", []string{"found no matching overload for '_>_' applied to '(string, int)'"}},
		{"spec.validations[4].expression", []string{"undefined field 'dat'"}},
	} {
		if i >= len(got) || got[i].FieldRef != want.ref {
			t.Fatalf("warning %d: got %+v, want %s", i, got, want.ref)
		}
		for _, text := range want.texts {
			if !strings.Contains(got[i].Warning, text) {
				t.Errorf("%s: got %s, want %s", want.ref, got[i].Warning, text)
			}
		}
	}
	if len(got) != 5 || strings.Contains(got[2].Warning, "Deployment") {
		t.Errorf("got %+v", got)
	}
}

// TestTypeCheckingIsWritten has the server check a policy, and waits for the status.
func TestTypeCheckingIsWritten(t *testing.T) {
	f := serve(t)
	f.apply(policy("before", `validations: [{expression: "true"}]`))
	g := run.NewGroup(t.Context(), 0)
	defer g.Stop()
	g.Go(func(ctx context.Context) { _ = f.CheckAdmissionPolicies(ctx) })
	f.apply(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: p}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}, validations: [{expression: "object.spec.replica > 1"}]}}`)
	gvr := admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")
	done := map[string]bool{}
	for event, err := range f.admin.Watch(t.Context(), gvr, "", metav1.ListOptions{ResourceVersion: "0"}) {
		if err != nil {
			t.Fatal(err)
		}
		checked, ok := event.Object.(*admissionregistrationv1.ValidatingAdmissionPolicy)
		if !ok || checked.Status.ObservedGeneration != 1 || checked.Status.TypeChecking == nil {
			continue
		}
		if n := len(checked.Status.TypeChecking.ExpressionWarnings); (n == 1) != (checked.Name == "p") {
			t.Errorf("%s has %d warnings", checked.Name, n)
		}
		if done[checked.Name] = true; len(done) == 2 {
			return
		}
	}
}
