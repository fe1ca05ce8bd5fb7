package admission_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// served is a real API server with authentication, authorization and admission.
type served struct {
	*testing.T
	server *apiserver.Server
	admin  *apiserver.Local
}

func serve(t *testing.T) *served {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var addresses *admission.ServiceAddresses
	s := apiservertest.Open(t, func(o *apiserver.Options) {
		objects := operation.NewReader(o.Catalog, o.Store)
		var err error
		addresses, err = admission.NewServiceAddresses(admission.AddressesOptions{Reader: objects, Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}})
		must(err)
		security, err := admission.NewPodSecurity(objects)
		must(err)
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(err)
		tokens, err := auth.NewTokens(auth.TokensOptions{Key: key, Objects: objects})
		must(err)
		o.Auth = auth.New(auth.Options{Tokens: tokens})
		o.Admission = []admission.Plugin{
			admission.NewNamespaceLifecycle(objects), admission.NewLimitRanger(objects), admission.NewServiceAccount(objects),
			admission.NewPriority(objects),
			admission.DefaultTolerationSeconds{},
			admission.NewStorage(objects),
			admission.NewRuntimeClass(objects),
			admission.NewDefaultIngressClass(objects), admission.NewPodTopologyLabels(objects),
			admission.CertificateRequester{},
			admission.NewNodeRestriction(objects, nil), addresses, security,
			admission.NewDeviceAdminAccess(objects),
			admission.NewResourceQuota(objects),
		}
		stream := func(w http.ResponseWriter, _ *http.Request, _ httpserver.ConnectRequest) {
			w.WriteHeader(http.StatusNoContent)
		}
		o.Connect = map[catalog.Handler]httpserver.ConnectHandler{catalog.PodLog: stream, catalog.PodExec: stream, catalog.PodAttach: stream, catalog.PodPortForward: stream, catalog.NodeProxy: stream, catalog.PodProxy: stream, catalog.ServiceProxy: stream}
		o.Issue[catalog.ServiceAccountToken] = func(ctx context.Context, parent catalog.Object, body runtime.Object) (runtime.Object, error) {
			return tokens.Request(ctx, parent.GetNamespace(), parent.GetName(), body.(*authenticationv1.TokenRequest))
		}
	})
	f := &served{t, s, s.As(auth.User{Name: "admin", Groups: []string{auth.GroupMasters}})}
	addresses.WriteWith(f.admin)
	f.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ship"}})
	f.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: "default"}})
	return f
}

func resourceOf(o runtime.Object) schema.GroupVersionResource {
	switch o.(type) {
	case *corev1.Namespace:
		return corev1.SchemeGroupVersion.WithResource("namespaces")
	case *corev1.ServiceAccount, *authenticationv1.TokenRequest:
		return corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	case *corev1.ResourceQuota:
		return quotas()
	case *corev1.Service:
		return corev1.SchemeGroupVersion.WithResource("services")
	case *corev1.Secret:
		return corev1.SchemeGroupVersion.WithResource("secrets")
	case *corev1.PersistentVolumeClaim:
		return corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	case *storagev1.StorageClass:
		return storagev1.SchemeGroupVersion.WithResource("storageclasses")
	case *storagev1.VolumeAttributesClass:
		return storagev1.SchemeGroupVersion.WithResource("volumeattributesclasses")
	}
	return corev1.SchemeGroupVersion.WithResource("pods")
}

func (s *served) create(o catalog.Object) runtime.Object {
	s.Helper()
	made, err := s.admin.Create(s.Context(), resourceOf(o), o.GetNamespace(), "", o, metav1.CreateOptions{}, "")
	if err != nil {
		s.Fatalf("creating %T %s: %v", o, o.GetName(), err)
	}
	return made
}

