package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
)

// kernel is both sides of a node that a proxy works on: sockets and rules. It
// fails the test when a rule leads to a socket that is not there, and when a change is
// not about what is there.
type kernel struct {
	t *testing.T

	mu       sync.Mutex
	sockets  map[proxy.PoolID]netip.AddrPort // guarded by mu
	next     uint16                          // guarded by mu
	rules    map[proxy.Frontend]proxy.Rule   // guarded by mu
	closed   bool                            // guarded by mu
	refuse   int                             // guarded by mu; how many more changes are refused
	noSocket bool                            // guarded by mu; no socket can be opened
	replaced int                             // guarded by mu
	restored int                             // guarded by mu
	updates  []int                           // guarded by mu; how many changes each had
	changed  chan struct{}                   // guarded by mu; closed and replaced by each change
	counted  map[proxy.Frontend]proxy.Tally  // guarded by mu
}

func newKernel(t *testing.T) *kernel {
	return &kernel{t: t, sockets: map[proxy.PoolID]netip.AddrPort{}, rules: map[proxy.Frontend]proxy.Rule{}, changed: make(chan struct{})}
}

func (k *kernel) note() {
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *kernel) Set(p proxy.Pool) (netip.AddrPort, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.noSocket {
		return netip.AddrPort{}, errors.New("no descriptors")
	}
	at, ok := k.sockets[p.PoolID]
	if !ok {
		k.next++
		at = netip.AddrPortFrom(netip.MustParseAddr("10.1.0.1"), k.next)
		k.sockets[p.PoolID] = at
	}
	return at, nil
}

func (k *kernel) Remove(id proxy.PoolID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.rules {
		if slices.Contains(r.Backends, k.sockets[id]) {
			k.t.Errorf("socket of %v closed while %s leads to it", id, frontendText(r.Frontend))
		}
	}
	delete(k.sockets, id)
	k.note()
}

func (k *kernel) Settle(context.Context) {}

func (k *kernel) Run(context.Context) error { return nil }

func (k *kernel) Restore() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.restored++
	return nil
}

func (k *kernel) Tallies(context.Context) (map[proxy.Frontend]proxy.Tally, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.counted), nil
}

func (k *kernel) Forget(_ context.Context, frontends []proxy.Frontend) (map[proxy.Frontend]proxy.Tally, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := map[proxy.Frontend]proxy.Tally{}
	for _, d := range frontends {
		if t, ok := k.counted[d]; ok {
			last[d] = t
			delete(k.counted, d)
		}
	}
	return last, nil
}

func (k *kernel) refuses() error {
	if k.refuse > 0 {
		k.refuse--
		return errors.New("the kernel is busy")
	}
	return nil
}

func (k *kernel) Replace(_ context.Context, all []proxy.Rule) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.refuses(); err != nil {
		return err
	}
	k.replaced++
	clear(k.rules)
	for _, r := range all {
		k.add(r)
	}
	k.note()
	return nil
}

func (k *kernel) add(r proxy.Rule) {
	if _, twice := k.rules[r.Frontend]; twice {
		k.t.Errorf("two rules for %s", frontendText(r.Frontend))
	}
	for _, b := range slices.Concat(r.Backends, r.Inside) {
		if r.Relayed && !slices.Contains(slices.Collect(maps.Values(k.sockets)), b) {
			k.t.Errorf("%s leads to %v, where no socket is", frontendText(r.Frontend), b)
		}
	}
	k.rules[r.Frontend] = r
}

func (k *kernel) Update(_ context.Context, changes []proxy.Change) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.refuses(); err != nil {
		return err
	}
	k.updates = append(k.updates, len(changes))
	for _, c := range changes {
		var none proxy.Frontend
		if c.Was.Frontend != none {
			if d := cmp.Diff(k.rules[c.Was.Frontend], c.Was, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{})); d != "" {
				k.t.Errorf("a change is about another rule than stands at %s:\n%s", frontendText(c.Was.Frontend), d)
			}
			delete(k.rules, c.Was.Frontend)
		}
		if c.Is.Frontend != none {
			k.add(c.Is)
		}
	}
	k.note()
	return nil
}

