package await

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/follow"
	"github.com/sampan-io/sampan/internal/run"
)

// Until waits until every target has reached the degree, one has failed for good, one does not exist, or the timeout is
// over. The Result in the Outcome says which; the fields of [Request] change these rules. It judges the current state at
// least once, however short the timeout.
//
// Until calls progress, if that is not nil, on the calling goroutine for the first verdict on each object and whenever
// the verdict on the object or on one of its listed parts changes. The caller may keep the argument and must not change
// it. Without progress, or with Quiet, the wait for one object may be a blocking read (A8).
//
// Until returns an error if ctx is cancelled, the server cannot be reached at the start or at the deadline, the server
// denies access to the objects (at any time), or the kind does not support the degree ([*MisuseError]). The Outcome then
// has the last known state.
//
// A client that returns Go types needs a tenth of the memory of one that returns unstructured objects.
func Until(ctx context.Context, c client.Interface, req Request, progress func(Progress)) (Outcome, error) {
	req, err := req.check()
	if err != nil {
		return Outcome{}, err
	}
	var asked *question
	if r, ok := c.(reader); ok && (progress == nil || req.Quiet) {
		asked = req.question(r)
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	w := newWatcher(req, progress)
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	reports := w.sources(g, c, asked)
	w.begin()
	return w.loop(ctx, reports)
}

// sources sets the functions with which the watcher starts goroutines in g, and returns the channel of their reports.
func (w *watcher) sources(g *run.Group, c client.Interface, asked *question) <-chan report {
	// The sources block while the loop is busy; no report is dropped. The buffer is one report, because that may be a
	// page of objects.
	reports := make(chan report, 1)
	sender := func(ctx context.Context, f *feed) func(follow.Step) bool {
		return func(s follow.Step) bool {
			select {
			case reports <- report{s, f}:
				return true
			case <-ctx.Done():
				return false
			}
		}
	}
	w.start = func(f *feed) {
		follower := follow.Follower{
			Client: c, Source: follow.Source{GroupVersionResource: f.GroupVersionResource, Namespace: f.namespace, Labels: f.labels, Fields: f.fields},
			Again: f.again,
		}
		member := len(f.targets) > 0
		if member && w.req.Missing {
			follower.Retry = untilServed
		}
		g.Go(func(ctx context.Context) {
			send, going := sender(ctx, f), true
			if member && w.req.For.has(Deleted) {
				send = goneWithResource(send)
			}
			if member && asked != nil {
				follower.After, going = asked.ask(ctx, send)
			}
			if going {
				read(ctx, follower, send)
			}
		})
	}
	w.ask = func(f *feed, t Target) {
		g.Go(func(ctx context.Context) { resolve(ctx, w.req.Resolve, t, f.again, sender(ctx, f)) })
	}
	return reports
}

// goneWithResource returns a send that turns the end of a source that the server does not serve any more into an empty list:
// the objects of a custom resource are deleted with its definition.
func goneWithResource(send func(follow.Step) bool) func(follow.Step) bool {
	return func(step follow.Step) bool {
		if f, failed := step.(follow.Failed); failed && f.Final && apierrors.IsNotFound(f.Err) {
			step = follow.Page{Begins: true, Whole: true}
		}
		return send(step)
	}
}

// untilServed is the retry of a wait for objects whose resource may not be served yet.
func untilServed(err error, failures int) (pause time.Duration, again bool) {
	pause, again = follow.Eager(err, failures)
	return pause, again || apierrors.IsNotFound(err)
}

// loop handles reports until the wait is decided, the deadline has passed or ctx is cancelled.
func (w *watcher) loop(ctx context.Context, reports <-chan report) (Outcome, error) {
	// After the deadline the first lists get lookLimit more, if they are not complete.
	deadline := time.NewTimer(cmp.Or(w.req.Timeout, lookLimit))
	defer deadline.Stop()
	if w.req.Timeout == 0 && !w.req.Once {
		deadline.Stop()
	}
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	late, overdue := w.req.Once, false
	for {
		if at, some := w.next(); some {
			alarm.Reset(time.Until(at))
		} else {
			alarm.Stop()
		}
		var (
			result  Result
			decided bool
			err     error
		)
		select {
		case r := <-reports:
			result, decided, err = w.take(r)
		case <-alarm.C:
		case <-deadline.C:
			overdue = late
			late = true
			deadline.Reset(lookLimit)
		case <-ctx.Done():
			return w.outcome(TimedOut), context.Cause(ctx)
		}
		if !decided && err == nil {
			result, decided, err = w.drain(reports)
		}
		switch {
		case err != nil:
			return w.outcome(TimedOut), err
		case decided:
			return w.outcome(result), nil
		case late && w.lost() != nil:
			return w.outcome(TimedOut), w.lost() // A4
		case late && w.looked():
			return w.outcome(TimedOut), nil
		case overdue:
			return w.outcome(TimedOut), fmt.Errorf("the server has not answered within %v", (w.req.Timeout + lookLimit).Round(time.Second))
		}
	}
}

// drain handles the reports that have arrived already, at most batch of them, and then decides: changes that only explain
// are judged together.
func (w *watcher) drain(reports <-chan report) (result Result, decided bool, err error) {
	for range batch {
		select {
		case r := <-reports:
			if result, decided, err = w.take(r); decided || err != nil {
				return result, decided, err
			}
		default:
			return w.decide(time.Now())
		}
	}
	return w.decide(time.Now())
}

// lookLimit is how long the first lists may take beyond the timeout.
const lookLimit = 10 * time.Second

// batch is the largest number of reports that are handled before decide is called. Without it, a set that never stops
// changing would never be decided.
const batch = 1000
