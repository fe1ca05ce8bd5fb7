package bootstrap_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/bootstrap"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/internal/run"
)

// fixture is a real API server on a store in memory, with the admission of the
// program.
type fixture struct {
	*testing.T
	api *apiserver.Local
}

func newFixture(t *testing.T, networks ...string) *fixture {
	t.Helper()
	s := apiservertest.Open(t, func(o *apiserver.Options) {
		objects := operation.NewReader(o.Catalog, o.Store)
		addresses, err := admission.NewServiceAddresses(admission.AddressesOptions{Reader: objects, Networks: prefixes(networks...)})
		if err != nil {
			t.Fatal(err)
		}
		o.Admission = []admission.Plugin{admission.NewNamespaceLifecycle(objects), addresses}
	})
	return &fixture{t, s.As(auth.User{Name: "system:apiserver", Groups: []string{auth.GroupMasters}})}
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// keep starts a Reconciler and returns when it is ready; stop ends it.
func (s *fixture) keep(network string, endpoints ...string) (stop func()) {
	s.Helper()
	opts := bootstrap.Options{API: s.api, ServiceNetworks: []netip.Prefix{netip.MustParsePrefix(network)}, Port: 6443, Log: slog.New(slog.NewTextHandler(s.Output(), nil))}
	for _, e := range endpoints {
		opts.Endpoints = append(opts.Endpoints, netip.MustParseAddr(e))
	}
	k, err := bootstrap.New(opts)
	if err != nil {
		s.Fatal(err)
	}
	group := run.NewGroup(s.Context(), 0)
	group.Go(func(ctx context.Context) {
		if err := k.Run(ctx); err != nil {
			s.Error(err)
		}
	})
	select {
	case <-k.Ready():
	case <-s.Context().Done():
		s.Fatal("not ready")
	}
	s.Cleanup(group.Stop)
	return group.Stop
}

func resource(name string) schema.GroupVersionResource {
	if name == "endpointslices" {
		return discoveryv1.SchemeGroupVersion.WithResource(name)
	}
	return corev1.SchemeGroupVersion.WithResource(name)
}

// shown prints what matters of the objects that are kept.
func shown(o runtime.Object) string {
	switch o := o.(type) {
	case *corev1.Namespace:
		return o.Name + " " + string(o.Status.Phase)
	case *corev1.Service:
		p := o.Spec.Ports[0]
		return fmt.Sprintf("%s %s:%d/%s>%s", o.Spec.Type, o.Spec.ClusterIP, p.Port, p.Name, p.TargetPort.String())
	case *corev1.Endpoints:
		if len(o.Subsets) == 0 {
			return "nothing"
		}
		return fmt.Sprintf("%s:%d/%s", o.Subsets[0].Addresses[0].IP, o.Subsets[0].Ports[0].Port, o.Subsets[0].Ports[0].Name)
	case *discoveryv1.EndpointSlice:
		if len(o.Endpoints) == 0 {
			return "nothing"
		}
		return fmt.Sprintf("%s %s:%d/%s of %s", o.AddressType, o.Endpoints[0].Addresses[0], *o.Ports[0].Port, *o.Ports[0].Name, o.Labels["kubernetes.io/service-name"])
	}
	return fmt.Sprintf("%T", o)
}

// until waits on a watch until the object is shown as wanted.
func (s *fixture) until(kind, namespace, name, want string) {
	s.Helper()
	last := "not there"
	opts := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	for event, err := range s.api.Watch(s.Context(), resource(kind), namespace, opts) {
		if err != nil {
			s.Fatalf("%s/%s: %v; last: %s", kind, name, err, last)
		}
		if event.Type == watch.Added || event.Type == watch.Modified {
			last = shown(event.Object)
			if last == want {
				return
			}
		}
	}
	s.Fatalf("%s/%s is %s, want %s", kind, name, last, want)
}

func TestEveryClusterHasThese(t *testing.T) {
	s := newFixture(t, "10.1.0.0/16")
	s.keep("10.1.0.0/16", "192.0.2.1")
	for _, tt := range []struct{ kind, namespace, name, want string }{
		{"namespaces", "", "default", "default Active"},
		{"namespaces", "", "kube-system", "kube-system Active"},
		{"namespaces", "", "kube-public", "kube-public Active"},
		{"namespaces", "", "kube-node-lease", "kube-node-lease Active"},
		{"services", "default", "kubernetes", "ClusterIP 10.1.0.1:443/https>6443"},
		{"endpoints", "default", "kubernetes", "192.0.2.1:6443/https"},
		{"endpointslices", "default", "kubernetes", "IPv4 192.0.2.1:6443/https of kubernetes"},
	} {
		o, err := s.api.Get(t.Context(), resource(tt.kind), tt.namespace, tt.name, "")
		if err != nil || shown(o) != tt.want {
			t.Errorf("%s/%s is %v, %v, want %s", tt.kind, tt.name, o, err, tt.want)
		}
	}
}

// TestTheNameServerHasAService checks that the service exists while there is a name server, and
// that a service made by a user is left alone.
func TestTheNameServerHasAService(t *testing.T) {
	s := newFixture(t, "10.1.0.0/16")
	keep := func(dns ...bootstrap.DNS) {
		t.Helper()
		k, err := bootstrap.New(bootstrap.Options{API: s.api, ServiceNetworks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Port: 6443, DNS: dns})
		if err != nil {
			t.Fatal(err)
		}
		group := run.NewGroup(t.Context(), 0)
		defer group.Stop()
		group.Go(func(ctx context.Context) { _ = k.Run(ctx) })
		<-k.Ready()
	}
	look := func() string {
		var all []string
		for _, kind := range []string{"services", "endpoints", "endpointslices"} {
			o, err := s.api.Get(t.Context(), resource(kind), "kube-system", "kube-dns", "")
			switch {
			case apierrors.IsNotFound(err):
				continue
			case err != nil:
				t.Fatal(err)
			}
			all = append(all, shown(o))
		}
		return strings.Join(all, ", ")
	}
	keep(bootstrap.DNS{Address: netip.MustParseAddr("192.0.2.1"), Port: 5353, Metrics: 9153})
	if got, want := look(), "ClusterIP 10.1.0.10:53/dns>5353, 192.0.2.1:5353/dns, IPv4 192.0.2.1:5353/dns of kube-dns"; got != want {
		t.Errorf("with a name server there is %q, want %q", got, want)
	}
	if o, err := s.api.Get(t.Context(), resource("services"), "kube-system", "kube-dns", ""); err != nil {
		t.Error(err)
	} else if a := o.(*corev1.Service).Annotations; a["prometheus.io/port"] != "9153" || a["prometheus.io/scrape"] != "true" {
		t.Errorf("Prometheus does not find its metrics: %q", a)
	}
	keep()
	if got := look(); got != "" {
		t.Errorf("without one any more there is %q, want nothing", got)
	}
	own := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns"},
		Spec: corev1.ServiceSpec{ClusterIP: "10.1.0.10", Selector: map[string]string{"k8s-app": "kube-dns"}, Ports: []corev1.ServicePort{{Name: "dns", Port: 53, Protocol: "UDP"}}},
	}
	if _, err := s.api.Create(t.Context(), resource("services"), "kube-system", "", own, metav1.CreateOptions{}, ""); err != nil {
		t.Fatal(err)
	}
	keep()
	if got := look(); !strings.HasPrefix(got, "ClusterIP 10.1.0.10:53/dns>") {
		t.Errorf("somebody else's service is now %q", got)
	}
}

