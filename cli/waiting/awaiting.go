package waiting

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/progress"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/memory"
	"github.com/sampan-io/sampan/internal/run"
)

// A Talk is how a wait is talked about.
type Talk struct {
	Quiet   bool           // no progress
	Silent  bool           // not even the result of what went well
	Calm    bool           // nothing in the first seconds
	kubectl bool           // "condition met", whatever the degree
	flag    string         // where the degree was asked for; empty means --for
	Events  *Events        // for programs; nil means text for people
	Logs    bool           // the logs of the pods that hold it up are printed
	or      *await.Request // ends the wait as well, if it comes to be done
	exact   bool           // expressions see objects exactly as the server writes them
}

// An Ending is how the wait for one request ended.
type Ending struct {
	request await.Request
	words   progress.Words
	hint    progress.Hint
	Outcome await.Outcome
	Err     error
	aborted bool // another request decided the matter
}

// For waits, tells how it goes on and how it ended, and turns that into an error with the
// right exit code: nil if all is done.
func For(ctx context.Context, s *session.Session, req await.Request, talk Talk) error {
	return awaitAll(ctx, s, []await.Request{req}, talk, nil)
}

// Either waits as [For] does, and is over as well, without an error, when the objects reach
// what the other request says, which may look at fewer things.
func Either(ctx context.Context, s *session.Session, req, other await.Request, talk Talk) error {
	talk.or = &other
	return For(ctx, s, req, talk)
}

