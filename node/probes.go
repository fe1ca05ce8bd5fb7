package node

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/lifecycle"
	"github.com/sampan-io/sampan/node/metrics"
	"github.com/sampan-io/sampan/node/probe"
)

// maxProbes is how many probes the agent runs at once. It is more than a node usually has: a probe that hangs takes one place
// until its own timeout, and delays no other.
const maxProbes = 512

// A probeKey names a probe of one attempt at a container.
type probeKey struct {
	id   string // of the container in the runtime
	kind probe.Kind
}

// probing is one probe of a running container.
type probing struct {
	key       probeKey
	counter   *probe.Counter
	probe     *corev1.Probe
	container *corev1.Container
	metrics   metrics.Probe
	asking    bool
	done      bool // the result is final for this attempt
}

// probe starts the probes that are due and returns when the next one is.
func (w *worker) probe(now time.Time) time.Time {
	var next time.Time
	running := 0
	for _, c := range w.view.Containers {
		if c.State != lifecycle.Running {
			continue
		}
		running++
		if !w.probes.containers[c.ID] {
			w.addProbes(c, now)
		}
		if _, hooked := w.view.Memory.Hooked[c.Name]; hooked || w.view.Finished() {
			continue
		}
		for _, kind := range []probe.Kind{probe.Startup, probe.Liveness, probe.Readiness} {
			if p := w.probes.running[probeKey{c.ID, kind}]; p != nil {
				next = earliest(next, w.ask(p, now))
			}
		}
	}
	if running < len(w.probes.containers) {
		w.forgetProbes()
	}
	return next
}

// addProbes prepares the probes of a container that runs.
func (w *worker) addProbes(c lifecycle.Container, now time.Time) {
	w.probes.containers[c.ID] = true
	spec, isInit := lifecycle.Spec(w.view.Pod, c.Name)
	if spec == nil || isInit && !lifecycle.IsSidecar(spec) {
		return
	}
	m, id := &w.view.Memory, w.n.abilities.scheme.ID(c.ID)
	add := func(kind probe.Kind, p *corev1.Probe) *probing {
		if p == nil {
			return nil
		}
		a := &probing{key: probeKey{c.ID, kind}, counter: probe.NewCounter(kind, p, c.StartedAt), probe: p, container: spec}
		w.probes.running[a.key] = a
		return a
	}
	// Results under the agent before this one hold until a probe says otherwise: no service loses its endpoints by a restart
	// of the agent.
	if p := add(probe.Startup, spec.StartupProbe); p != nil && w.probes.adoptedStarted[id] {
		p.done, m.Started[c.ID] = true, true
	}
	if p := add(probe.Liveness, spec.LivenessProbe); p != nil && w.probes.adoptedStarted[id] {
		p.counter.Spread(now)
	}
	if p := add(probe.Readiness, spec.ReadinessProbe); p != nil && w.probes.adoptedReady[id] {
		p.counter.Verdict, m.Ready[c.ID] = true, true
		p.counter.Spread(now)
	}
	delete(w.probes.adoptedReady, id)
	delete(w.probes.adoptedStarted, id)
}

// ask starts a probe if it is due, and returns when it will be. Readiness and liveness wait for the startup probe. An ending
// pod is probed for its readiness alone.
func (w *worker) ask(p *probing, now time.Time) time.Time {
	waits := p.key.kind != probe.Startup && p.container.StartupProbe != nil && !w.view.Memory.Started[p.key.id]
	ends := p.key.kind != probe.Readiness && (w.view.Deleting() || w.view.Memory.Unfit[p.key.id] != "")
	if p.asking || p.done || waits || ends {
		return time.Time{}
	}
	if now.Before(p.counter.Next) {
		return p.counter.Next
	}
	p.asking = true
	spec, container, id, kind, ip, pod := p.probe, p.container, p.key.id, p.key.kind, w.view.Last.PodIP, w.view.Pod
	w.ops.Go(func(ctx context.Context) {
		select {
		case w.n.starts.probes <- struct{}{}:
		case <-ctx.Done():
			return
		}
		limited, cancel := context.WithTimeout(ctx, probe.Timeout(spec))
		began := time.Now()
		err := run.Catch(func() error { return w.n.opts.Prober.Probe(limited, spec, container, id, ip) })
		cancel()
		<-w.n.starts.probes
		if ctx.Err() == nil {
			w.n.metrics.Probed(&p.metrics, pod, container.Name, string(kind), resultOf(err), time.Since(began))
		}
		w.post(func() { w.answered(ctx, p, err) })
	})
	return time.Time{}
}

func (w *worker) forgetProbes() {
	running := map[string]bool{}
	for _, c := range w.view.Containers {
		running[c.ID] = c.State == lifecycle.Running
	}
	for key := range w.probes.running {
		if !running[key.id] {
			delete(w.probes.running, key)
		}
	}
	for id := range w.probes.containers {
		if !running[id] {
			delete(w.probes.containers, id)
			delete(w.view.Memory.Ready, id)
			delete(w.view.Memory.Started, id)
		}
	}
}

// resultOf returns the name that metrics have for the result of a probe.
func resultOf(err error) string {
	var warning *probe.Warning
	var unknown *probe.Unknown
	switch {
	case err == nil, errors.As(err, &warning):
		return metrics.ProbeSuccessful
	case errors.As(err, &unknown):
		return metrics.ProbeUnknown
	}
	return metrics.ProbeFailed
}

// answered handles the result of a probe.
func (w *worker) answered(ctx context.Context, p *probing, err error) {
	if w.probes.running[p.key] != p || ctx.Err() != nil {
		return
	}
	p.asking = false
	now, kind, name := time.Now(), p.key.kind, p.container.Name
	var warning *probe.Warning
	var unknown *probe.Unknown
	switch {
	case errors.As(err, &unknown):
		w.containerEvent(name, corev1.EventTypeWarning, "Unhealthy", "%s probe errored and resulted in unknown state: %v", kind, err)
		p.counter.Skip(now)
		return
	case errors.As(err, &warning):
		w.containerEvent(name, corev1.EventTypeWarning, "ProbeWarning", "%s probe warning: %s", kind, warning.Text)
		err = nil
	}
	p.counter.Answer(err == nil, now)
	if err != nil && !p.counter.Starting() {
		w.containerEvent(name, corev1.EventTypeWarning, "Unhealthy", "%s probe failed: %v", kind, err)
	}
	m, id := &w.view.Memory, p.key.id
	switch kind {
	case probe.Readiness:
		m.Ready[id] = p.counter.Verdict
	case probe.Liveness:
		if p.counter.Failed {
			p.done, m.Unfit[id] = true, lifecycle.NotLive
		}
	case probe.Startup:
		switch {
		case p.counter.Verdict:
			p.done, m.Started[id] = true, true
		case p.counter.Failed:
			p.done, m.Unfit[id] = true, lifecycle.NotStarted
		}
	}
}
