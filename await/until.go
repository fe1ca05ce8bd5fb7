package await

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/sampan-io/sampan/await/follow"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
)

// Until waits until every target has reached the degree, one has failed for
// good, one is gone, or time is up, and says which; [Request] has the fields that
// change what decides it. It always looks before it gives up, however short the
// timeout.
//
// While it waits it calls progress, if that is not nil, on the calling goroutine
// whenever the verdict on an object or on one of its parts that are told changes,
// the first one included. The caller may keep what it is given and must not
// change it. Without progress, or with Quiet, a wait for
// one object may be left to the server (A8).
//
// The error is for waits that could not be had: ctx ended, the server cannot be
// reached at the start or at the deadline, it refuses to show the objects (at
// any time), or the degree means nothing for the kind ([*MisuseError]). The
// Outcome then says what was known last.
//
// Objects that client c hands out as Go types cost a tenth of unstructured ones.
func Until(ctx context.Context, c client.Interface, req Request, progress func(Progress)) (Outcome, error) {
	req, err := req.check()
	if err != nil {
		return Outcome{}, err
	}
	var question *follow.Question
	if reader, ok := c.(follow.Reader); ok && (progress == nil || req.Quiet) {
		question = req.question(reader)
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	w := newWatcher(req, progress)
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	// The sources block when the loop below is busy; nothing is dropped. There is no
	// room for more than one, since a report may be a page of objects.
	reports := make(chan report, 1)
	teller := func(ctx context.Context, f *feed) func(report) bool {
		return func(r report) bool {
			r.from = f
			select {
			case reports <- r:
				return true
			case <-ctx.Done():
				return false
			}
		}
	}
	w.start = func(f *feed) {
		follower := &follow.Follower{
			Client: c, Source: follow.Source{GroupVersionResource: f.GroupVersionResource, Namespace: f.namespace, Labels: f.labels, Fields: f.fields},
			Wait: req.Missing && len(f.targets) > 0, Again: f.again,
		}
		if len(f.targets) > 0 {
			follower.Ask = question
		}
		g.Go(func(ctx context.Context) {
			tell := teller(ctx, f)
			follower.Tell = func(r follow.Report) bool { return tell(report{Report: r}) }
			follower.Run(ctx)
		})
	}
	w.ask = func(f *feed, t Target) {
		g.Go(func(ctx context.Context) { resolve(ctx, req.Resolve, t, f.again, teller(ctx, f)) })
	}
	w.begin()

	// After the deadline the first look, if it is not over, has a limit of its own.
	deadline := time.NewTimer(cmp.Or(req.Timeout, lookLimit))
	defer deadline.Stop()
	if req.Timeout == 0 && !req.Once {
		deadline.Stop()
	}
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	late, overdue := req.Once, false
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
		for n := 0; n < batch && !decided && err == nil; n++ { // what only explains is judged once for all that has come
			select {
			case r := <-reports:
				result, decided, err = w.take(r)
			default:
				n = batch
			}
		}
		if !decided && err == nil {
			result, decided, err = w.decide(time.Now())
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
			return w.outcome(TimedOut), fmt.Errorf("the server has not answered within %v", (req.Timeout + lookLimit).Round(time.Second))
		}
	}
}

// lookLimit is how long the first look may go on after a shorter timeout.
const lookLimit = 10 * time.Second

// batch is after how many reports there is a decision at the latest: a set that
// never stops changing must come to one, too.
const batch = 1000