// awaitAll does that for several requests with one timeout. What went wrong before
// is part of the result.
func awaitAll(ctx context.Context, s *session.Session, requests []await.Request, talk Talk, before error) error {
	ends, err := untilAll(ctx, s, requests, talk)
	if err != nil {
		return errors.Join(before, err)
	}
	errs := []error{before}
	for _, e := range ends {
		errs = append(errs, e.Failure(talk))
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

// untilAll waits for all requests at the same time; the first that ends badly ends
// the others.
func untilAll(ctx context.Context, s *session.Session, requests []await.Request, talk Talk) ([]Ending, error) {
	c := s.REST
	if !talk.exact {
		// Go types take a fraction of the memory.
		var err error
		if c, err = s.Typed(); err != nil {
			return nil, err
		}
	}
	ends := make([]Ending, len(requests))
	words := progress.Words{}
	for i, r := range requests {
		r.Quiet = talk.Quiet && !talk.Logs && talk.Events == nil
		ends[i] = Ending{request: r, words: wordsOf(r, talk), hint: s.Hint}
		if i == 0 {
			words = ends[i].words
		} else if words != ends[i].words {
			words = progress.Words{Infinitive: "be done", Reached: "is done"}
		}
	}
	// What reading the first list took is given back once it is quiet: a wait may be long.
	small := run.NewGroup(ctx, 0)
	defer small.Stop()
	small.Go(func(ctx context.Context) { _ = memory.Run(ctx, memory.Options{}) }) // nil once told to stop
	told := newTelling(ctx, s.Streams, talk, words, requests[0].Timeout)
	logs := (*podLogs)(nil)
	if talk.Logs {
		plain, err := s.Typed()
		if err != nil {
			return nil, err
		}
		logs = newPodLogs(ctx, plain, told.aLogOf, told.note)
	}
	wait := func(ctx context.Context, e *Ending) {
		e.Outcome, e.Err = await.Until(ctx, c, e.request, func(p await.Progress) {
			told.hear(p, e.words, e.request)
			logs.update(p)
		})
	}
	switch {
	case talk.or != nil:
		e := &ends[0]
		either, cancel := context.WithCancel(ctx)
		g := run.NewGroup(either, 0)
		g.Go(func(inner context.Context) {
			if out, err := await.Until(inner, c, *talk.or, nil); err == nil && out.Result == await.AllDone {
				cancel()
			}
		})
		wait(either, e)
		e.aborted = e.Err != nil && either.Err() != nil && ctx.Err() == nil
		g.Stop()
		cancel()
	case len(ends) == 1:
		wait(ctx, &ends[0])
	default:
		var mu sync.Mutex
		decided := false // guarded by mu
		together, cancel := context.WithCancel(ctx)
		g := run.NewGroup(together, 0)
		for i := range ends {
			e := &ends[i]
			g.Go(func(inner context.Context) {
				wait(inner, e)
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
		g.Stop()
		cancel()
	}
	if err := logs.finish(ctx); err != nil {
		told.note(err.Error())
	}
	told.close(ends)
	return ends, nil
}

func wordsOf(r await.Request, talk Talk) progress.Words {
	w := progress.WordsOf(r.For)
	if talk.kubectl {
		w.Reached = "condition met"
	}
	return w
}

// Failure returns what an ending means, nil if all is done.
func (e Ending) Failure(talk Talk) error {
	var misuse *await.MisuseError
	switch {
	case e.aborted:
		return nil // somebody else says why
	case errors.As(e.Err, &misuse):
		return fmt.Errorf("%s=%s: %w", cmp.Or(talk.flag, "--for"), e.request.For, e.Err)
	case e.Err != nil:
		return e.Err
	}
	var errs []error
	switch e.Outcome.Result {
	case await.AllDone:
		return nil
	case await.NothingMatched:
		return exit.With(exit.Gone, errors.New("no matching resources found"))
	case await.Vanished:
		for _, p := range e.Outcome.Objects {
			switch {
			case !p.Absent:
			case p.Object.UID == "":
				errs = append(errs, apierrors.NewNotFound(p.Object.Resource.GroupResource(), p.Object.Name))
			default:
				errs = append(errs, fmt.Errorf("%s was deleted while it was waited for", p.Object))
			}
		}
		return exit.With(exit.Gone, errors.Join(errs...))
	case await.SomeFailed:
		code := exit.RolledBack // if that is all that failed
		for _, p := range e.Outcome.Objects {
			if decisive := e.decisive(); decisive(p) && !p.Verdict.RolledBack {
				code = exit.Failed
			}
		}
		return exit.With(code, e.reports(e.decisive()))
	case await.TimedOut:
		err := e.reports(func(p await.Progress) bool { return p.Verdict.State != await.Done })
		if err == nil {
			err = errors.New("timed out waiting: " + whyNothing(e))
		}
		return exit.With(exit.TimedOut, err)
	}
	return fmt.Errorf("the wait ended in an unknown way: %v", e.Outcome.Result)
}

// decisive returns what tells the failures that ended a wait from trouble that would
// have been given more time.
func (e Ending) decisive() func(await.Progress) bool {
	certain := func(p await.Progress) bool {
		return p.Verdict.State == await.Failed && p.Verdict.Certainty == await.Certain
	}
	if e.request.Fail != await.FailAtOnce && slices.ContainsFunc(e.Outcome.Objects, certain) {
		return certain
	}
	return func(p await.Progress) bool { return p.Verdict.State == await.Failed }
}

func whyNothing(e Ending) string {
	if e.request.Count > 0 {
		return fmt.Sprintf("%d of %d are there", len(e.Outcome.Objects), e.request.Count)
	}
	if e.request.Missing || e.request.For == await.Created {
		return "nothing matches yet"
	}
	return "nothing matches any more"
}

// Of so many unfinished objects each is reported by itself. Of more, those with the
// same cause are reported together: so many causes with all that is known of the first
// object, so many with their first line.
const (
	eachReported = 5
	fullReports  = 5
	allReports   = 20
)

// reports joins what is said about the objects that are meant.
func (e Ending) reports(meant func(await.Progress) bool) error {
	all := slices.DeleteFunc(slices.Clone(e.Outcome.Objects), func(p await.Progress) bool { return !meant(p) })
	if len(all) == 0 {
		return nil
	}
	groups := progress.Alike(all, func(p await.Progress) (await.Ref, string) { return p.Object, progress.Clean(p.Verdict.Cause) })
	if len(all) <= eachReported {
		groups = slices.Collect(slices.Chunk(all, 1))
	}
	var (
		errs []error
		more int
		now  = time.Now()
	)
	for n, g := range groups {
		if n >= allReports {
			more += len(g)
			continue
		}
		lines := progress.Report(g[0], e.Outcome.Result, e.words, e.hint, now)
		if n >= fullReports {
			lines = lines[:1]
		}
		if len(g) > 1 {
			lines = slices.Insert(lines, 1, "  and the same of "+progress.Names(refsOf(g[1:]), namedOthers))
		}
		errs = append(errs, errors.New(strings.Join(lines, "\n")))
	}
	if more > 0 {
		errs = append(errs, fmt.Errorf("and %d more, for other causes; -o json lists them all", more))
	}
	return errors.Join(errs...)
}

// namedOthers is how many objects of the same cause are named beside the first.
const namedOthers = 3

func refsOf(all []await.Progress) []await.Ref {
	refs := make([]await.Ref, len(all))
	for i, p := range all {
		refs[i] = p.Object
	}
	return refs
}

// detached says what goes on without a command that was interrupted.
func detached(s *session.Session, ends []Ending, talk Talk) {
	const most = 5
	var (
		open []string
		args = map[string][]string{} // by namespace
		n    int
	)
	for _, e := range ends {
		for _, p := range e.Outcome.Objects {
			if p.Verdict.State == await.Done {
				continue
			}
			n++
			if n <= most {
				text := fmt.Sprintf("  %s to %s", p.Object, e.words.Infinitive)
				if p.Verdict.Cause != "" {
					text += ": " + progress.Clean(p.Verdict.Cause)
				}
				open = append(open, text)
				kind, _, _ := strings.Cut(p.Object.String(), "/")
				args[p.Object.Namespace] = append(args[p.Object.Namespace], kind+"/"+p.Object.Name)
			}
		}
	}
	_, _ = fmt.Fprintln(s.Err, "interrupted: nothing is undone, and the cluster goes on without this command")
	if n == 0 {
		return
	}
	_, _ = fmt.Fprintln(s.Err, "not done yet:")
	for _, l := range open {
		_, _ = fmt.Fprintln(s.Err, l)
	}
	if n > most {
		_, _ = fmt.Fprintf(s.Err, "  and %d more\n", n-most)
		return
	}
	if len(args) == 1 && len(ends) == 1 && !strings.ContainsAny(ends[0].request.For.String(), " '\"$`\\{}()") {
		for namespace, names := range args {
			slices.Sort(names)
			_, _ = fmt.Fprintf(s.Err, "'%s %s --for=%s' waits again\n", s.Hint("wait", namespace), strings.Join(names, " "), ends[0].request.For)
		}
	}
}

// aLogOf returns what takes the log of a container while a wait is told.
func (t *telling) aLogOf(src logSource) io.WriteCloser {
	return &lineEvents{tell: func(line []byte) { t.logLine(src, line) }}
}

// lineEvents tells what is written to it line by line.
type lineEvents struct {
	tell func(line []byte)
	rest []byte
}

// maxLine is how much of a line without an end is kept.
const maxLine = 64 << 10

// Write implements io.Writer.
func (l *lineEvents) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 && len(l.rest) < maxLine {
			return len(b), nil
		}
		if end < 0 {
			end = len(l.rest)
		}
		l.tell(l.rest[:end])
		l.rest = append(l.rest[:0], l.rest[min(end+1, len(l.rest)):]...)
	}
}

// Close implements io.Closer.
func (l *lineEvents) Close() error {
	if len(l.rest) > 0 {
		l.tell(l.rest)
	}
	return nil
}

func (t *telling) logLine(src logSource, line []byte) {
	pod := src.pod
	if t.talk.Events != nil {
		t.talk.Events.Send(progress.Event{
			Type: progress.TypeLog, Container: src.container, Stream: strings.ToLower(src.stream), Line: strings.ToValidUTF8(string(line), "\uFFFD"),
			Object: progress.ObjectOf(await.Ref{
				Resource: client.Pods.GroupVersionResource, Kind: client.Pods.Kind,
				Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			}),
		})
		return
	}
	t.aside(func() { _, _ = fmt.Fprintf(t.streamFor(src), "[%s/%s] %s\n", pod.Name, src.container, line) })
}

// note tells something that went wrong on the side.
func (t *telling) note(text string) {
	if t.talk.Events != nil {
		t.talk.Events.Send(progress.Event{Type: progress.TypeNote, Error: text})
		return
	}
	t.aside(func() { _, _ = fmt.Fprintln(t.Err, "note: "+progress.Clean(text)) })
}
