package proxy_test

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
)

// kernel is both sides of a node that a proxy works on: sockets and rules. It
// fails the test when a rule leads to a socket that is not there.
type kernel struct {
	t *testing.T

	mu      sync.Mutex
	sockets map[proxy.PoolID]netip.AddrPort // guarded by mu
	next    uint16                          // guarded by mu
	rules   map[string]netip.AddrPort       // guarded by mu
	closed  bool                            // guarded by mu
	changed chan struct{}                   // guarded by mu; closed and replaced by each change
}

func (k *kernel) note() {
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *kernel) Set(p proxy.Pool) (netip.AddrPort, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
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
	for rule, to := range k.rules {
		if to == k.sockets[id] {
			k.t.Errorf("socket of %v closed while %s leads to it", id, rule)
		}
	}
	delete(k.sockets, id)
	k.note()
}

func (k *kernel) Settle(context.Context) {}

func (k *kernel) Replace(all []proxy.Redirect) error {
	k.mu.Lock()
	clear(k.rules)
	k.mu.Unlock()
	return k.Update(nil, all)
}

func (k *kernel) Update(remove, add []proxy.Redirect) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range remove {
		if k.rules[ruleName(r)] != r.To {
			k.t.Errorf("removing %s, which is not there", ruleName(r))
		}
		delete(k.rules, ruleName(r))
	}
	for _, r := range add {
		k.rules[ruleName(r)] = r.To
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

func ruleName(r proxy.Redirect) string {
	if !r.Address.IsValid() {
		return fmt.Sprintf("node:%d", r.Port)
	}
	return fmt.Sprintf("%v:%d", r.Address, r.Port)
}

// await blocks until the rules are the ones given; the test's timeout is the
// limit.
func (k *kernel) await(want ...string) {
	k.t.Helper()
	for {
		k.mu.Lock()
		var have []string
		for r := range k.rules {
			have = append(have, r)
		}
		changed, sockets := k.changed, len(k.sockets)
		k.mu.Unlock()
		slices.SortFunc(have, cmp.Compare)
		if strings.Join(have, " ") == strings.Join(want, " ") && (len(want) > 0 || sockets == 0) {
			return
		}
		select {
		case <-changed:
		case <-k.t.Context().Done():
			k.t.Fatalf("rules are %v, want %v", have, want)
		}
	}
}

func TestTheRulesFollowTheCluster(t *testing.T) {
	api := clienttest.New(t)
	k := &kernel{t: t, sockets: map[proxy.PoolID]netip.AddrPort{}, rules: map[string]netip.AddrPort{}, changed: make(chan struct{})}
	p, err := proxy.New(proxy.Options{Client: api, Forwarder: k, Rules: k})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	create := func(svc *corev1.Service, s *discoveryv1.EndpointSlice) {
		t.Helper()
		_, err := client.Services.Create(t.Context(), api, svc)
		must(err)
		_, err = client.EndpointSlices.Create(t.Context(), api, s)
		must(err)
	}
	create(service(nil), slice("http", 8080, endpoint("10.1.0.2", "rs"))) // before the proxy starts

	g := run.NewGroup(context.Background(), 0)
	g.Go(func(ctx context.Context) {
		if err := p.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	defer func() {
		g.Stop()
		if !k.closed {
			t.Error("the rules are left behind")
		}
	}()
	<-p.Ready()
	k.await("10.0.0.1:80")

	second := service(func(s *corev1.Service) { s.Name, s.Spec.ClusterIP, s.Spec.Ports[0].NodePort = "api", "10.0.0.2", 30080 })
	their := slice("http", 8080, endpoint("10.1.0.3", "rs"))
	their.Name, their.Labels = "api-1", map[string]string{discoveryv1.LabelServiceName: "api"}
	create(second, their)
	k.await("10.0.0.1:80", "10.0.0.2:80", "node:30080")

	// Without a backend there is no rule, so that the kernel refuses.
	empty, err := client.EndpointSlices.Get(t.Context(), api, "default", "web-1")
	must(err)
	empty = empty.DeepCopy()
	empty.Endpoints = nil
	_, err = client.EndpointSlices.Update(t.Context(), api, empty, "")
	must(err)
	k.await("10.0.0.2:80", "node:30080")

	must(client.Services.Delete(t.Context(), api, "default", "web", metav1.DeleteOptions{}))
	must(client.Services.Delete(t.Context(), api, "default", "api", metav1.DeleteOptions{}))
	k.await()
}