func (k *kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	return nil
}

// await blocks until the rules are the ones given, in any order; the test's timeout is
// the limit. Without any there must be no socket either.
func (k *kernel) await(want ...string) {
	k.t.Helper()
	want = slices.Sorted(slices.Values(want))
	for {
		k.mu.Lock()
		var have []string
		for _, r := range k.rules {
			have = append(have, ruleText(proxy.PlannedRule{Rule: unrelayed(r)}))
		}
		changed, sockets := k.changed, len(k.sockets)
		k.mu.Unlock()
		slices.Sort(have)
		if slices.Equal(have, want) && (len(want) > 0 || sockets == 0) {
			return
		}
		select {
		case <-changed:
		case <-time.After(30 * time.Second):
			k.t.Fatalf("rules are %q, want %q", have, want)
		}
	}
}

// unrelayed is a rule with the backends of its pool.
func unrelayed(r proxy.Rule) proxy.Rule {
	r.Relayed = false
	return r
}

// service is web in default at 10.0.0.1, port http 80.
func service(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.0.0.1",
			Ports:     []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

// endpoint is one with the given conditions: r(eady), s(erving), t(erminating).
func endpoint(addr, conditions string) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{addr}}
	has := func(c rune) *bool {
		for _, x := range conditions {
			if x == c {
				return new(true)
			}
		}
		return new(false)
	}
	if conditions != "unset" {
		e.Conditions = discoveryv1.EndpointConditions{Ready: has('r'), Serving: has('s'), Terminating: has('t')}
	}
	if *has('?') {
		e.Conditions.Serving = nil
	}
	return e
}

func slice(port string, number int32, es ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(port), Port: new(number), Protocol: new(corev1.ProtocolTCP)}},
		Endpoints:   es,
	}
}

// cluster is a proxy that runs.
type cluster struct {
	*testing.T
	*kernel
	api   *clienttest.Server
	proxy *proxy.Proxy
}

// start runs a proxy until the test ends, when its rules are to be gone but for Options.Keep. It blocks until the
// proxy is ready.
func start(t *testing.T, api *clienttest.Server, k *kernel, o proxy.Options) *cluster {
	t.Helper()
	p, stop := begin(t, api, k, o)
	t.Cleanup(func() {
		stop()
		if k.closed == o.Keep {
			t.Errorf("the rules are removed: %v; and they are to stay: %v", k.closed, o.Keep)
		}
	})
	return &cluster{t, k, api, p}
}

// begin runs a proxy until stop is called or the test ends. It blocks until the proxy is ready.
func begin(t *testing.T, api *clienttest.Server, k *kernel, o proxy.Options) (p *proxy.Proxy, stop func()) {
	t.Helper()
	o.Client, o.Forwarder, o.Kernel, o.Log = api, k, k, slog.New(slog.DiscardHandler)
	p, err := proxy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.Background(), 0)
	g.Go(func(ctx context.Context) {
		if err := p.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	t.Cleanup(g.Stop)
	<-p.Ready()
	return p, g.Stop
}

func (h *cluster) create(svc *corev1.Service, ss ...*discoveryv1.EndpointSlice) {
	h.Helper()
	if svc != nil {
		if _, err := client.Services.Create(h.Context(), h.api, svc); err != nil {
			h.Fatal(err)
		}
	}
	for _, s := range ss {
		if _, err := client.EndpointSlices.Create(h.Context(), h.api, s); err != nil {
			h.Fatal(err)
		}
	}
}

func (h *cluster) updateSlice(name string, change func(*discoveryv1.EndpointSlice)) {
	h.Helper()
	s, err := client.EndpointSlices.Get(h.Context(), h.api, "default", name)
	if err != nil {
		h.Fatal(err)
	}
	s = s.DeepCopy()
	change(s)
	if _, err := client.EndpointSlices.Update(h.Context(), h.api, s, ""); err != nil {
		h.Fatal(err)
	}
}

func (h *cluster) updateService(name string, change func(*corev1.Service)) {
	h.Helper()
	s, err := client.Services.Get(h.Context(), h.api, "default", name)
	if err != nil {
		h.Fatal(err)
	}
	s = s.DeepCopy()
	change(s)
	if _, err := client.Services.Update(h.Context(), h.api, s, ""); err != nil {
		h.Fatal(err)
	}
}

func (h *cluster) delete(name string) {
	h.Helper()
	if err := client.Services.Delete(h.Context(), h.api, "default", name, metav1.DeleteOptions{}); err != nil {
		h.Fatal(err)
	}
}

// another is a slice of another Service than web.
func another(name, address string) *discoveryv1.EndpointSlice {
	s := slice("http", 8080, endpoint(address, "rs"))
	s.Name, s.Labels = name+"-1", map[string]string{discoveryv1.LabelServiceName: name}
	return s
}

// announced is an announcer that remembers its last call.
type announced struct {
	mu  sync.Mutex
	all []netip.Addr // guarded by mu
}

func (a *announced) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.all)
}

