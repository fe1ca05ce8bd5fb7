package waiting

import (
	"cmp"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/progress"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/client"
)

// Events is a stream of events for programs, one JSON object per line. It is safe for
// concurrent use. A nil *Events means text for people.
type Events struct {
	began   time.Time
	cluster func() string // see [exit.Explain]

	mu sync.Mutex
	w  io.Writer // guarded by mu
}

func newEventStream(g *session.Globals) *Events {
	return &Events{w: g.Out, began: time.Now(), cluster: g.ClusterFlag}
}

// Send writes one event, with the time and the time since the beginning.
func (s *Events) Send(e progress.Event) {
	now := time.Now()
	e.Time, e.Elapsed = now.UTC(), now.Sub(s.began).Round(time.Microsecond).Seconds()
	line, err := json.Marshal(e)
	if err != nil {
		return // cannot happen: all fields of an event can be encoded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.w.Write(append(line, '\n')) // a closed output is ignored
}

// result ends the stream, with the result that an error means.
func (s *Events) result(ends []Ending, err error) {
	code := exit.Done
	if err != nil {
		code = exit.Code(err)
	}
	words := map[int]string{
		exit.Done: progress.ResultDone, exit.Failed: progress.ResultFailed, exit.TimedOut: progress.ResultTimedOut,
		exit.RolledBack: progress.ResultRolledBack, exit.Gone: progress.ResultGone, exit.Interrupted: progress.ResultInterrupted,
	}
	word := cmp.Or(words[code], progress.ResultError)
	for _, e := range ends {
		if code == exit.Gone && e.Outcome.Result == await.NothingMatched {
			word = progress.ResultNothingMatched
		}
	}
	s.end(word, code, ends, err)
}

// Ended ends the stream of a command that runs a Job and exits with this code.
func (s *Events) Ended(e Ending, code int, err error) {
	word := progress.ResultOf(e.Outcome.Result)
	switch {
	case code == exit.Interrupted && err == nil:
		word = progress.ResultInterrupted
	case e.Err != nil, code == exit.Ours && word == progress.ResultDone:
		word = progress.ResultError
	}
	s.end(word, code, []Ending{e}, err)
}

func (s *Events) end(word string, code int, ends []Ending, err error) {
	e := progress.Event{Type: progress.TypeResult, Result: word, ExitCode: &code}
	if err != nil && word != progress.ResultInterrupted {
		e.Error = strings.Join(exit.Explain(err, s.cluster), "\n")
	}
	for _, end := range ends {
		for _, p := range end.Outcome.Objects {
			e.Objects = append(e.Objects, progress.StatusOf(p, end.hint))
		}
	}
	s.Send(e)
}

// An eventRenderer is the renderer of a stream of events.
type eventRenderer struct{ *Events }

func (r eventRenderer) update(p await.Progress, _ progress.Words, _ await.Request) {
	r.Send(progress.EventOf(p))
}

func (r eventRenderer) logLine(src logSource, line []byte) {
	pod := src.pod
	r.Send(progress.Event{
		Type: progress.TypeLog, Container: src.container, Stream: strings.ToLower(src.stream), Line: strings.ToValidUTF8(string(line), "\uFFFD"),
		Object: progress.ObjectOf(await.Ref{
			Resource: client.Pods.GroupVersionResource, Kind: client.Pods.Kind,
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		}),
	})
}

func (r eventRenderer) note(text string) {
	r.Send(progress.Event{Type: progress.TypeNote, Error: text})
}

func (eventRenderer) hush()          {}
func (eventRenderer) close([]Ending) {}