// TestTheNameServerIsAskedInBothFamilies checks its service in a cluster of both, in which it
// may have been of one before, and that nothing is left when it goes.
func TestTheNameServerIsAskedInBothFamilies(t *testing.T) {
	s := newFixture(t, "fd01::/112", "10.1.0.0/16")
	four := bootstrap.DNS{Address: netip.MustParseAddr("192.0.2.1"), Port: 5353, Metrics: 9153}
	six := bootstrap.DNS{Address: netip.MustParseAddr("2001:db8::1"), Port: 53, Metrics: 9154}
	for _, tt := range []struct {
		dns  []bootstrap.DNS
		want string
	}{
		{[]bootstrap.DNS{six}, "SingleStack [IPv6] [fd01::a]; IPv6 2001:db8::1:53/dns of kube-dns"},
		{[]bootstrap.DNS{four, six}, "PreferDualStack [IPv6 IPv4] [fd01::a 10.1.0.10]; IPv6 2001:db8::1:53/dns of kube-dns; IPv4 192.0.2.1:5353/dns of kube-dns"},
		{nil, ""},
		{[]bootstrap.DNS{six, four}, "PreferDualStack [IPv6 IPv4] [fd01::a 10.1.0.10]; IPv6 2001:db8::1:53/dns of kube-dns; IPv4 192.0.2.1:5353/dns of kube-dns"},
	} {
		k, err := bootstrap.New(bootstrap.Options{API: s.api, ServiceNetworks: prefixes("fd01::/112", "10.1.0.0/16"), Port: 6443, DNS: tt.dns})
		if err != nil {
			t.Fatal(err)
		}
		group := run.NewGroup(t.Context(), 0)
		group.Go(func(ctx context.Context) { _ = k.Run(ctx) })
		<-k.Ready()
		group.Stop()
		var all []string
		for _, name := range []string{"kube-dns", "kube-dns-ipv4"} {
			for _, kind := range []string{"services", "endpointslices"} {
				o, err := s.api.Get(t.Context(), resource(kind), "kube-system", name, "")
				switch svc, ok := o.(*corev1.Service); {
				case apierrors.IsNotFound(err):
				case err != nil:
					t.Fatal(err)
				case ok:
					all = append(all, fmt.Sprint(*svc.Spec.IPFamilyPolicy, " ", svc.Spec.IPFamilies, " ", svc.Spec.ClusterIPs))
				default:
					all = append(all, shown(o))
				}
			}
		}
		if got := strings.Join(all, "; "); got != tt.want {
			t.Errorf("with %v there is\n%s\nwant\n%s", tt.dns, got, tt.want)
		}
	}
}