func (a *announced) Announce(_ context.Context, all []netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = slices.Clone(all)
	return nil
}

func (a *announced) Remind(context.Context, []netip.Addr) error { return nil }

// TestKeepLeavesRulesAtTheEnd ends proxies: one that takes all back, and one after which
// another comes.
func TestKeepLeavesRulesAtTheEnd(t *testing.T) {
	for _, keep := range []bool{false, true} {
		k, a := newKernel(t), &announced{}
		t.Run(map[bool]string{false: "removed", true: "kept"}[keep], func(t *testing.T) {
			balanced := service(func(s *corev1.Service) {
				s.Spec.Type = corev1.ServiceTypeLoadBalancer
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.80"}}
			})
			start(t, clienttest.New(t, balanced, slice("http", 8080, endpoint("10.1.0.2", "rs"))), k, proxy.Options{Node: "n1", Keep: keep, Announcer: a})
			if a.count() != 1 {
				t.Errorf("announced: %d addresses", a.count())
			}
		}) // which ends the proxy, and looks at the rules
		if left := a.count() == 1; left != keep {
			t.Errorf("keep %v: after the end %d addresses are announced", keep, a.count())
		}
	}
}

func TestTheRulesFollowTheCluster(t *testing.T) {
	for _, mode := range []string{"kernel", "userspace"} {
		t.Run(mode, func(t *testing.T) {
			api := clienttest.New(t)
			before := &cluster{t, nil, api, nil}
			before.create(service(nil), slice("http", 8080, endpoint("10.1.0.2", "rs")))
			h := start(t, api, newKernel(t), proxy.Options{Userspace: mode == "userspace"})
			// to is an endpoint, or its socket and no masquerade.
			to := func(endpoint, masquerade, socket string) string {
				if mode == "userspace" {
					return socket
				}
				return endpoint + ", " + masquerade
			}
			web := "10.0.0.1:80/TCP → " + to("10.1.0.2:8080", "masquerade foreign", "10.1.0.1:1")
			h.await(web)

			h.create(service(func(s *corev1.Service) { s.Name, s.Spec.ClusterIP, s.Spec.Ports[0].NodePort = "api", "10.0.0.2", 30080 }), another("api", "10.1.0.3"))
			theirs := []string{
				"10.0.0.2:80/TCP → " + to("10.1.0.3:8080", "masquerade foreign", "10.1.0.1:2"),
				"0.0.0.0:30080/TCP → " + to("10.1.0.3:8080", "masquerade", "10.1.0.1:2"),
			}
			h.await(append(theirs, web)...)

			// Without a backend the kernel refuses.
			h.updateSlice("web-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil })
			nobody := "10.0.0.1:80/TCP → nobody"
			if mode == "kernel" {
				nobody += ", masquerade foreign"
			}
			h.await(append(theirs, nobody)...)

			h.delete("web")
			h.delete("api")
			h.await()
		})
	}
}

// cidr is a ServiceCIDR.
func cidr(name string, networks ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: networks}}
}