// TestServicesThroughTheServer changes the type of a service round the whole
// circle, with defaults and validation of the real kind before and after us.
func TestServicesThroughTheServer(t *testing.T) {
	s := serve(t)
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: "web"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
	}}
	made := s.create(svc).(*corev1.Service)
	address := made.Spec.ClusterIP
	if !strings.HasPrefix(address, "10.0.0.") || made.Spec.ClusterIPs[0] != address || *made.Spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack {
		t.Fatalf("made %+v", made.Spec)
	}
	patch := func(text string) *corev1.Service {
		t.Helper()
		o, err := s.admin.Patch(t.Context(), resourceOf(svc), "ship", "web", types.MergePatchType, []byte(text), metav1.PatchOptions{}, "")
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return o.(*corev1.Service)
	}
	ported := patch(`{"spec":{"type":"NodePort"}}`)
	port := ported.Spec.Ports[0].NodePort
	if port < 30000 || ported.Spec.ClusterIP != address {
		t.Errorf("as NodePort: %+v", ported.Spec)
	}
	// The file that it was made from, with the type, changes nothing.
	again := svc.DeepCopy()
	again.Spec.Type = corev1.ServiceTypeNodePort
	o, err := s.admin.Update(t.Context(), resourceOf(svc), "ship", "web", again, metav1.UpdateOptions{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if u := o.(*corev1.Service); u.Spec.ClusterIP != address || u.Spec.Ports[0].NodePort != port {
		t.Errorf("after an update: %+v", u.Spec)
	}
	if lb := patch(`{"spec":{"type":"LoadBalancer","externalTrafficPolicy":"Local"}}`); lb.Spec.HealthCheckNodePort < 30000 || lb.Spec.Ports[0].NodePort != port {
		t.Errorf("as LoadBalancer: %+v", lb.Spec)
	}
	if ip := patch(`{"spec":{"type":"ClusterIP"}}`); ip.Spec.Ports[0].NodePort != 0 || ip.Spec.HealthCheckNodePort != 0 || ip.Spec.ClusterIP != address {
		t.Errorf("as ClusterIP again: %+v", ip.Spec)
	}
	if name := patch(`{"spec":{"type":"ExternalName","externalName":"example.com"}}`); name.Spec.ClusterIP != "" || len(name.Spec.ClusterIPs) > 0 || len(name.Spec.IPFamilies) > 0 {
		t.Errorf("as ExternalName: %+v", name.Spec)
	}
	if ip := patch(`{"spec":{"type":"ClusterIP","externalName":null}}`); ip.Spec.ClusterIP == "" {
		t.Errorf("back again: %+v", ip.Spec)
	}
	// Who takes the address away as well need not name what goes with it.
	if name := patch(`{"spec":{"type":"ExternalName","externalName":"example.com","clusterIP":"","clusterIPs":null}}`); name.Spec.ClusterIP != "" || len(name.Spec.IPFamilies) > 0 || name.Spec.IPFamilyPolicy != nil {
		t.Errorf("as ExternalName, without its address: %+v", name.Spec)
	}
	if ip := patch(`{"spec":{"type":"ClusterIP","externalName":null}}`); ip.Spec.ClusterIP == "" {
		t.Errorf("back again: %+v", ip.Spec)
	}

	for name, want := range map[string]string{
		"ip=10.0.0.999": "spec.clusterIPs",
		"ip=10.9.0.1":   "does not match the current range",
		"type=Odd":      "spec.type",
		"families=IPv9": "spec.ipFamilies",
	} {
		bad := service("bad", name+" ports=80/TCP")
		bad.UID = ""
		_, err := s.admin.Create(t.Context(), resourceOf(bad), "ship", "", bad, metav1.CreateOptions{}, "")
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: err = %v, want Invalid with %q", name, err, want)
		}
	}
	// A refused request leaves no allocation behind: the address is still free. (It is in the range
	// from which addresses are never chosen at random.)
	taken := service("taken", "ip=10.0.0.9 type=NodePort ports=80/TCP:30500,81/TCP:1")
	taken.UID = ""
	if _, err := s.admin.Create(t.Context(), resourceOf(taken), "ship", "", taken, metav1.CreateOptions{}, ""); !apierrors.IsInvalid(err) {
		t.Fatal(err)
	}
	free := service("free", "ip=10.0.0.9 type=NodePort ports=80/TCP:30500")
	free.UID, free.Spec.Selector = "", map[string]string{"a": "b"}
	s.create(free)
	if _, err := s.admin.Create(t.Context(), resourceOf(taken), "ship", "", free, metav1.CreateOptions{}, ""); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a name that exists: %v", err)
	}
}

