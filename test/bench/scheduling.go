package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

const (
	manyNodes = 5000
	manyPods  = 5000
)

// scheduling measures the rate of scheduling: of pods that were pending when the scheduler started, of pods created
// while it runs, and the latency of one pod on an idle cluster. Each binding is durable before it is seen. The figures of
// upstream were taken with the same objects on a similar machine: the result is the ratio.
func (b *bench) scheduling(ctx context.Context) error {
	api, err := b.fast()
	if err != nil {
		return err
	}
	if err := b.idleBinding(ctx, api); err != nil {
		return err
	}
	if err := bareNodes(ctx, api, 0, manyNodes); err != nil {
		return err
	}
	bound, err := b.waited(ctx, api, "waits", manyPods, nil)
	if err != nil {
		return err
	}
	b.rate(fmt.Sprintf("%d pods that waited, %d nodes", manyPods, manyNodes), bound, 484, ">= 9000/s")
	bound, err = awaitBound(ctx, api, "live", manyPods, func() error {
		return inParallel(manyPods, func(i int) error {
			_, err := api.CoreV1().Pods("default").Create(ctx, pendingPod("live", i, corev1.DefaultSchedulerName), metav1.CreateOptions{})
			return err
		})
	})
	if err != nil {
		return err
	}
	b.rate(fmt.Sprintf("%d pods created by 32 clients, %d nodes", manyPods, manyNodes), bound, 307, ">= 2500/s")
	return nil
}

// bareNodes makes nodes from first to last-1.
func bareNodes(ctx context.Context, api kubernetes.Interface, first, last int) error {
	return inParallel(last-first, func(i int) error {
		_, err := api.CoreV1().Nodes().Create(ctx, bareNode(first+i), metav1.CreateOptions{})
		return err
	})
}

// waited has n pods of a crowd wait for a scheduler that knows their name, which comes with the next start, and watches it bind
// them. Change, if there is one, gives them more than pendingPod does.
func (b *bench) waited(ctx context.Context, api kubernetes.Interface, crowd string, n int, change func(*corev1.Pod)) (bindings, error) {
	err := inParallel(n, func(i int) error {
		p := pendingPod(crowd, i, crowd)
		if change != nil {
			change(p)
		}
		_, err := api.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return bindings{}, err
	}
	if _, err := b.sampan(ctx, "down"); err != nil {
		return bindings{}, err
	}
	file := filepath.Join(b.dir, "scheduler.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: default-scheduler}, {schedulerName: "+crowd+"}]\n"), 0o600); err != nil {
		return bindings{}, err
	}
	started := make(chan error, 1)
	go func() {
		_, err := b.sampan(ctx, "up", "--simulated-nodes=1", "--scheduler-config="+file)
		started <- err
	}()
	bound, err := awaitBound(ctx, api, crowd, n, nil)
	return bound, errors.Join(err, <-started)
}

// fast returns a client without limits that asks for protobuf, whose decoding takes less of the two cores.
func (b *bench) fast() (kubernetes.Interface, error) {
	cfg, err := b.config()
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	cfg.AcceptContentTypes, cfg.ContentType = "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf"
	return kubernetes.NewForConfig(cfg)
}

// bindings are what a watcher saw.
type bindings struct {
	n           int
	first, last time.Time
	warm        time.Time // when a fifth of the pending pods had been bound
	warmAt      int       // the number of pods bound by then
}

// perSecond is their rate.
func (s bindings) perSecond() float64 { return float64(s.n-1) / s.last.Sub(s.first).Seconds() }

// perPod is how long one took in the end: without the first fifth, during which the
// server is still starting.
func (s bindings) perPod() time.Duration {
	return s.last.Sub(s.warm) / time.Duration(max(1, s.n-s.warmAt))
}

func (b *bench) rate(what string, seen bindings, upstream float64, goal string) {
	rate := seen.perSecond()
	b.row("scheduling, "+what, fmt.Sprintf("%.0f pods/s", rate), fmt.Sprintf("upstream %.0f pods/s", upstream), fmt.Sprintf("%.1f times", rate/upstream), goal)
}