// TestNetworksOfClusterIPsAreFollowed adds and removes ServiceCIDRs. Options.Networks is called,
// and then all rules are replaced; endpoints in the networks are refused.
func TestNetworksOfClusterIPsAreFollowed(t *testing.T) {
	api, k := clienttest.New(t, cidr("kubernetes", "10.0.0.0/24", "fd00:2::/112")), newKernel(t)
	before := &cluster{t, nil, api, nil}
	before.create(service(nil), slice("http", 8080, endpoint("10.1.0.2", "rs")))
	var told []string // guarded by k.mu
	h := start(t, api, k, proxy.Options{Networks: func(all []netip.Prefix) {
		k.mu.Lock()
		defer k.mu.Unlock()
		told = append(told, fmt.Sprint(k.replaced, all))
	}})
	const web = "10.0.0.1:80/TCP → 10.1.0.2:8080, masquerade foreign"
	h.await(web)
	api.Set(t, cidr("more", "10.1.0.0/16", "10.0.0.0/24"))
	h.await("10.0.0.1:80/TCP → nobody, masquerade foreign") // it was an endpoint in the service network
	api.Remove(t, cidr("more"))
	h.await(web)
	k.mu.Lock()
	defer k.mu.Unlock()
	want := []string{"0 [10.0.0.0/24 fd00:2::/112]", "1 [10.0.0.0/24 10.1.0.0/16 fd00:2::/112]", "2 [10.0.0.0/24 fd00:2::/112]"}
	if !slices.Equal(told, want) || k.replaced != 3 || len(k.updates) != 0 {
		t.Errorf("the kernel was told %q, want %q; %d times all was made anew, and there were updates: %v", told, want, k.replaced, k.updates)
	}
}

// TestServiceCIDRsAreOptional has a server that does not: what was said before holds.
func TestServiceCIDRsAreOptional(t *testing.T) {
	api := clienttest.New(t)
	api.Intercept(func(r clienttest.Request) error {
		if r.Resource == client.ServiceCIDRs.Resource {
			return apierrors.NewNotFound(client.ServiceCIDRs.GroupResource(), "")
		}
		return nil
	})
	h := start(t, api, newKernel(t), proxy.Options{Networks: func(all []netip.Prefix) { t.Errorf("told of %v", all) }})
	h.create(service(nil), slice("http", 8080, endpoint("10.1.0.2", "rs")))
	h.await("10.0.0.1:80/TCP → 10.1.0.2:8080, masquerade foreign")
}

// TestOnlyChangesAreWritten counts changes of frontends.
func TestOnlyChangesAreWritten(t *testing.T) {
	h := start(t, clienttest.New(t), newKernel(t), proxy.Options{})
	var all []string
	for i := range 20 {
		name := fmt.Sprintf("web%d", i)
		h.create(service(func(s *corev1.Service) { s.Name, s.Spec.ClusterIP = name, fmt.Sprintf("10.0.0.%d", i+1) }), another(name, "10.1.0.3"))
		all = append(all, fmt.Sprintf("10.0.0.%d:80/TCP → 10.1.0.3:8080, masquerade foreign", i+1))
	}
	h.await(all...)
	h.mu.Lock()
	h.updates = nil
	h.mu.Unlock()
	h.updateSlice("web7-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.1.0.4" })
	all[7] = "10.0.0.8:80/TCP → 10.1.0.4:8080, masquerade foreign"
	h.await(all...)
	// What changes nothing that a rule says is no change.
	h.updateService("web3", func(s *corev1.Service) { s.Labels = map[string]string{"a": "b"} })
	h.delete("web19")
	h.await(all[:19]...)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.updates, []int{1, 1}) || h.replaced != 1 {
		t.Errorf("updates had %v changes and %d times all was made anew, want [1 1] and 1", h.updates, h.replaced)
	}
}

