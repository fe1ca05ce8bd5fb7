package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// informers kills the server and starts it again while 1,000 informers of client-go follow ConfigMaps, and counts the
// lists that they ask for until each has received a later object. The floor of the time is that of a later start.
func (b *bench) informers(ctx context.Context) error {
	const many = 1000
	cfg, err := b.config()
	if err != nil {
		return err
	}
	lists := &atomic.Int64{}
	cfg.QPS, cfg.Burst = -1, 0
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return listCounter{next, lists} })
	api, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := make(chan string, 4*many)
	var all []cache.SharedIndexInformer
	for range many {
		f := informers.NewSharedInformerFactoryWithOptions(api, 0, informers.WithNamespace("default"))
		i := f.Core().V1().ConfigMaps().Informer()
		_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			if m, ok := obj.(*corev1.ConfigMap); ok && strings.HasPrefix(m.Name, "marker-") {
				seen <- m.Name
			}
		}})
		if err != nil {
			return err
		}
		f.Start(ctx.Done())
		all = append(all, i)
	}
	for _, i := range all {
		if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
			return context.Cause(ctx)
		}
	}
	mark := func(name string) error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := api.CoreV1().ConfigMaps("default").Create(ctx, m, metav1.CreateOptions{}); err != nil {
			return err
		}
		deadline := time.After(2 * time.Minute)
		for n := 0; n < many; {
			select {
			case got := <-seen:
				if got == name {
					n++
				}
			case <-deadline:
				return fmt.Errorf("%d of %d informers received %s", n, many, name)
			}
		}
		return nil
	}
	if err := mark("marker-before"); err != nil {
		return err
	}
	pid, err := b.process()
	if err != nil {
		return err
	}
	first := lists.Load()
	if first < many {
		return fmt.Errorf("%d informers began with %d lists", many, first)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	for syscall.Kill(pid, 0) == nil {
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	began := time.Now()
	if _, err := b.sampan(ctx, "up"); err != nil {
		return err
	}
	start := time.Since(began)
	if err := mark("marker-after"); err != nil {
		return err
	}
	b.row(fmt.Sprintf("lists of %d informers after kill -9 and a start (first they had %d)", many, first), fmt.Sprint(lists.Load()-first), "", "", "0")
	b.against("  from the start until each has a new object", time.Since(began), start, "")
	return nil
}

// A listCounter counts the requests that transfer all objects: lists, and watches that begin with them.
type listCounter struct {
	next  http.RoundTripper
	lists *atomic.Int64
}

func (c listCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	if q := r.URL.Query(); r.Method == http.MethodGet && (q.Get("watch") == "" || q.Get("sendInitialEvents") == "true") {
		c.lists.Add(1)
	}
	return c.next.RoundTrip(r)
}
