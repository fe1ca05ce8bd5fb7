package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/probe"
)

// maxProbes is how many probeSlots the agent has open at once.
const maxProbes = 64

// probing is the readiness probe of one running container.
type probing struct {
	counter   *probe.Counter
	probe     *corev1.Probe
	container *corev1.Container
	asking    bool
}

// probe starts the probes that are due and returns when the next one is.
func (w *worker) probe(now time.Time) time.Time {
	var next time.Time
	alive := 0
	for _, c := range w.view.Containers {
		if c.State != lifecycle.Running {
			continue
		}
		p := w.probing[c.ID]
		if p == nil {
			if p = w.newProbing(c, now); p == nil {
				continue
			}
			w.probing[c.ID] = p
		}
		alive++
		if p.asking || w.view.Deleting() || w.view.Finished() {
			continue // an ending pod is taken out of the services by its deletion
		}
		if now.Before(p.counter.Next) {
			next = earliest(next, p.counter.Next)
			continue
		}
		p.asking = true
		w.ask(c.ID, *p, w.view.Last.PodIP)
	}
	if alive < len(w.probing) {
		w.forgetProbes()
	}
	return next
}

func (w *worker) newProbing(c lifecycle.Container, now time.Time) *probing {
	for i := range w.view.Pod.Spec.Containers {
		container := &w.view.Pod.Spec.Containers[i]
		if container.Name != c.Name || container.ReadinessProbe == nil {
			continue
		}
		p := &probing{
			counter: probe.NewCounter(container.ReadinessProbe, c.StartedAt),
			probe:   container.ReadinessProbe, container: container,
		}
		if id := w.n.scheme.ID(c.ID); w.adoptedReady[id] {
			// It was ready under the agent before this one. It stays so until it
			// says otherwise: no service loses its endpoints by our restart.
			p.counter.Verdict, w.view.Memory.Ready[c.ID] = true, true
			p.counter.Spread(now)
			delete(w.adoptedReady, id)
		}
		return p
	}
	return nil
}

func (w *worker) forgetProbes() {
	for id := range w.probing {
		found := false
		for _, c := range w.view.Containers {
			found = found || c.ID == id && c.State == lifecycle.Running
		}
		if !found {
			delete(w.probing, id)
			delete(w.view.Memory.Ready, id)
		}
	}
}

// ask runs one probe in a separate goroutine.
func (w *worker) ask(id string, p probing, ip string) {
	w.ops.Go(func(ctx context.Context) {
		select {
		case w.n.probeSlots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		limited, cancel := context.WithTimeout(ctx, probe.Timeout(p.probe))
		err := run.Catch(func() error { return w.n.opts.Prober.Probe(limited, p.probe, p.container, id, ip) })
		cancel()
		<-w.n.probeSlots
		w.post(func() { w.answered(ctx, id, err) })
	})
}

func (w *worker) answered(ctx context.Context, id string, err error) {
	p := w.probing[id]
	if p == nil || ctx.Err() != nil {
		return
	}
	p.asking = false
	if err != nil && !p.counter.Starting() {
		w.containerEvent(p.container.Name, corev1.EventTypeWarning, "Unhealthy", "Readiness probe failed: %v", err)
	}
	p.counter.Answer(err == nil, time.Now())
	w.view.Memory.Ready[id] = p.counter.Verdict
}
