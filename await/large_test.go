package await_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
)

// A largeServer is a server with very many pods, which it makes for each request and does not keep.
type largeServer struct {
	client.Interface // nil: other requests panic
	pods             int
	ready            bool
	events           chan watch.Event // of pods; nil means that nothing happens
}

// pod makes one as large as pods are.
func (f *largeServer) pod(i int, ready bool) *corev1.Pod {
	name := fmt.Sprintf("web-%05d", i)
	p := &corev1.Pod{ObjectMeta: meta(name)}
	p.ResourceVersion = strconv.Itoa(1000 + i)
	p.Labels = map[string]string{"app": "web", "pod-template-hash": "5d8f7c9b4"}
	p.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}
	yes := true
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", UID: "uid-rs", Controller: &yes}}
	for m := range 3 {
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: fmt.Sprint("manager-", m), FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 700))})
	}
	for c := range 2 {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: fmt.Sprint("c", c), Image: "registry.example.com/some/thing:v1", Env: make([]corev1.EnvVar, 10), VolumeMounts: make([]corev1.VolumeMount, 2),
		})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: fmt.Sprint("c", c), ImageID: string(make([]byte, 70))})
	}
	p.Spec.Volumes = make([]corev1.Volume, 2)
	p.Status.Phase = corev1.PodPending
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable",
		Message: fmt.Sprintf("0/100 nodes are available: %d Insufficient cpu.", 100),
	}}
	if ready {
		isReady(p)
	}
	return p
}

func (f *largeServer) List(_ context.Context, gvr schema.GroupVersionResource, _ string, opts metav1.ListOptions) ([]kruntime.Object, metav1.ListMeta, error) {
	list := metav1.ListMeta{ResourceVersion: "1"}
	from, _ := strconv.Atoi(opts.Continue)
	upto := min(f.pods, from+int(opts.Limit))
	if upto < f.pods {
		list.Continue = strconv.Itoa(upto)
	}
	var items []kruntime.Object
	for i := from; i < upto; i++ {
		switch gvr.Resource {
		case "pods":
			items = append(items, f.pod(i, f.ready))
		case "events":
			e := warning(&corev1.Pod{ObjectMeta: meta(fmt.Sprintf("web-%05d", i))}, "FailedScheduling", fmt.Sprintf("0/100 nodes are available: %d Insufficient cpu.", 100))
			e.UID = types.UID(fmt.Sprint("event-", i))
			items = append(items, e)
		}
	}
	return items, list, nil
}

