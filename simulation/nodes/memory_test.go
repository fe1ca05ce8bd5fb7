package nodes_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/simulation"
)

// TestAnIdleNodeIsSmall pins what a node without pods takes in the agent: the objects
// themselves are the API server's, and shared.
func TestAnIdleNodeIsSmall(t *testing.T) {
	const nodes, limit = 5000, 4 << 10
	r := &rig{TB: t, api: clienttest.New(t), plan: simulation.Uniform("n", nodes)}
	stop := r.start() // makes the objects
	r.api.Await(t, func() error {
		if n := len(clienttest.All(r.api, client.Leases, corev1.NamespaceNodeLease)); n < nodes {
			return fmt.Errorf("%d leases", n)
		}
		return nil
	})
	stop()
	r.f = nil
	// The model of a server remembers requests and what they changed, which is not to be
	// counted.
	r.api.Intercept(func(q clienttest.Request) error {
		if q.Resource == "leases" {
			return apierrors.NewServiceUnavailable("not now")
		}
		return nil
	})
	r.api.Writes()
	before, goroutines := inUse(), runtime.NumGoroutine()
	stop = r.start()
	defer stop()
	r.api.Writes()
	each := int64(inUse()-before) / nodes
	t.Logf("%d bytes for each of %d nodes, and %d goroutines for all", each, nodes, runtime.NumGoroutine()-goroutines)
	if each > limit {
		t.Errorf("an idle node takes %d bytes in the agent, want at most %d", each, limit)
	}
	// One for each task and watch, and for each lease that is being renewed.
	if n := runtime.NumGoroutine() - goroutines; n > 50 {
		t.Errorf("%d nodes have %d goroutines, want as many as one has", nodes, n)
	}
	runtime.KeepAlive(r.f)
}

// inUse returns the size of the living heap.
func inUse() uint64 {
	runtime.GC()
	runtime.GC() // what the first one finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkPods brings pods to Running on many nodes and then has them deleted, 100 and
// then 400 at once: what a pod costs must not grow with their number.
func BenchmarkPods(b *testing.B) {
	r := &rig{TB: b, api: clienttest.New(b), plan: simulation.Uniform("n", 100)}
	defer r.start()()
	var small, large time.Duration
	rounds := 0
	for b.Loop() {
		small += r.comeAndGo(100)
		large += r.comeAndGo(400)
		rounds++
	}
	b.ReportMetric(float64(large)/float64(4*small), "x/4x-pods")
	b.ReportMetric(float64(large.Microseconds())/float64(400*rounds), "µs/pod-of-400")
}

// comeAndGo makes pods, waits until all are ready, deletes them and waits until all are
// gone.
func (r *rig) comeAndGo(n int) time.Duration {
	began := time.Now()
	name := func(i int) string { return fmt.Sprint("p", i) }
	for i := range n {
		r.create(newPod(name(i), fmt.Sprint("n-", i%100)))
	}
	all := func(is func(*corev1.Pod) bool) {
		i := 0
		r.api.Await(r, func() error {
			for ; i < n; i++ {
				if !is(r.pod(name(i))) {
					return fmt.Errorf("pod %d is not so yet", i)
				}
			}
			return nil
		})
	}
	all(isReady)
	for i := range n {
		r.delete(name(i), 30)
	}
	all(func(p *corev1.Pod) bool { return p == nil })
	return time.Since(began)
}
