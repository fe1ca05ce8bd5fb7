package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/version"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/discovery"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/apiserver/openapi"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
	"github.com/sampan-io/sampan/internal/run"
)

// The parts that the program is made of fit.
var (
	_ httpserver.Authenticator = (*auth.Authenticator)(nil)
	_ operation.Authorizer     = (*rbac.Authorizer)(nil)
	_ rbac.Lookup              = admission.Reader(nil)
	_ auth.Lookup              = admission.Reader(nil)
)

// byName believes the header X-User as byHeader does, and adds the groups of a user of that name.
type byName struct{}

func (byName) Authenticate(r *http.Request) (*auth.User, error) {
	name := r.Header.Get("X-User")
	switch {
	case name == "":
		return nil, nil // no credential
	case name == "boss":
		return &auth.User{Name: name, Groups: []string{auth.GroupMasters, auth.GroupAuthenticated}}, nil
	case strings.HasPrefix(name, "system:node:"):
		return &auth.User{Name: name, Groups: []string{auth.GroupNodes, auth.GroupAuthenticated}}, nil
	}
	return &auth.User{Name: name, Groups: []string{auth.GroupAuthenticated}}, nil
}

// serveFull starts a server with the real admission, authorization and documents.
func serveFull(t *testing.T) *fixture {
	return serve(t, func(o *apiserver.Options) {
		objects := operation.NewReader(o.Catalog, o.Store)
		addresses, err := admission.NewServiceAddresses(admission.AddressesOptions{
			Reader: objects, Networks: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/24")},
		})
		if err != nil {
			t.Fatal(err)
		}
		security, err := admission.NewPodSecurity(objects)
		if err != nil {
			t.Fatal(err)
		}
		o.Auth = byName{}
		o.Authorizer = rbac.New(rbac.Options{Policy: rbac.NewPolicy(bootstrappolicy.All()), Objects: objects})
		o.Admission = []admission.Plugin{
			admission.NewNamespaceLifecycle(objects), admission.NewServiceAccount(objects),
			admission.NewPriority(objects),
			admission.DefaultTolerationSeconds{},
			admission.NewRuntimeClass(objects),
			admission.NewDefaultIngressClass(objects), admission.NewPodTopologyLabels(objects),
			admission.CertificateRequester{},
			admission.NewNodeRestriction(objects, nil), addresses, security,
		}
		o.Discovery = discovery.New(o.Catalog, version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.0"})
		o.OpenAPI = openapi.New(o.Catalog, "v1.37.0")
	})
}

func TestFullServer(t *testing.T) {
	f := serveFull(t)
	f.refused(f.do("POST", pods, pod("a")), 404, metav1.StatusReasonNotFound, `namespaces "default" not found`)
	f.create("/api/v1/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	f.refused(f.do("POST", pods, pod("a")), 403, metav1.StatusReasonForbidden, "service account")
	f.create("/api/v1/namespaces/default/serviceaccounts", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	p := into[corev1.Pod](f, f.do("POST", pods, pod("a")), 201)
	if p.Spec.ServiceAccountName != "default" || len(p.Spec.Volumes) != 1 || len(p.Spec.Containers[0].VolumeMounts) != 1 || len(p.Spec.Tolerations) != 2 {
		t.Errorf("the pod was not completed: %+v", p.Spec)
	}

	svc := into[corev1.Service](f, f.do("POST", "/api/v1/namespaces/default/services", service("web")), 201)
	if !strings.HasPrefix(svc.Spec.ClusterIP, "10.96.0.") {
		t.Errorf("service address %q", svc.Spec.ClusterIP)
	}

	const node = "X-User: system:node:n1"
	f.refused(f.do("GET", pods+"/a", nil, node), 403, metav1.StatusReasonForbidden, `User "system:node:n1" cannot get resource "pods"`)
	f.refused(f.do("GET", "/api/v1/pods", nil, node), 403, metav1.StatusReasonForbidden, "")
	f.do("POST", pods+"/a/binding", &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}})
	for _, path := range []string{pods + "/a", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1"} {
		if a := f.do("GET", path, nil, node); a.code != 200 {
			t.Errorf("the node reads %s: %d %s", path, a.code, a.body)
		}
	}
	f.refused(f.do("DELETE", "/api/v1/namespaces/default", nil), 403, metav1.StatusReasonForbidden, "")

	for _, tt := range []struct {
		path, user string
		code       int
	}{
		{"/version", "mate", 200},
		{"/api", "mate", 200},
		{"/apis/batch/v1", "mate", 200},
		{"/openapi/v3", "mate", 200},
		{"/livez", "", 200},
		{"/metrics", "mate", 403},
		{"/metrics", "boss", 200},
		{pods, "", 403},
		{pods, "mate", 403},
	} {
		if a := f.do("GET", tt.path, nil, "X-User: "+tt.user); a.code != tt.code {
			t.Errorf("%s by %q: %d, want %d: %s", tt.path, tt.user, a.code, tt.code, a.body)
		}
	}
}

func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}},
	}
}

func TestNoServiceAddressIsGivenTwice(t *testing.T) {
	f := serveFull(t)
	f.create("/api/v1/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	var mu sync.Mutex
	owner := map[string]string{}
	g := run.NewGroup(t.Context(), 0)
	boss := f.server.As(auth.User{Name: "boss", Groups: []string{auth.GroupMasters}})
	gvr := corev1.SchemeGroupVersion.WithResource("services")
	for w := range 8 {
		g.Go(func(ctx context.Context) {
			for n := range 20 {
				name := fmt.Sprintf("s-%d-%d", w, n)
				obj, err := boss.Create(ctx, gvr, "default", "", service(name), metav1.CreateOptions{}, "")
				if err != nil {
					t.Error(err)
					return
				}
				ip := obj.(*corev1.Service).Spec.ClusterIP
				mu.Lock()
				if owner[ip] != "" || ip == "" {
					t.Errorf("%s has the address %q of %s", name, ip, owner[ip])
				}
				owner[ip] = name
				mu.Unlock()
			}
		})
	}
	g.Wait()
}