// TestAKernelThatRefusesGetsAll refuses a change and then everything for a while.
func TestAKernelThatRefusesGetsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, clienttest.New(t), newKernel(t), proxy.Options{Userspace: true})
		h.create(service(nil), slice("http", 8080, endpoint("10.1.0.2", "rs")))
		h.await("10.0.0.1:80/TCP → 10.1.0.1:1")
		h.mu.Lock()
		h.refuse = 5
		h.mu.Unlock()
		h.delete("web")
		synctest.Wait()
		h.mu.Lock()
		if len(h.sockets) != 1 {
			t.Errorf("there are %d sockets, want the one that a rule leads to", len(h.sockets))
		}
		h.mu.Unlock()
		h.await()
		h.mu.Lock()
		if h.replaced != 2 {
			t.Errorf("all was made anew %d times, want once after the start", h.replaced-1)
		}
		h.mu.Unlock()
		// And then changes are changes again.
		h.create(service(func(s *corev1.Service) { s.Name = "next" }), another("next", "10.1.0.9"))
		h.await("10.0.0.1:80/TCP → 10.1.0.1:2")
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.replaced != 2 {
			t.Error("a change after the repair made everything anew")
		}
	})
}

// TestALivingServiceIsChanged changes one field after the other, each of which is no more than one
// part of a rule.
func TestALivingServiceIsChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(address, node string) discoveryv1.Endpoint {
			e := endpoint(address, "rs")
			e.NodeName = &node
			return e
		}
		balanced := service(func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Spec.Ports[0].NodePort = 30080
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.80"}}
		})
		api := clienttest.New(t, balanced, slice("http", 8080, at("10.1.0.2", "n1")), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		h := start(t, api, newKernel(t), proxy.Options{Node: "n1"})
		const here, both = "10.1.0.2:8080", "10.1.0.2:8080 10.1.0.3:8080"
		is := func(cluster, nodePort, balanced string) {
			t.Helper()
			h.await("10.0.0.1:80/TCP → "+cluster, "0.0.0.0:30080/TCP → "+nodePort, "192.0.2.80:80/TCP → "+balanced)
		}
		is(here+", masquerade foreign", here+", masquerade", here+", masquerade")
		h.updateService("web", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
		is(here+", affinity 3h0m0s, masquerade foreign", here+", affinity 3h0m0s, masquerade", here+", affinity 3h0m0s, masquerade")
		h.updateService("web", func(s *corev1.Service) {
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(60))}}
		})
		is(here+", affinity 1m0s, masquerade foreign", here+", affinity 1m0s, masquerade", here+", affinity 1m0s, masquerade")
		h.updateService("web", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityNone })
		is(here+", masquerade foreign", here+", masquerade", here+", masquerade")
		h.updateService("web", func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"} })
		is(here+", masquerade foreign", here+", masquerade", here+", only [198.51.100.0/24], masquerade")
		h.updateService("web", func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = nil })
		is(here+", masquerade foreign", here+", masquerade", here+", masquerade")
		h.updateService("web", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
		is(here+", masquerade foreign", here+", inside "+here, here+", inside "+here)
		h.updateSlice("web-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = append(s.Endpoints, at("10.1.0.3", "n2")) })
		is(both+", masquerade foreign", here+", inside "+both, here+", inside "+both)
		h.updateService("web", func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal) })
		is(here+", masquerade foreign", here+", inside "+both, here+", inside "+both)
		h.updateSlice("web-1", func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[1:] })
		is("nobody, dropped, masquerade foreign", "nobody, inside 10.1.0.3:8080, dropped", "nobody, inside 10.1.0.3:8080, dropped")
		h.updateService("web", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.Ports[0].NodePort, s.Spec.Ports[0].Protocol = corev1.ServiceTypeClusterIP, "", 0, corev1.ProtocolUDP
		})
		h.await("10.0.0.1:80/UDP → nobody, masquerade foreign") // its slice has no such port
		h.updateService("web", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "x.example"
		})
		h.await()
		h.updateService("web", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalName, s.Spec.Ports[0].Protocol = corev1.ServiceTypeClusterIP, "", corev1.ProtocolTCP
			s.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal) // it is dropped with the addresses
		})
		h.await("10.0.0.1:80/TCP → nobody, dropped, masquerade foreign")
		h.updateService("web", func(s *corev1.Service) {
			s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "other"}
		})
		h.await()
	})
}

