package scheduler

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// A worker decides on a goroutine of its own, so that a plug-in that does not come back can be given up
// with it (P8).
type worker struct {
	group  *run.Group
	cancel context.CancelFunc
	jobs   chan *job
	spent  bool // it was told to stop, and takes no more jobs
}

func newWorker(ctx context.Context) *worker {
	ctx, cancel := context.WithCancel(ctx)
	w := &worker{group: run.NewGroup(ctx, 0), cancel: cancel, jobs: make(chan *job)}
	w.group.Go(func(ctx context.Context) {
		for {
			select {
			case j := <-w.jobs:
				j.run(ctx)
				close(j.done)
			case <-ctx.Done():
				return
			}
		}
	})
	return w
}

// stop ends the worker, if it comes back within a time.
func (w *worker) stop(patience time.Duration) {
	w.cancel()
	gone := make(chan struct{})
	waiter := run.NewGroup(context.Background(), 0) //nolint:forbidigo // it lasts as long as the worker
	waiter.Go(func(context.Context) { w.group.Stop(); close(gone) })
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-gone:
		waiter.Stop()
	case <-timer.C:
	}
}

// A job is some decisions.
type job struct {
	cluster *plugin.Cluster
	from    int
	undo    []*placement
	tasks   []task
	done    chan struct{}

	mu      sync.Mutex
	results []outcome // guarded by mu
	given   bool      // guarded by mu; given up
}

// A task is an item, with what the worker needs of it.
type task struct {
	it        *item
	pod       *plugin.Pod
	profile   *profile
	decider   *Decider
	signature plugin.Signature
	queued    time.Time
	attempts  int
	asks      bool
	opinions  *opinions
}

// An outcome is what was decided about one pod.
type outcome struct {
	task      task
	decision  Decision
	refusers  []string
	placement *placement // if it has a node, which is reserved
	took      time.Duration
}

// do has a job done and returns what was decided. If a plug-in takes longer than patience for one
// decision its ctx ends, and if it has not come back soon after the worker is given up, with what
// is left of the job.
func (w *worker) do(ctx context.Context, j *job, patience time.Duration) (results []outcome, given bool) {
	j.done = make(chan struct{})
	w.jobs <- j
	timer := time.NewTimer(patience)
	defer timer.Stop()
	seen, warned := 0, false
	for {
		select {
		case <-j.done:
			return j.results, false
		case <-timer.C:
		}
		j.mu.Lock()
		n := len(j.results)
		if n > seen {
			seen, warned = n, false
			j.mu.Unlock()
			timer.Reset(patience)
			continue
		}
		if warned {
			j.given = true
			results = j.results
			j.mu.Unlock()
			return results, true
		}
		j.mu.Unlock()
		warned, w.spent = true, true
		w.cancel() // a plug-in that heeds its ctx comes back now
		timer.Reset(min(patience, time.Second))
	}
}

// note adds a result and reports whether the job is still wanted.
func (j *job) note(o outcome) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.given {
		j.results = append(j.results, o)
	}
	return !j.given
}

func (j *job) run(ctx context.Context) {
	for _, p := range j.undo {
		p.unreserve(ctx)
	}
	for _, t := range j.tasks {
		began := time.Now()
		o := outcome{task: t}
		if err := run.Catch(func() error { j.decide(ctx, &o, began); return nil }); err != nil {
			j.cluster.Unplace(t.pod.UID)
			o = outcome{task: t, decision: Decision{Err: err}}
		}
		o.took = time.Since(began)
		if !j.note(o) {
			return
		}
	}
}

// decide decides about one pod.
func (j *job) decide(ctx context.Context, o *outcome, began time.Time) {
	t := o.task
	o.decision = t.decider.DecideAll(ctx, j.cluster, Question{Pod: t.pod, From: j.from, Signature: t.signature, asks: t.asks, opinions: t.opinions})
	d := &o.decision
	switch {
	case d.Node != "":
		j.from = d.Next
		j.reserve(ctx, o, began)
	case d.Err == nil && d.ask == nil:
		o.refusers = t.decider.Refusers(d)
		if d.Room.Node != "" {
			j.cluster.Nominate(t.pod, d.Room.Node)
		} else if d.roomGone {
			j.cluster.Nominate(t.pod, "")
		}
	}
}

// reserve counts a pod where it is to run, and asks the Reserves.
func (j *job) reserve(ctx context.Context, o *outcome, began time.Time) {
	t := o.task
	p := &placement{it: t.it, profile: t.profile, pod: t.pod, obj: t.pod.Pod, node: o.decision.Node, checks: o.decision.checks, since: began, queued: t.queued, attempts: t.attempts}
	j.cluster.Place(t.pod, p.node)
	for _, r := range t.profile.reserve {
		p.asked++
		v := guarded(r.Name(), func() plugin.Verdict { return r.Reserve(ctx, p.of(r, nil)) })
		if v.OK() {
			continue
		}
		p.unreserve(ctx)
		j.cluster.Unplace(t.pod.UID)
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

// unreserve undoes what Reserves did, the last first (P7).
func (p *placement) unreserve(ctx context.Context) {
	for ; p.asked > 0; p.asked-- {
		r := p.profile.reserve[p.asked-1]
		guarded(r.Name(), func() plugin.Verdict { r.Unreserve(ctx, p.of(r, nil)); return plugin.Verdict{} })
	}
}

// guarded calls a plug-in; a panic is a failure (P8).
func guarded(name string, call func() plugin.Verdict) (v plugin.Verdict) {
	defer func() {
		if r := recover(); r != nil {
			v = plugin.Fail(&PanicError{name, r, debug.Stack()})
		}
	}()
	return call()
}

// A StallError is a decision for which plug-ins took too long.
type StallError struct {
	Patience time.Duration
	Plugin   string // if it is known
}

func (e *StallError) Error() string {
	if e.Plugin != "" {
		return fmt.Sprintf("plug-in %q has not answered within %v", e.Plugin, e.Patience)
	}
	return fmt.Sprintf("plug-ins have not answered within %v", e.Patience)
}