func (f *largeServer) Watch(ctx context.Context, gvr schema.GroupVersionResource, _ string, _ metav1.ListOptions) iter.Seq2[watch.Event, error] {
	return func(yield func(watch.Event, error) bool) {
		events := f.events
		if gvr.Resource != "pods" {
			events = nil
		}
		for {
			select {
			case e := <-events:
				if !yield(e, nil) {
					return
				}
			case <-ctx.Done():
				yield(watch.Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

// TestMemoryOfManyWaitingPods measures what a wait holds itself: the
// server here holds nothing. The bound is for the whole of it, 10,000 events
// included, and far below what the objects would be.
func TestMemoryOfManyWaitingPods(t *testing.T) {
	const pods, bound = 10000, 24 << 20
	f := &largeServer{pods: pods}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, goroutines := heap(), runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	told, all := 0, make(chan struct{})
	go func() {
		_, err := await.Until(ctx, f, await.Request{For: await.Ready, Targets: []await.Target{selected("app=web")}}, func(await.Progress) {
			if told++; told == pods { // pods and events have been read
				close(all)
			}
		})
		ended <- err
	}()
	<-all
	held := heap() - before
	t.Logf("%d KiB for %d pods, %d goroutines", held>>10, pods, runtime.NumGoroutine()-goroutines)
	if held > bound {
		t.Errorf("%d KiB are held, want at most %d", held>>10, bound>>10)
	}
	// The wait itself, one for each of the two sources.
	if n := runtime.NumGoroutine() - goroutines; n > 3 {
		t.Errorf("%d goroutines, want at most 3", n)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("it ended by itself")
	}
}

// BenchmarkReadyPods is one full decision; its cost should be ten times as much for
// ten times the pods.
func BenchmarkReadyPods(b *testing.B) {
	perPod := map[int]float64{}
	for _, pods := range []int{1000, 10000} {
		b.Run(strconv.Itoa(pods), func(b *testing.B) {
			f := &largeServer{pods: pods, ready: true}
			b.ReportAllocs()
			for b.Loop() {
				out, err := await.Until(b.Context(), f, await.Request{For: await.Ready, Targets: []await.Target{selected("app=web")}}, nil)
				if err != nil || out.Result != await.AllDone {
					b.Fatal(out.Result, err)
				}
			}
			perPod[pods] = float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(pods)
			b.ReportMetric(perPod[pods], "ns/pod")
		})
	}
	b.Logf("per pod, 10,000 cost %.2f times what 1,000 do", perPod[10000]/perPod[1000])
}

// BenchmarkEvent is what one event costs among so many members, and among so many
// parts of one member.
func BenchmarkEvent(b *testing.B) {
	for _, what := range []string{"members", "parts"} {
		perEvent := map[int]float64{}
		for _, pods := range []int{100, 10000} {
			b.Run(what+"/"+strconv.Itoa(pods), func(b *testing.B) {
				f := &largeServer{pods: pods, events: make(chan watch.Event)}
				req := await.Request{For: await.Ready, Targets: []await.Target{selected("app=web")}}
				var c client.Interface = f
				if what == "parts" {
					c = &ownedServer{largeServer: f}
					req.Targets = []await.Target{target(client.ReplicaSets, "web")}
				}
				want := pods
				if what == "parts" {
					want = 1
				}
				told, all := 0, make(chan struct{})
				ctx, cancel := context.WithCancel(b.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_, _ = await.Until(ctx, c, req, func(await.Progress) {
						if told++; told == want {
							close(all)
						}
					})
				}()
				<-all
				changed := [2]*corev1.Pod{f.pod(50, false), f.pod(50, true)}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					f.events <- watch.Event{Type: watch.Modified, Object: changed[i%2]}
					i++
				}
				perEvent[pods] = float64(b.Elapsed().Nanoseconds()) / float64(b.N)
				cancel()
				<-ended
			})
		}
		b.Logf("%s: an event among 10,000 costs %.2f times one among 100", what, perEvent[10000]/perEvent[100])
	}
}

// An ownedServer is a largeServer under one replica set.
type ownedServer struct{ *largeServer }

func (f *ownedServer) List(ctx context.Context, gvr schema.GroupVersionResource, ns string, opts metav1.ListOptions) ([]kruntime.Object, metav1.ListMeta, error) {
	if gvr == client.ReplicaSets.GroupVersionResource {
		rs := replicaSet(deployment(1, 0), "web", "1", int32(f.pods), 0)
		rs.UID = "uid-rs"
		return []kruntime.Object{rs}, metav1.ListMeta{ResourceVersion: "1"}, nil
	}
	return f.largeServer.List(ctx, gvr, ns, opts)
}

// TestCostPerMember counts allocations, which clocks do not
// disturb.
func TestCostPerMember(t *testing.T) {
	allocs := func(pods int) float64 {
		f := &largeServer{pods: pods, ready: true}
		total := testing.AllocsPerRun(3, func() {
			out, err := await.Until(t.Context(), f, await.Request{For: await.Ready, Targets: []await.Target{selected("app=web")}, Timeout: time.Minute}, nil)
			if err != nil || out.Result != await.AllDone {
				t.Fatal(out.Result, err)
			}
		})
		none := testing.AllocsPerRun(3, func() {
			for i := range pods {
				f.pod(i, true)
			}
		})
		return (total - none) / float64(pods)
	}
	few, many := allocs(500), allocs(5000)
	t.Logf("%.1f allocations per pod among 500, %.1f among 5,000", few, many)
	if many > few*1.2+1 {
		t.Errorf("%.1f allocations per pod among 5,000, %.1f among 500: want no more", many, few)
	}
}
