package scheduler

import (
	"context"
	"time"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// An outcome is the result of one attempt to schedule a pod.
type outcome struct {
	it        *item
	pod       *plugin.Pod
	decision  Decision
	refusers  []string
	placement *placement // set if the pod has a node, where it is reserved
	took      time.Duration
}

// attempt decides about a pod. A panic becomes the error of the decision.
func (l *loop) attempt(ctx context.Context, it *item) outcome {
	began := time.Now()
	o := outcome{it: it, pod: it.Pod}
	if end, ok := l.opts.Quarantine.Begin(part, o.pod.Pod); ok { // or it would not be in the queue
		defer end()
	}
	if err := run.Catch(func() error { l.place(ctx, &o, began); return nil }); err != nil {
		l.cluster.Unplace(o.pod.UID)
		o = outcome{it: it, pod: it.Pod, decision: Decision{Err: err}}
	}
	o.took = time.Since(began)
	return o
}

// place decides about the pod of o and, if it fits a node, reserves it there.
func (l *loop) place(ctx context.Context, o *outcome, began time.Time) {
	it := o.it
	q := Question{Pod: o.pod, From: l.from, Signature: it.signature, asks: len(l.interested(o.pod.Pod)) > 0, opinions: it.opinions}
	it.opinions = nil
	decider := it.profile.decider
	o.decision = decider.DecideAll(ctx, l.cluster, q)
	d := &o.decision
	switch {
	case d.Node != "":
		l.from = d.Next
		l.reserve(ctx, o, began)
	case d.Err == nil && d.ask == nil:
		o.refusers = decider.Refusers(d)
		if d.Room.Node != "" {
			l.cluster.Nominate(o.pod, d.Room.Node)
		} else if d.roomGone {
			l.cluster.Nominate(o.pod, "")
		}
	}
}

// reserve counts a pod on its node and calls the Reserve plug-ins.
func (l *loop) reserve(ctx context.Context, o *outcome, began time.Time) {
	it := o.it
	p := &placement{
		it: it, profile: it.profile, pod: o.pod, obj: o.pod.Pod, node: o.decision.Node, checks: o.decision.checks,
		since: began, queued: it.Since, attempts: it.Attempts,
	}
	l.cluster.Place(p.pod, p.node)
	for _, r := range p.profile.reserve {
		p.asked++
		v := guarded(r.Name(), func() plugin.Verdict { return r.Reserve(ctx, p.of(r, nil)) })
		if v.OK() {
			continue
		}
		p.unreserve(ctx)
		l.cluster.Unplace(p.pod.UID)
		o.decision.Node = ""
		if v.Refused() {
			o.decision.before, o.refusers = v.Reason, []string{r.Name()}
		} else {
			o.decision.Err = failure(r.Name(), "Reserve", v)
		}
		return
	}
	o.placement = p
}

// unreserve calls Unreserve of the plug-ins whose Reserve was called, in reverse order (plugin-P7).
func (p *placement) unreserve(ctx context.Context) {
	for ; p.asked > 0; p.asked-- {
		r := p.profile.reserve[p.asked-1]
		guarded(r.Name(), func() plugin.Verdict { r.Unreserve(ctx, p.of(r, nil)); return plugin.Verdict{} })
	}
}