// TestTheNameServersAddressMayBeTaken checks that a cluster starts although it is.
func TestTheNameServersAddressMayBeTaken(t *testing.T) {
	s := newFixture(t, "10.1.0.0/16")
	s.keep("10.1.0.0/16", "192.0.2.1")()
	other := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "first"},
		Spec: corev1.ServiceSpec{ClusterIP: "10.1.0.10", Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if _, err := s.api.Create(t.Context(), resource("services"), "default", "", other, metav1.CreateOptions{}, ""); err != nil {
		t.Fatal(err)
	}
	k, err := bootstrap.New(bootstrap.Options{
		API: s.api, ServiceNetworks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Port: 6443, Log: slog.New(slog.DiscardHandler),
		DNS: []bootstrap.DNS{{Address: netip.MustParseAddr("192.0.2.1"), Port: 53}},
	})
	if err != nil {
		t.Fatal(err)
	}
	group := run.NewGroup(t.Context(), 0)
	defer group.Stop()
	group.Go(func(ctx context.Context) { _ = k.Run(ctx) })
	<-k.Ready()
	if err := s.api.Delete(t.Context(), resource("services"), "default", "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.until("services", "kube-system", "kube-dns", "ClusterIP 10.1.0.10:53/dns>53")
}

// TestASecondStartChangesNothing checks that what is as it should be is not
// written again: a start must not cost a sync of the disk.
func TestASecondStartChangesNothing(t *testing.T) {
	s := newFixture(t, "10.1.0.0/16")
	revisions := func() string {
		var all []string
		for _, kind := range []string{"namespaces", "services", "endpoints", "endpointslices"} {
			objs, _, err := s.api.List(t.Context(), resource(kind), "", metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range objs {
				m := o.(metav1.Object)
				all = append(all, m.GetName()+"@"+m.GetResourceVersion())
			}
		}
		return strings.Join(all, " ")
	}
	s.keep("10.1.0.0/16", "192.0.2.1")()
	before := revisions()
	s.keep("10.1.0.0/16", "192.0.2.1")()
	if after := revisions(); after != before {
		t.Errorf("before %s\nafter  %s", before, after)
	}
}

func TestWhatIsDeletedComesBack(t *testing.T) {
	s := newFixture(t, "10.1.0.0/16")
	s.keep("10.1.0.0/16", "192.0.2.1")
	for kind, want := range map[string]string{
		"services":       "ClusterIP 10.1.0.1:443/https>6443",
		"endpoints":      "192.0.2.1:6443/https",
		"endpointslices": "IPv4 192.0.2.1:6443/https of kubernetes",
	} {
		for range 3 {
			if err := s.api.Delete(t.Context(), resource(kind), "default", "kubernetes", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			s.until(kind, "default", "kubernetes", want)
		}
	}
}

func TestWhatIsBentIsPutRight(t *testing.T) {
	s := newFixture(t, "10.1.0.0/16")
	s.keep("10.1.0.0/16", "192.0.2.1")
	for kind, patch := range map[string]string{
		"services":       `{"metadata":{"labels":{"mine":"stays"}},"spec":{"ports":[{"name":"other","port":80}]}}`,
		"endpoints":      `{"metadata":{"labels":{"mine":"stays"}},"subsets":null}`,
		"endpointslices": `{"metadata":{"labels":{"mine":"stays"}},"endpoints":[]}`,
	} {
		before, err := s.api.Get(t.Context(), resource(kind), "default", "kubernetes", "")
		if err != nil {
			t.Fatal(err)
		}
		bent, err := s.api.Patch(t.Context(), resource(kind), "default", "kubernetes", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "")
		if err != nil {
			t.Fatal(err)
		}
		if shown(bent) == shown(before) {
			t.Fatalf("%s was not bent", kind)
		}
		s.until(kind, "default", "kubernetes", shown(before))
		after, err := s.api.Get(t.Context(), resource(kind), "default", "kubernetes", "")
		if err != nil || after.(metav1.Object).GetLabels()["mine"] != "stays" {
			t.Errorf("%s: a label of somebody else is gone: %v, %v", kind, after, err)
		}
	}
}

func TestTheAddressOfTheServerMoves(t *testing.T) {
	s := newFixture(t, "10.1.0.0/16")
	s.keep("10.1.0.0/16", "192.0.2.1")()
	s.keep("10.1.0.0/16", "192.0.2.2")()
	s.until("endpoints", "default", "kubernetes", "192.0.2.2:6443/https")
	s.keep("10.1.0.0/16")()
	s.until("endpointslices", "default", "kubernetes", "nothing")
	s.until("endpoints", "default", "kubernetes", "nothing")
}

func TestOptions(t *testing.T) {
	good := bootstrap.Options{API: &apiserver.Local{}, ServiceNetworks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Port: 6443}
	tests := []struct {
		name   string
		change func(*bootstrap.Options)
		want   string
	}{
		{"good", func(*bootstrap.Options) {}, ""},
		{"no API", func(o *bootstrap.Options) { o.API = nil }, "API is nil"},
		{"no network", func(o *bootstrap.Options) { o.ServiceNetworks = []netip.Prefix{{}} }, "is not a network"},
		{"no port", func(o *bootstrap.Options) { o.Port = 0 }, "want a port"},
		{"loopback", func(o *bootstrap.Options) { o.Endpoints = []netip.Addr{netip.MustParseAddr("127.0.0.1")} }, "loopback"},
		{"a name server on loopback", func(o *bootstrap.Options) {
			o.DNS = []bootstrap.DNS{{Address: netip.MustParseAddr("127.0.0.1"), Port: 53}}
		}, "Options.DNS"},
		{"two name servers of a family", func(o *bootstrap.Options) {
			o.DNS = []bootstrap.DNS{{Address: netip.MustParseAddr("192.0.2.1"), Port: 53}, {Address: netip.MustParseAddr("192.0.2.2"), Port: 53}}
		}, "Options.DNS"},
		{"another family", func(o *bootstrap.Options) { o.Endpoints = []netip.Addr{netip.MustParseAddr("2001:db8::1")} }, "another IP family"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := good
			tt.change(&o)
			_, err := bootstrap.New(o)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want %q", err, tt.want)
			}
		})
	}
}