// idleBinding measures the time from the request to create a pod until a watcher sees it bound.
func (b *bench) idleBinding(ctx context.Context, api kubernetes.Interface) error {
	floor, err := syncTime(b.dir)
	if err != nil {
		return err
	}
	var took []time.Duration
	for i := range 100 {
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
		var began time.Time
		seen, err := awaitBound(ctx, api, "idle", 1, func() error {
			pod := pendingPod("idle", i, corev1.DefaultSchedulerName)
			pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{} // all of them fit on the one node
			began = time.Now()
			_, err := api.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return err
		}
		took = append(took, seen.last.Sub(began))
	}
	b.against("pod on an idle cluster, create to bound, p50 (upstream 6–9 ms)", median(took), 2*floor, "<= 4 ms")
	b.against("pod on an idle cluster, create to bound, p99", quantile(took, 0.99), 2*floor, "<= 10 ms")
	return nil
}

// syncTime returns the median time of a write that is synced.
func syncTime(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "sync-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(f.Name()); _ = f.Close() }()
	var took []time.Duration
	for range 100 {
		began := time.Now()
		if _, err := f.Write(make([]byte, 2048)); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	return median(took), nil
}

// awaitBound watches until n pods of a crowd have been bound since the watch began, which is before act is called. Pods
// that were bound before count, but not for the rate. It retries while the server is not up yet.
func awaitBound(ctx context.Context, api kubernetes.Interface, crowd string, n int, act func() error) (bindings, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var out bindings
	var list *corev1.PodList
	var w watch.Interface
	var err error
	of := crowdLabel + "=" + crowd
	for {
		if list, err = api.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: of}); err == nil {
			if w, err = api.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{LabelSelector: of, ResourceVersion: list.ResourceVersion}); err == nil {
				break
			}
		}
		if act != nil || ctx.Err() != nil {
			return out, err
		}
		if err := pause(ctx, time.Millisecond); err != nil {
			return out, err
		}
	}
	defer w.Stop()
	waits := map[string]bool{}
	left := n
	for i := range list.Items {
		p := &list.Items[i]
		if waits[p.Name] = p.Spec.NodeName == ""; p.Spec.NodeName != "" && act == nil {
			left--
		}
	}
	out.warmAt = left / 5
	failed := make(chan error, 1)
	if act != nil {
		go func() { failed <- act() }()
	}
	for left > 0 {
		select {
		case err := <-failed:
			if err != nil {
				return out, err
			}
			failed = nil
		case e, ok := <-w.ResultChan():
			if !ok {
				return out, errors.New("the watch ended")
			}
			p, isPod := e.Object.(*corev1.Pod)
			if isPod && p.Spec.NodeName == "" {
				waits[p.Name] = true
			}
			if !isPod || p.Spec.NodeName == "" || !waits[p.Name] {
				continue
			}
			waits[p.Name] = false
			out.last = time.Now()
			if out.n++; out.n == 1 {
				out.first = out.last
			}
			if out.n == out.warmAt {
				out.warm = out.last
			}
			left--
		}
	}
	if act != nil && failed != nil {
		return out, <-failed
	}
	return out, nil
}

// inParallel calls f for 0 to n-1, 32 at a time.
func inParallel(n int, f func(i int) error) error {
	const at = 32
	errs := make([]error, at)
	var g sync.WaitGroup
	for worker := range at {
		g.Go(func() {
			for i := worker; i < n && errs[worker] == nil; i += at {
				errs[worker] = f(i)
			}
		})
	}
	g.Wait()
	return errors.Join(errs...)
}

// bareLabel is what nodes without agents have.
const bareLabel = "bare"

// bareNode is a node without an agent, in one of a hundred zones.
func bareNode(i int) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("bare-%05d", i), Labels: map[string]string{corev1.LabelHostname: fmt.Sprintf("bare-%05d", i), corev1.LabelTopologyZone: fmt.Sprintf("zone-%02d", i%100), bareLabel: "yes"},
		},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("110"),
		}},
	}
}

// crowdLabel says of a pod with which others it is measured.
const crowdLabel = "crowd"

// pendingPod is the i-th pod of a crowd. It tolerates all taints, since no agent keeps the nodes ready.
func pendingPod(crowd string, i int, scheduler string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", crowd, i), Labels: map[string]string{crowdLabel: crowd}},
		Spec: corev1.PodSpec{
			SchedulerName: scheduler,
			Tolerations:   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "main", Image: "any", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("500Mi")},
			}}},
		},
	}
}
