package apiserver

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/kinds"
	"github.com/sampan-io/sampan/store"
)

func TestReserveOfWrites(t *testing.T) {
	c, err := catalog.New(kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	request := func(path string, u *auth.User) *target {
		resource, sub, _ := strings.Cut(path, "/")
		gvr := schema.GroupVersionResource{Version: "v1", Resource: resource}
		if resource == "leases" {
			gvr.Group = "coordination.k8s.io"
		}
		out := &target{user: u, kind: c.Snapshot().Resource(gvr)}
		for i := range out.kind.Subresources {
			if out.kind.Subresources[i].Name == sub {
				out.sub = &out.kind.Subresources[i]
			}
		}
		return out
	}
	for _, tt := range []struct {
		name, user, groups string
		may                string
	}{
		{"administrator", "admin", auth.GroupMasters, ""},
		{"node", "system:node:n", auth.GroupNodes, "leases nodes/status pods/status pods namespaces"},
		{"controller", auth.ServiceAccountUser("kube-system", "namespace-controller"), auth.GroupServiceAccounts, "leases nodes/status pods/status pods namespaces"},
		{"scheduler", "system:kube-scheduler", "", "leases nodes/status pods/status pods namespaces"},
		{"user", "eve", "edit", ""},
		{"account of a user", auth.ServiceAccountUser("default", "kube-system"), auth.GroupServiceAccounts, ""},
		{"a user with the name of a node", "system:node:n", "", ""},
	} {
		var may []string
		for _, resource := range []string{"leases", "nodes/status", "pods/status", "pods", "namespaces"} {
			if reserveOf(request(resource, &auth.User{Name: tt.user, Groups: []string{tt.groups}}), true) >= store.ForRecovery {
				may = append(may, resource)
			}
		}
		if got := strings.Join(may, " "); got != tt.may {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.may)
		}
	}
	for _, tt := range []struct {
		user   string
		update bool
		want   store.Reserve
	}{
		{auth.ServiceAccountUser("kube-system", "endpointslice-controller"), true, store.ForRecovery},
		{auth.ServiceAccountUser("kube-system", "replicaset-controller"), false, store.NoReserve},
		{"eve", true, store.NoReserve},
		{"eve", false, store.NoReserve},
	} {
		if got := reserveOf(request("pods", &auth.User{Name: tt.user}), tt.update); got != tt.want {
			t.Errorf("%s, update %v: %d, want %d", tt.user, tt.update, got, tt.want)
		}
	}
}
