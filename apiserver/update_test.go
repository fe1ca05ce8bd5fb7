package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/rbac"
)

// message is the message of a status.
func (a answer) message() string {
	var s metav1.Status
	if json.Unmarshal(a.body, &s) != nil || s.Kind != "Status" {
		return ""
	}
	return s.Message
}

func TestUpdateCreatesObjects(t *testing.T) {
	f := serve(t)
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
	lease := func(more string) string {
		return `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"` + more + `},"spec":{"holderIdentity":"a"}}`
	}
	if a := f.do("PUT", leases+"?dryRun=All", lease("")); a.code != 201 {
		t.Fatalf("dry run: %d %s", a.code, a.body)
	}
	if a := f.do("GET", leases, nil); a.code != 404 {
		t.Fatalf("after a dry run: %d %s", a.code, a.body)
	}
	if a := f.do("PUT", leases, lease(`,"uid":"u1"`)); a.code != 409 || !strings.Contains(a.message(), "Precondition failed: UID in precondition: u1, UID in object meta: ") {
		t.Errorf("with a UID: %d %s", a.code, a.body)
	}
	if a := f.do("PUT", strings.TrimSuffix(leases, "l")+"other", lease("")); a.code != 400 {
		t.Errorf("with another name: %d %s", a.code, a.body)
	}
	a := f.do("PUT", leases+"?fieldManager=me", lease(`,"resourceVersion":"7"`))
	if a.code != 201 || !strings.Contains(string(a.body), `"manager":"me"`) {
		t.Fatalf("%d %s", a.code, a.body)
	}
	if a := f.do("PUT", leases, lease("")); a.code != 422 || a.message() != `leases.coordination.k8s.io "l" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update` {
		t.Errorf("without a version: %d %s", a.code, a.body)
	}
	if a := f.do("PATCH", leases, `{"metadata":{"resourceVersion":null}}`, "Content-Type: application/merge-patch+json"); a.code != 422 {
		t.Errorf("a patch that takes the version out: %d %s", a.code, a.body)
	}
	if a := f.do("PATCH", leases, `{"spec":{"holderIdentity":"b"}}`, "Content-Type: application/merge-patch+json"); a.code != 200 {
		t.Errorf("a patch: %d %s", a.code, a.body)
	}
	if a := f.do("PUT", "/api/v1/namespaces/default/configmaps/c", `{"metadata":{"name":"c"}}`); a.code != 404 {
		t.Errorf("a kind that updates do not create: %d %s", a.code, a.body)
	}
}

// TestUpdatesAreUpstreams checks, for all kinds, which of them an update without a resource version replaces, and which an
// update creates, as the strategies of Kubernetes v1.37 say.
func TestUpdatesAreUpstreams(t *testing.T) {
	const (
		conditional = "apiservices clustertrustbundles csidrivers csinodes csistoragecapacities customresourcedefinitions devicetaintrules leases poddisruptionbudgets podcertificaterequests runtimeclasses storageversionmigrations volumeattachments " +
			"mutatingadmissionpolicies mutatingadmissionpolicybindings mutatingwebhookconfigurations " +
			"validatingadmissionpolicies validatingadmissionpolicybindings validatingwebhookconfigurations"
		created = "clusterrolebindings clusterroles endpoints events leases limitranges rolebindings roles runtimeclasses services"
	)
	has := func(list, name string) bool { return strings.Contains(" "+list+" ", " "+name+" ") }
	f := serve(t)
	for _, k := range apiservertest.Kinds(t).Kinds() {
		if k.Answered() {
			continue
		}
		if k.Conditional != has(conditional, k.Resource) || k.CreatedByUpdate != has(created, k.Resource) {
			t.Errorf("%v: conditional %v, created by update %v", k.GVR(), k.Conditional, k.CreatedByUpdate)
		}
		if k.CreatedByUpdate {
			continue
		}
		path := "/apis/" + k.Group + "/" + k.Version
		if k.Group == "" {
			path = "/api/" + k.Version
		}
		if k.Namespaced {
			path += "/namespaces/default"
		}
		body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"none"}}`, k.GroupVersion(), k.Kind)
		if a := f.do("PUT", path+"/"+k.Resource+"/none", body); a.code != 404 {
			t.Errorf("%v: an update of nothing: %d %s", k.GVR(), a.code, a.body)
		}
	}
}

// notCreate allows everything but creations.
type notCreate struct{}

func (notCreate) Authorize(_ context.Context, a rbac.Attributes) rbac.Decision {
	return rbac.Decision{Allowed: a.Verb != "create"}
}

func TestUpdateThatCreatesNeedsTheRight(t *testing.T) {
	f := serve(t, func(o *apiserver.Options) { o.Authorizer = notCreate{} })
	const want = `leases.coordination.k8s.io "l" is forbidden: User "boss" cannot create resource "leases" in API group "coordination.k8s.io" in the namespace "default"`
	a := f.do("PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/l", `{"metadata":{"name":"l"},"spec":{}}`)
	if a.code != 403 || a.message() != want {
		t.Errorf("%d %s", a.code, a.body)
	}
}