// TestRemovedRulesAreRestored has them lost while nothing else changes.
func TestRemovedRulesAreRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remove := make(chan struct{})
		h := start(t, clienttest.New(t, service(nil), slice("http", 8080, endpoint("10.1.0.2", "rs"))), newKernel(t), proxy.Options{
			Watch: func(ctx context.Context, lost func()) error {
				for {
					select {
					case <-ctx.Done():
						return nil
					case <-remove:
						lost()
					}
				}
			},
		})
		for times := 1; times <= 3; times++ {
			synctest.Wait()
			h.mu.Lock()
			if h.replaced != times || h.restored != times-1 || len(h.updates) > 0 {
				t.Errorf("all was made anew %d times, want %d; what the forwarder needs %d times, want %d; and changed: %v", h.replaced, times, h.restored, times-1, h.updates)
			}
			clear(h.rules)
			h.mu.Unlock()
			remove <- struct{}{}
			h.await("10.0.0.1:80/TCP → 10.1.0.2:8080, masquerade foreign")
		}
	})
}

// TestTheOlderServiceHasAnAddress has two that want one, and the older one goes.
func TestTheOlderServiceHasAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, clienttest.New(t), newKernel(t), proxy.Options{})
		wants := func(name, ip string) *corev1.Service {
			return service(func(s *corev1.Service) {
				s.Name, s.Spec.ClusterIP, s.Spec.ExternalIPs = name, ip, []string{"192.0.2.80"}
			})
		}
		h.create(wants("first", "10.0.0.1"), another("first", "10.1.0.1"))
		first := "10.0.0.1:80/TCP → 10.1.0.1:8080, masquerade foreign"
		h.await(first, "192.0.2.80:80/TCP → 10.1.0.1:8080, masquerade")
		time.Sleep(time.Minute)
		h.create(wants("a-second", "10.0.0.2"), another("a-second", "10.1.0.2"))
		second := "10.0.0.2:80/TCP → 10.1.0.2:8080, masquerade foreign"
		h.await(first, second, "192.0.2.80:80/TCP → 10.1.0.1:8080, masquerade")
		h.api.Await(t, func() error { return h.event("a-second", "AddressTaken") })
		h.delete("first")
		h.await(second, "192.0.2.80:80/TCP → 10.1.0.2:8080, masquerade")
	})
}

// TestOldestServiceWinsInAnyOrder has several Services that want one address, of which the younger
// ones are received first, and two have the same age.
func TestOldestServiceWinsInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ages := map[string]int64{"a-youngest": 3000, "c-twin": 2000, "b-twin": 2000, "d-oldest": 1000}
		var objects []client.Object
		for i, name := range slices.Sorted(maps.Keys(ages)) {
			objects = append(objects, service(func(s *corev1.Service) {
				s.Name, s.Spec.ClusterIP, s.Spec.ExternalIPs = name, fmt.Sprintf("10.0.0.%d", i+1), []string{"192.0.2.80"}
				s.CreationTimestamp = metav1.NewTime(time.Unix(ages[name], 0))
			}), another(name, fmt.Sprintf("10.1.0.%d", i+1)))
		}
		h := start(t, clienttest.New(t, objects...), newKernel(t), proxy.Options{})
		own := map[string]string{}
		for i, name := range slices.Sorted(maps.Keys(ages)) {
			own[name] = fmt.Sprintf("10.0.0.%d:80/TCP → 10.1.0.%d:8080, masquerade foreign", i+1, i+1)
		}
		for _, turn := range []struct{ name, backend string }{{"d-oldest", "10.1.0.4"}, {"b-twin", "10.1.0.2"}, {"c-twin", "10.1.0.3"}, {"a-youngest", "10.1.0.1"}} {
			h.await(append(slices.Collect(maps.Values(own)), "192.0.2.80:80/TCP → "+turn.backend+":8080, masquerade")...)
			if turn.name == "d-oldest" {
				for _, loser := range []string{"a-youngest", "b-twin", "c-twin"} {
					h.api.Await(t, func() error { return h.event(loser, "AddressTaken") })
				}
				if h.event("d-oldest", "AddressTaken") == nil {
					t.Error("the oldest is told that it lacks the address")
				}
			}
			// What has no share in the address changes nothing of it.
			h.updateService(turn.name, func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30080 })
			h.await(append(slices.Collect(maps.Values(own)), "192.0.2.80:80/TCP → "+turn.backend+":8080, masquerade", "0.0.0.0:30080/TCP → "+turn.backend+":8080, masquerade")...)
			h.delete(turn.name)
			delete(own, turn.name)
		}
		h.await()
	})
}

