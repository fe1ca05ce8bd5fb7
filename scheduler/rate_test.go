package scheduler_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/apiserver/rbac"
	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
)

// durable returns a server whose store is on a disk.
func durable(t testing.TB) *apiserver.Server {
	t.Helper()
	backend, err := disk.Open(t.TempDir(), disk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return apiservertest.Open(t, func(o *apiserver.Options) {
		st, err := store.Open(t.Context(), backend, store.Options{Decode: apiserver.NewLoader(o.Catalog).Decode, Terms: apiserver.Terms(o.Catalog)})
		if err != nil {
			t.Fatal(err)
		}
		g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
		g.Go(func(ctx context.Context) {
			if err := st.Run(ctx); err != nil {
				t.Errorf("the store ended with %v", err)
			}
		})
		t.Cleanup(g.Stop)
		<-st.Ready()
		o.Store, o.Authorizer = st, rbac.New(rbac.Options{Policy: rbac.NewPolicy(bootstrappolicy.All()), Objects: operation.NewReader(o.Catalog, st)})
	})
}

func waitingPod(i int, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprintf("web-%05d", i), Labels: map[string]string{"app": "web"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "registry.example/web:v1", Env: []corev1.EnvVar{{Name: "A", Value: "b"}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
			}},
		}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

// cpu returns the processor time that this process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRate binds 5,000 pods that wait to 5,000 nodes, durably, with the API server in the same process; first
// with the scheduler at rest until all are there, then as they are created by 32 clients.
func BenchmarkRate(b *testing.B) {
	for b.Loop() {
		rate(b, 5000, 5000, nil)
	}
}

func rate(b *testing.B, nodes, pods int, change func(*corev1.Pod)) {
	b.Helper()
	server := durable(b)
	boss := server.As(auth.User{Name: "boss", Groups: []string{"system:masters"}})
	create := func(n int, f func(i int) error) {
		g := run.NewGroup(b.Context(), 32)
		for i := range n {
			g.Go(func(context.Context) {
				if err := f(i); err != nil {
					b.Error(err)
				}
			})
		}
		g.Wait()
	}
	if _, err := client.Namespaces.Create(b.Context(), boss, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}); err != nil {
		b.Fatal(err)
	}
	create(nodes, func(i int) error {
		n := node(fmt.Sprintf("node-%05d", i), fmt.Sprintf("%s=zone-%02d", corev1.LabelTopologyZone, i%100))
		n.UID = ""
		_, err := client.Nodes.Create(b.Context(), boss, n)
		return err
	})
	create(pods, func(i int) error {
		_, err := client.Pods.Create(b.Context(), boss, waitingPod(i, change))
		return err
	})
	bound := make(chan time.Time, 2*pods)
	watcher := cache.New(boss, client.Pods, cache.Options[*corev1.Pod]{})
	watcher.Subscribe(func(before, after *corev1.Pod) {
		if after != nil && after.Spec.NodeName != "" && (before == nil || before.Spec.NodeName == "") {
			bound <- time.Now()
		}
	})
	s, err := scheduler.New(scheduler.Options{Client: server.As(auth.User{Name: "system:kube-scheduler", Groups: []string{"system:authenticated"}}), Plugins: builtin.Default()})
	if err != nil {
		b.Fatal(err)
	}
	g := run.NewGroup(b.Context(), 0)
	defer g.Stop()
	g.Go(func(ctx context.Context) { _ = watcher.Run(ctx) })
	<-watcher.Ready()
	g.Go(func(ctx context.Context) { _ = s.Run(ctx) })
	await := func(n int) float64 {
		var first, last time.Time
		for range n {
			select {
			case at := <-bound:
				if first.IsZero() {
					first = at
				}
				last = at
			case <-time.After(time.Minute):
				b.Fatal("not all are bound")
			}
		}
		return float64(n-1) / last.Sub(first).Seconds()
	}
	began := cpu(b)
	b.ReportMetric(await(pods), "pods/s")
	b.ReportMetric(float64((cpu(b)-began).Microseconds())/float64(pods), "cpu-µs/pod")
	began = cpu(b)
	create(pods, func(i int) error {
		_, err := client.Pods.Create(b.Context(), boss, waitingPod(pods+i, change))
		return err
	})
	b.ReportMetric(await(pods), "live-pods/s")
	b.ReportMetric(float64((cpu(b)-began).Microseconds())/float64(pods), "live-cpu-µs/pod")
}
