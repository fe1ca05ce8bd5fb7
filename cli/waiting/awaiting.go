package waiting

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/progress"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/memory"
	"github.com/sampan-io/sampan/internal/run"
)

// A Talk has the options for the output of a wait.
type Talk struct {
	Quiet   bool           // print no progress
	Silent  bool           // do not print done objects either
	Calm    bool           // print nothing in the first seconds
	kubectl bool           // print "condition met" for every degree
	flag    string         // the flag of the degree, for errors; empty means --for
	Events  *Events        // print events to this stream; nil prints text
	Logs    bool           // print the logs of the pods that hold up the wait
	or      *await.Request // end the wait when this request is done, too; may be nil
	exact   bool           // use objects exactly as the server sends them, for expressions
}

// An Ending is the result of the wait for one request.
type Ending struct {
	request await.Request
	words   progress.Words
	hint    progress.Hint
	Outcome await.Outcome
	Err     error
	aborted bool   // another request decided the result
	refused string // why the server refuses writes, if the objects do not show it
}

// For waits, prints progress and result, and returns the result as an error with an exit code: nil if all objects are
// done.
func For(ctx context.Context, s *session.Session, req await.Request, talk Talk) error {
	return awaitAll(ctx, s, []await.Request{req}, talk, nil)
}

// Either is [For] that also ends, without an error, when the objects of the other request are done.
func Either(ctx context.Context, s *session.Session, req, other await.Request, talk Talk) error {
	talk.or = &other
	return For(ctx, s, req, talk)
}

// awaitAll is For for several requests with one timeout. The error before is part of the result.
func awaitAll(ctx context.Context, s *session.Session, requests []await.Request, talk Talk, before error) error {
	ends, err := untilAll(ctx, s, requests, talk)
	if err != nil {
		return errors.Join(before, err)
	}
	errs := []error{before}
	for _, e := range ends {
		errs = append(errs, e.Failure(talk))
	}
	if talk.Events == nil { // the result of a stream has the status of each object
		errs = append(errs, unfinished(ends))
	}
	err = errors.Join(errs...)
	if ctx.Err() != nil {
		detached(s, ends, talk)
		err = exit.With(exit.Interrupted, nil)
	}
	if talk.Events != nil {
		talk.Events.result(ends, err)
	}
	return err
}

// untilAll waits for all requests at the same time. The first that is not done at its end ends the others.
func untilAll(ctx context.Context, s *session.Session, requests []await.Request, talk Talk) ([]Ending, error) {
	w := &waits{client: s.REST}
	typed := s.REST
	if !talk.exact || talk.Logs {
		var err error
		if typed, err = s.Typed(); err != nil {
			return nil, err
		}
	}
	if !talk.exact {
		w.client = typed // Go types take a fraction of the memory
	}
	ends, words := endingsOf(requests, talk, s.Hint)
	// A wait may be long: give back the memory of the first lists.
	small := run.NewGroup(ctx, 0)
	defer small.Stop()
	small.Go(func(ctx context.Context) { _ = memory.Run(ctx, memory.Options{}) }) // it returns nil when ctx is cancelled
	w.renderer = newRenderer(ctx, s.Streams, talk, words, requests[0].Timeout)
	if talk.Logs {
		w.logs = newPodLogs(ctx, typed, func(src logSource) io.WriteCloser { return logWriter(w.renderer, src) }, w.renderer.note)
	}
	if !talk.Quiet {
		small.Go(w.noteRefusedWrites)
	}
	switch {
	case talk.or != nil:
		w.either(ctx, &ends[0], *talk.or)
	case len(ends) == 1:
		w.one(ctx, &ends[0])
	default:
		w.all(ctx, ends)
	}
	if err := w.logs.finish(ctx); err != nil {
		w.renderer.note(err.Error())
	}
	w.renderer.close(ends)
	for i := range ends {
		ends[i].askRefused(ctx, s.REST)
	}
	return ends, nil
}

// stuckFor is how long a wait lasts before it asks whether the server refuses writes.
const stuckFor = 3 * time.Second

// noteRefusedWrites prints why the server refuses writes, if it does after a few seconds of waiting.
func (w *waits) noteRefusedWrites(ctx context.Context) {
	if !run.Pause(ctx, stuckFor) {
		return
	}
	if why := w.client.RefusedWrites(ctx); why != "" {
		w.renderer.note("the server refuses writes, so that pods may not be created: " + why)
	}
}

// askRefused finds out whether objects are not done because the server refuses writes, unless their causes say so.
func (e *Ending) askRefused(ctx context.Context, c *client.REST) {
	if e.aborted || e.Err != nil || e.Outcome.Result != await.TimedOut && e.Outcome.Result != await.SomeFailed {
		return
	}
	for _, p := range e.Outcome.Objects {
		if p.Verdict.State != await.Done && !strings.Contains(p.Verdict.Cause, "nothing was changed: ") {
			e.refused = c.RefusedWrites(ctx)
			return
		}
	}
}

// endingsOf returns the endings of requests before the wait, and the words for all of them together.
func endingsOf(requests []await.Request, talk Talk, hint progress.Hint) (ends []Ending, words progress.Words) {
	for i, r := range requests {
		r.Quiet = talk.Quiet && !talk.Logs && talk.Events == nil
		e := Ending{request: r, words: progress.WordsOf(r.For), hint: hint}
		if talk.kubectl {
			e.words.Reached = "condition met"
		}
		ends = append(ends, e)
		if i == 0 {
			words = e.words
		} else if words != e.words {
			words = progress.Words{Infinitive: "be done", Reached: "is done"}
		}
	}
	return ends, words
}

// waits performs the waits of one command.
type waits struct {
	client   *client.REST
	renderer renderer
	logs     *podLogs
}

// one waits for one request.
func (w *waits) one(ctx context.Context, e *Ending) {
	e.Outcome, e.Err = await.Until(ctx, w.client, e.request, func(p await.Progress) {
		w.renderer.update(p, e.words, e.request)
		w.logs.update(p)
	})
}

// either waits for one request until it has ended or the other is done.
func (w *waits) either(ctx context.Context, e *Ending, other await.Request) {
	either, cancel := context.WithCancel(ctx)
	defer cancel()
	g := run.NewGroup(either, 0)
	defer g.Stop()
	g.Go(func(inner context.Context) {
		if out, err := await.Until(inner, w.client, other, nil); err == nil && out.Result == await.AllDone {
			cancel()
		}
	})
	w.one(either, e)
	e.aborted = e.Err != nil && either.Err() != nil && ctx.Err() == nil
}

// all waits for several requests until all are done or one of them has ended otherwise.
func (w *waits) all(ctx context.Context, ends []Ending) {
	together, cancel := context.WithCancel(ctx)
	defer cancel()
	g := run.NewGroup(together, 0)
	defer g.Stop()
	var mu sync.Mutex
	decided := false // guarded by mu
	for i := range ends {
		e := &ends[i]
		g.Go(func(inner context.Context) {
			w.one(inner, e)
			mu.Lock()
			defer mu.Unlock()
			if e.Err == nil && e.Outcome.Result == await.AllDone {
				return
			}
			e.aborted = decided && inner.Err() != nil && ctx.Err() == nil
			decided = true
			cancel()
		})
	}
	g.Wait()
}
