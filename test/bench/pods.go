package main

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func (b *bench) config() (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", filepath.Join(b.data(), "admin.kubeconfig"))
}

func (b *bench) client() (kubernetes.Interface, error) {
	cfg, err := b.config()
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	return kubernetes.NewForConfig(cfg)
}

// pods measures one pod at a time, from the request to Running and from its
// deletion to its end, and fifty at once. The floor is the start of a process of the
// same kind without a container.
func (b *bench) pods(ctx context.Context) error {
	api, err := b.client()
	if err != nil {
		return err
	}
	const n = 20
	var floor, running, gone []time.Duration
	for i := range n + 1 {
		began := time.Now()
		if err := exec.CommandContext(ctx, b.program, "version", "--client").Run(); err != nil {
			return err
		}
		process := time.Since(began)
		name := fmt.Sprintf("bench-%d", i)
		began = time.Now()
		if err := createPod(ctx, api, name); err != nil {
			return err
		}
		if err := awaitPods(ctx, api, 1, isRunning); err != nil {
			return err
		}
		up := time.Since(began)
		// The first process of a container doesn't hear a signal before it asks for
		// it, and would be waited for through its whole grace period.
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		began = time.Now()
		if err := api.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		if err := awaitPods(ctx, api, 0, nil); err != nil {
			return err
		}
		if i > 0 { // the first one warms up
			floor, running, gone = append(floor, process), append(running, up), append(gone, time.Since(began))
		}
	}
	b.against("pod, create to Running, p50", median(running), median(floor), "<= 100 ms")
	b.against("pod, create to Running, p99", quantile(running, 0.99), median(floor), "")
	b.against("pod, delete to gone, p50", median(gone), median(floor), "<= 150 ms")
	const many = 50
	began := time.Now()
	for i := range many {
		if err := createPod(ctx, api, fmt.Sprintf("many-%d", i)); err != nil {
			return err
		}
	}
	if err := awaitPods(ctx, api, many, isRunning); err != nil {
		return err
	}
	b.against("50 pods at once, all Running", time.Since(began), many*median(floor)/2, "<= 2 s")
	return nil
}

func isRunning(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning }

func createPod(ctx context.Context, api kubernetes.Interface, name string) error {
	_, err := api.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "sampan.local/demo:v1", Args: []string{"sleep"},
		}}},
	}, metav1.CreateOptions{})
	return err
}

// awaitPods watches until there are so many pods for which ok holds, or, with 0,
// none at all.
func awaitPods(ctx context.Context, api kubernetes.Interface, n int, ok func(*corev1.Pod) bool) error {
	l, err := api.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	good, all := map[string]bool{}, map[string]bool{}
	see := func(p *corev1.Pod, there bool) {
		if there {
			all[p.Name] = true
		} else {
			delete(all, p.Name)
		}
		if there && ok != nil && ok(p) {
			good[p.Name] = true
		}
	}
	for i := range l.Items {
		see(&l.Items[i], true)
	}
	met := func() bool {
		if n == 0 {
			return len(all) == 0
		}
		return len(good) >= n
	}
	if met() {
		return nil
	}
	w, err := api.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{ResourceVersion: l.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		p, isPod := e.Object.(*corev1.Pod)
		if !isPod {
			return fmt.Errorf("watching pods: %v", e.Object)
		}
		if see(p, e.Type != "DELETED"); met() {
			return nil
		}
	}
	return fmt.Errorf("the watch of pods ended: %w", context.Cause(ctx))
}

// waiting measures how long after a change `sampan wait` returns. The floor is a
// watch in this process that sees the same change.
func (b *bench) waiting(ctx context.Context) error {
	api, err := b.client()
	if err != nil {
		return err
	}
	const n = 20
	var floor, returned []time.Duration
	maps := api.CoreV1().ConfigMaps("default")
	for i := range n {
		name := fmt.Sprintf("wait-%d", i)
		if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, b.program, "--kubeconfig="+filepath.Join(b.data(), "admin.kubeconfig"), "wait", "configmap/"+name, "--for=jsonpath={.data.a}=b", "--timeout=60s")
		says, err := cmd.StderrPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		// It says what it waits for once it has looked and has to wait.
		if !bufio.NewScanner(says).Scan() {
			return fmt.Errorf("sampan wait says nothing: %w", cmd.Wait())
		}
		w, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
		if err != nil {
			return err
		}
		<-w.ResultChan() // what is there
		began := time.Now()
		seen := make(chan time.Duration, 1)
		go func() {
			<-w.ResultChan()
			seen <- time.Since(began)
		}()
		if _, err := maps.Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("sampan wait: %w", err)
		}
		returned = append(returned, time.Since(began))
		floor = append(floor, <-seen)
		w.Stop()
	}
	b.against("sampan wait, change to return, p50", median(returned), median(floor), "<= 10 ms")
	return nil
}