// TestAPodsTokenThroughTheServer follows a token from the node that gets it for a pod
// to the request that the pod sends with it, and to its end.
func TestAPodsTokenThroughTheServer(t *testing.T) {
	s := serve(t)
	made := s.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: "galley"}, Spec: corev1.PodSpec{
		NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "demo"}},
	}}).(*corev1.Pod)
	if made.Spec.ServiceAccountName != "default" || len(made.Spec.Volumes) != 1 || *made.Spec.Priority != 0 || len(made.Spec.Tolerations) != 2 {
		t.Fatalf("made %+v", made.Spec)
	}
	request := func(as *apiserver.Local) (*authenticationv1.TokenRequest, error) {
		tr := &authenticationv1.TokenRequest{}
		tr.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "galley", UID: made.UID}
		o, err := as.Create(t.Context(), resourceOf(tr), "ship", "default", tr, metav1.CreateOptions{}, "token")
		if err != nil {
			return nil, err
		}
		return o.(*authenticationv1.TokenRequest), nil
	}
	node := func(name string) *apiserver.Local {
		return s.server.As(auth.User{Name: "system:node:" + name, Groups: []string{auth.GroupNodes, auth.GroupAuthenticated}})
	}
	if _, err := request(node("n2")); !apierrors.IsForbidden(err) {
		t.Errorf("another node: err = %v, want Forbidden", err)
	}
	granted, err := request(node("n1"))
	if err != nil {
		t.Fatal(err)
	}

	h := httptest.NewServer(s.server.Handler())
	defer h.Close()
	get := func(path, token string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := h.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	token := granted.Status.Token
	for _, tt := range []struct {
		path, token string
		want        int
	}{
		{"/livez", "", http.StatusOK},
		{"/livez", token, http.StatusOK},
		{"/livez", token + "x", http.StatusUnauthorized}, // a bad credential is refused even where none is needed
		{"/api/v1/namespaces/ship/pods", token, http.StatusForbidden},
		{"/api/v1/namespaces/ship/pods", "", http.StatusForbidden},
	} {
		if got := get(tt.path, tt.token); got != tt.want && (tt.token != "" || got != http.StatusForbidden) {
			t.Errorf("GET %s: %d, want %d", tt.path, got, tt.want)
		}
	}
	zero := int64(0)
	if err := s.admin.Delete(t.Context(), resourceOf(made), "ship", "galley", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	if got := get("/livez", token); got != http.StatusUnauthorized {
		t.Errorf("the token of a pod that has gone: %d", got)
	}
}

// TestANodeSeesWhatIsItsOwn goes through both halves of the rules for nodes: what is
// asked for, and what is written.
func TestANodeSeesWhatIsItsOwn(t *testing.T) {
	s := serve(t)
	pod := func(name, node, secret string) *corev1.Pod {
		return s.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: name}, Spec: corev1.PodSpec{
			NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "demo"}},
			Volumes: []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}},
		}}).(*corev1.Pod)
	}
	pod("mine", "n1", "ours")
	pod("theirs", "n2", "others")
	for _, name := range []string{"ours", "others"} {
		s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: name}})
	}
	n1 := s.server.As(auth.User{Name: "system:node:n1", Groups: []string{auth.GroupNodes, auth.GroupAuthenticated}})
	pods, secrets := resourceOf(&corev1.Pod{}), resourceOf(&corev1.Secret{})

	own, _, err := n1.List(t.Context(), pods, "", metav1.ListOptions{FieldSelector: "spec.nodeName=n1"})
	if err != nil || len(own) != 1 {
		t.Errorf("its pods: %d, %v", len(own), err)
	}
	if _, err := n1.Get(t.Context(), secrets, "ship", "ours", ""); err != nil {
		t.Error(err)
	}
	if list, _, err := n1.List(t.Context(), secrets, "ship", metav1.ListOptions{FieldSelector: "metadata.name=ours"}); err != nil || len(list) != 1 {
		t.Errorf("its secret as a list: %d, %v", len(list), err)
	}
	status := []byte(`{"status":{"phase":"Running"}}`)
	if _, err := n1.Patch(t.Context(), pods, "ship", "mine", types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		t.Error(err)
	}
	for what, try := range map[string]func() error{
		"all pods": func() error { _, _, err := n1.List(t.Context(), pods, "", metav1.ListOptions{}); return err },
		"the pods of another": func() error {
			_, _, err := n1.List(t.Context(), pods, "", metav1.ListOptions{FieldSelector: "spec.nodeName=n2"})
			return err
		},
		"a secret of another": func() error { _, err := n1.Get(t.Context(), secrets, "ship", "others", ""); return err },
		"the status of another": func() error {
			_, err := n1.Patch(t.Context(), pods, "ship", "theirs", types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status")
			return err
		},
		"deleting another": func() error { return n1.Delete(t.Context(), pods, "ship", "theirs", metav1.DeleteOptions{}) },
		"a pod": func() error {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: "x"}, Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "demo"}}}}
			_, err := n1.Create(t.Context(), pods, "ship", "", p, metav1.CreateOptions{}, "")
			return err
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: err = %v, want Forbidden", what, err)
		}
	}
}