// event returns an error unless there is an event of a Service with a reason.
func (h *cluster) event(service, reason string) error {
	var have []string
	for _, e := range clienttest.All(h.api, client.Events, "") {
		if e.InvolvedObject.Name == service && e.Reason == reason {
			return nil
		}
		have = append(have, e.InvolvedObject.Name+" "+e.Reason)
	}
	return fmt.Errorf("there is no event %s of %s, but %q", reason, service, have)
}

// TestAServiceHearsOfItsFaults has an annotation and an endpoint that make no sense.
func TestAServiceHearsOfItsFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, clienttest.New(t), newKernel(t), proxy.Options{})
		h.create(service(func(s *corev1.Service) {
			s.Annotations = map[string]string{proxy.ModeAnnotation: "magic"}
		}), slice("http", 8080, endpoint("127.0.0.1", "rs"), endpoint("10.1.0.2", "rs")))
		h.await("10.0.0.1:80/TCP → 10.1.0.2:8080, masquerade foreign")
		h.api.Await(t, func() error { return h.event("web", "InvalidAnnotation") })
		h.api.Await(t, func() error { return h.event("web", "AddressRefused") })
	})
}

// TestTheNodeIsFollowed moves it to another zone, and gives it an address from which it may
// connect to a load balancer.
func TestTheNodeIsFollowed(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "a"}}}
	balanced := service(func(s *corev1.Service) {
		s.Name, s.Spec.ClusterIP, s.Spec.Type = "balanced", "10.0.0.2", corev1.ServiceTypeLoadBalancer
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.80"}}
	})
	api := clienttest.New(t, node, balanced)
	h := start(t, api, newKernel(t), proxy.Options{Node: "n1"})
	hinted := func(address, zone string) discoveryv1.Endpoint {
		e := endpoint(address, "rs")
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
		return e
	}
	change := func(part string, change func(*corev1.Node)) {
		t.Helper()
		n, err := client.Nodes.Get(t.Context(), api, "", "n1")
		if err != nil {
			t.Fatal(err)
		}
		n = n.DeepCopy()
		change(n)
		if _, err := client.Nodes.Update(t.Context(), api, n, part); err != nil {
			t.Fatal(err)
		}
	}
	const (
		a       = "10.0.0.1:80/TCP → 10.1.0.2:8080, masquerade foreign"
		b       = "10.0.0.1:80/TCP → 10.1.0.3:8080, masquerade foreign"
		inside  = "10.0.0.2:80/TCP → nobody, masquerade foreign"
		outside = "203.0.113.80:80/TCP → nobody, only [192.0.2.0/24], masquerade"
		near    = "203.0.113.80:80/TCP → nobody, only [192.0.2.0/24 203.0.113.80/32], masquerade"
	)
	h.create(service(nil), slice("http", 8080, hinted("10.1.0.2", "a"), hinted("10.1.0.3", "b")))
	h.await(a, inside, outside)
	change("", func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "b" })
	h.await(b, inside, outside)
	change("status", func(n *corev1.Node) {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	})
	h.await(b, inside, near)
}

// TestAnotherProxyIsTold has one found on the node.
func TestAnotherProxyIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := clienttest.New(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		h := start(t, api, newKernel(t), proxy.Options{Node: "n1", Foreign: func() ([]string, error) {
			return []string{"kube-proxy in iptables mode"}, errors.New("and there may be more")
		}})
		api.Await(t, func() error { return h.event("n1", "ForeignServiceProxy") })
	})
}
