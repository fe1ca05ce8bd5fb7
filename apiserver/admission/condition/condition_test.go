package condition_test

import (
	"context"
	"testing"

	"github.com/google/cel-go/cel"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/admission/condition"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/kinds"
	"github.com/sampan-io/sampan/internal/admissioncel"
)

// onlyNodes allows alice to list nodes, and all users to read the path /version.
type onlyNodes struct{}

func (onlyNodes) Authorize(_ context.Context, a rbac.Attributes) rbac.Decision {
	return rbac.Decision{
		Allowed: a.Path == "/version" || a.User.Name == "alice" && a.Resource == "nodes" && a.Verb == "list" && a.Fields.String() == "spec.x=1",
		Reason:  "because",
	}
}

func holds(t *testing.T, v admissioncel.Values, text string) {
	t.Helper()
	c := admissioncel.NewCompiler(admissioncel.Stored)
	p := c.Compile(text, admissioncel.Declarations{Authorizer: true}, cel.BoolType)
	if p.Err != nil {
		t.Fatalf("%s: %v", text, p.Err)
	}
	if r, err := admissioncel.NewEvaluation(t.Context(), v, c.Variables(), admissioncel.Budget).Run(&p); err != nil || r.Err != nil || r.Value.Value() != true {
		t.Errorf("%s: got %v, %v, %v", text, r.Value, r.Err, err)
	}
}

func TestRequestShowsAttributes(t *testing.T) {
	c, err := catalog.New(kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	hub := c.Resource(corev1.SchemeGroupVersion.WithResource("events"))
	other := hub.Served()[1]
	pods := c.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	a := &admission.Attributes{
		Operation: admission.Create, Kind: hub, Served: other, Namespace: "default", Name: "e",
		User:    &auth.User{Name: "alice", Groups: []string{"dev"}, Extra: map[string][]string{"k": {"v"}}},
		Options: &metav1.CreateOptions{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "CreateOptions"}, FieldManager: "kubectl"},
		Object: &corev1.Event{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}, ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default"},
			Message: "hello", Reason: "Tested",
		},
	}
	r := condition.NewRequest(a, onlyNodes{})
	v, err := r.In(hub)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, v, `object.message == "hello" && oldObject == null && request.kind.group == "" && request.requestKind.group == "events.k8s.io"`)
	holds(t, v, `request.options.fieldManager == "kubectl" && request.options.kind == "CreateOptions" && request.userInfo.extra["k"] == ["v"]`)
	holds(t, v, `authorizer.group("").resource("nodes").fieldSelector("spec.x=1").check("list").allowed()`)
	holds(t, v, `!authorizer.group("").resource("nodes").check("get").allowed() && authorizer.path("/version").check("get").allowed()`)
	holds(t, v, `!authorizer.serviceAccount("default", "x").group("").resource("nodes").check("list").allowed()`)
	if v, err = r.In(other); err != nil {
		t.Fatal(err)
	}
	holds(t, v, `object.note == "hello" && object.apiVersion == "events.k8s.io/v1" && request.resource.group == "events.k8s.io"`)
	a.Object.(*corev1.Event).Message = "changed"
	r.Changed()
	if v, err = r.In(hub); err != nil {
		t.Fatal(err)
	}
	holds(t, v, `object.message == "changed"`)

	deployments := c.Resource(appsv1.SchemeGroupVersion.WithResource("deployments"))
	v, err = condition.NewRequest(&admission.Attributes{Operation: admission.Update, Kind: deployments, Subresource: "scale", Namespace: "default", Name: "d"}, onlyNodes{}).In(deployments)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, v, `request.kind.kind == "Scale" && request.kind.group == "autoscaling" && request.resource.resource == "deployments" && request.subResource == "scale"`)

	v, err = condition.NewRequest(&admission.Attributes{
		Operation: admission.Connect, Kind: pods, Subresource: "exec", Namespace: "default", Name: "p",
		Connection: &corev1.PodExecOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodExecOptions"}, Command: []string{"sh"}},
	}, onlyNodes{}).In(pods)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, v, `object.command == ["sh"] && request.operation == "CONNECT" && request.kind.kind == "PodExecOptions"`)
}
