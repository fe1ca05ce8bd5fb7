package operation

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
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
	request := func(path string, u *auth.User) *Target {
		resource, sub, _ := strings.Cut(path, "/")
		gvr := schema.GroupVersionResource{Version: "v1", Resource: resource}
		if resource == "leases" {
			gvr.Group = "coordination.k8s.io"
		}
		out := &Target{User: u, Kind: c.Snapshot().Resource(gvr)}
		for i := range out.Kind.Subresources {
			if out.Kind.Subresources[i].Name == sub {
				out.Sub = &out.Kind.Subresources[i]
			}
		}
		return out
	}
	for _, tt := range []struct {
		name, user, groups string
		may                string
	}{
		{"administrator", "admin", auth.GroupMasters, ""},
		{"node", "system:node:n", auth.GroupNodes, "leases nodes/status pods/status"},
		{"API server", "system:apiserver", auth.GroupMasters, "leases nodes/status pods/status pods namespaces"},
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

func TestAccountsOfWrites(t *testing.T) {
	c, err := catalog.New(kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	made := func(resource string, group string) *catalog.Kind {
		return c.Snapshot().Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource})
	}
	address := &networkingv1.IPAddress{Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Namespace: "eve"}}}
	volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "eve"}}}
	for _, tt := range []struct {
		what, user string
		t          Target
		obj        catalog.Object
		want       string
	}{
		{"object of a namespace", "eve", Target{Kind: made("pods", ""), Namespace: "eve", Name: "p"}, &corev1.Pod{}, "namespace eve"},
		{"address of a Service", "system:apiserver", Target{Kind: made("ipaddresses", "networking.k8s.io"), Name: "10.0.0.1"}, address, "namespace eve"},
		{"volume of a claim", "system:kube-controller-manager", Target{Kind: made("persistentvolumes", ""), Name: "v"}, volume, "namespace eve"},
		{"slice of a node", "system:node:n", Target{Kind: made("resourceslices", "resource.k8s.io"), Name: "s"}, nil, "user system:node:n"},
		{"object of the cluster", "ann", Target{Kind: made("persistentvolumes", ""), Name: "v"}, &corev1.PersistentVolume{}, "user ann"},
		{"node, by a controller", "system:kube-controller-manager", Target{Kind: made("nodes", ""), Name: "n"}, &corev1.Node{}, "nodes/n"},
	} {
		tt.t.User = &auth.User{Name: tt.user}
		if got := accountOf(&tt.t, tt.obj); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
}
