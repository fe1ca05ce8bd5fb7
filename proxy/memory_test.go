package proxy_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
)

// forgetful is a kernel and forwarder that keeps nothing.
type forgetful struct{}

func (forgetful) Replace(context.Context, []proxy.Rule) error  { return nil }
func (forgetful) Update(context.Context, []proxy.Change) error { return nil }
func (forgetful) Settle(context.Context)                       {}
func (forgetful) Run(context.Context) error                    { return nil }
func (forgetful) Restore() error                               { return nil }
func (forgetful) Tallies(context.Context) (map[proxy.Frontend]proxy.Tally, error) {
	return nil, nil
}

func (forgetful) Forget(context.Context, []proxy.Frontend) (map[proxy.Frontend]proxy.Tally, error) {
	return nil, nil
}
func (forgetful) Close() error                           { return nil }
func (forgetful) Set(proxy.Pool) (netip.AddrPort, error) { return netip.AddrPort{}, nil }
func (forgetful) Remove(proxy.PoolID)                    {}

// TestAnEndpointTakesLittleMemory counts what a proxy with caches of its own holds for Services of 5 endpoints
// each. What the kernel's rules take in the process is not in it.
func TestAnEndpointTakesLittleMemory(t *testing.T) {
	const services, each, limit = 2000, 5, 1 << 10
	api := clienttest.New(t)
	before := &cluster{t, nil, api, nil}
	for i := range services {
		name := fmt.Sprintf("service-%d", i)
		svc := service(func(s *corev1.Service) {
			s.Name, s.Spec.ClusterIP = name, fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)
			s.Spec.Selector = map[string]string{"app.kubernetes.io/name": name}
		})
		sl := slice("http", 8080)
		sl.Name, sl.Labels = name+"-x7x8x", map[string]string{discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
		for j := range each {
			e := endpoint(fmt.Sprintf("10.%d.%d.%d", j+1, i/250, i%250+1), "rs")
			e.NodeName = new(fmt.Sprintf("node-%d", (i+j)%100))
			e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: fmt.Sprintf("%s-%d", name, j), UID: "0a1b2c3d-0a1b-2c3d-4e5f-0a1b2c3d4e5f"}
			sl.Endpoints = append(sl.Endpoints, e)
		}
		sl.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: name, UID: "0a1b2c3d"}}
		before.create(svc, sl)
	}
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	without := heap()
	p, err := proxy.New(proxy.Options{Client: api, Forwarder: forgetful{}, Kernel: forgetful{}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.Background(), 0)
	g.Go(func(ctx context.Context) { _ = p.Run(ctx) })
	defer g.Stop()
	<-p.Ready()
	per := (heap() - without) / (services * each)
	runtime.KeepAlive(p)
	t.Logf("%d bytes for an endpoint", per)
	if per > limit || per <= 0 {
		t.Errorf("an endpoint takes %d bytes, want at most %d", per, limit)
	}
}