// counting is a store that counts the records that lists return.
type counting struct {
	httpserver.Store
	records atomic.Int64
}

func (c *counting) List(q store.Query, p store.Page) (store.Listing, error) {
	l, err := c.Store.List(q, p)
	c.records.Add(int64(len(l.Records)))
	return l, err
}

// TestAddressAllocationCostIsConstant counts what is read of the store for many
// services, and that what is found there without reading all of it is the truth.
func TestAddressAllocationCostIsConstant(t *testing.T) {
	var counted *counting
	server := apiservertest.Open(t, func(o *apiserver.Options) {
		counted = &counting{Store: o.Store}
		addresses, err := admission.NewServiceAddresses(admission.AddressesOptions{
			Reader: operation.NewReader(o.Catalog, counted), Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")},
		})
		if err != nil {
			t.Fatal(err)
		}
		o.Admission = []admission.Plugin{addresses}
	})
	s := &served{t, server, server.As(auth.User{Name: "admin", Groups: []string{auth.GroupMasters}})}
	make := func(name, ip string, nodePort int32) (*corev1.Service, error) {
		o, err := s.admin.Create(t.Context(), corev1.SchemeGroupVersion.WithResource("services"), "ship", "", &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ship", Name: name},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeNodePort, ClusterIP: ip, Selector: map[string]string{"app": "web"},
				Ports: []corev1.ServicePort{{Port: 80, NodePort: nodePort}},
			},
		}, metav1.CreateOptions{}, "")
		made, _ := o.(*corev1.Service)
		return made, err
	}
	const many = 400
	seen := map[string]bool{}
	var last *corev1.Service
	for i := range many {
		svc, err := make(fmt.Sprint("s", i), "", 0)
		if err != nil {
			t.Fatal(err)
		}
		last = svc
		seen[svc.Spec.ClusterIP], seen[fmt.Sprint(svc.Spec.Ports[0].NodePort)] = true, true
	}
	if len(seen) != 2*many {
		t.Errorf("%d services have %d different addresses and ports", many, len(seen))
	}
	// Most addresses and ports are free at the first try; one in use costs a record.
	if n := counted.records.Load(); n > many {
		t.Errorf("%d services were read to make %d", n, many)
	}
	if _, err := make("thief", last.Spec.ClusterIP, 0); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "already allocated") {
		t.Errorf("somebody else's address: %v", err)
	}
	if _, err := make("thief", "", last.Spec.Ports[0].NodePort); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "already allocated") {
		t.Errorf("somebody else's port: %v", err)
	}
	if err := s.admin.Delete(t.Context(), corev1.SchemeGroupVersion.WithResource("services"), "ship", last.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := make("heir", last.Spec.ClusterIP, last.Spec.Ports[0].NodePort); err != nil {
		t.Errorf("what was given back: %v", err)
	}
}
