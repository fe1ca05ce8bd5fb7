package waiting

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/progress"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/terminal"
)

// calmFor is how long a calm wait prints nothing.
const calmFor = 2 * time.Second

// A lineRenderer prints up to lineRoom lines at once. Further changes are held and printed together after a pause. The
// pauses grow while there are changes.
const (
	lineRoom   = 10
	firstLull  = time.Second
	longLull   = 10 * time.Second
	gatherMost = 10 // groups of lines after a pause
)

// A lineRenderer prints a line per change.
type lineRenderer struct {
	session.Streams
	talk    Talk
	group   *run.Group
	changed run.Bell // rung after a change

	mu     sync.Mutex
	lines  progress.Lines              // guarded by mu
	held   map[await.Ref]progress.Held // guarded by mu; lines that are not printed yet
	order  []await.Ref                 // guarded by mu; the objects in the order in which their lines were first held
	room   int                         // guarded by mu; how many lines may be printed at once
	hushed bool                        // guarded by mu
}

func newLineRenderer(ctx context.Context, streams session.Streams, talk Talk) *lineRenderer {
	r := &lineRenderer{Streams: streams, talk: talk, group: run.NewGroup(ctx, 0), changed: run.NewBell(), held: map[await.Ref]progress.Held{}}
	if talk.Quiet {
		return r
	}
	if !talk.Calm {
		r.room = lineRoom
	}
	r.group.Go(r.gather)
	return r
}

// gather prints the held lines after each pause, until ctx is cancelled.
func (r *lineRenderer) gather(ctx context.Context) {
	pause := firstLull
	if r.talk.Calm {
		pause = calmFor
	}
	for calm := r.talk.Calm; run.Pause(ctx, pause); calm = false {
		if printed := r.release(); printed && !calm {
			pause = min(2*pause, longLull)
			continue
		}
		// There was no change during the pause, or the calm time has ended.
		pause = firstLull
		r.mu.Lock()
		r.room = lineRoom
		r.mu.Unlock()
		select {
		case <-r.changed:
		case <-ctx.Done():
			return
		}
	}
}

// release prints the held lines, and reports whether there were any.
func (r *lineRenderer) release() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []progress.Held
	for _, ref := range r.order {
		if h, is := r.held[ref]; is {
			all = append(all, h)
			delete(r.held, ref) // order may have it twice
		}
	}
	r.order = nil
	if r.hushed {
		return false
	}
	for _, line := range progress.Gather(all, gatherMost) {
		_, _ = fmt.Fprintln(r.Err, line)
	}
	return len(all) > 0
}

func (r *lineRenderer) update(p await.Progress, words progress.Words, request await.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hushed {
		return
	}
	text, done := r.lines.Line(p, words)
	switch p := p.(type) {
	case await.ConnectionLost:
		_, _ = fmt.Fprintln(r.Err, text)
	case await.ConnectionRestored:
		if !r.talk.Quiet {
			r.print(text)
		}
	case await.Dropped:
		_, ordered := r.held[p.Object]
		delete(r.held, p.Object)
		if text != "" && !r.talk.Quiet {
			r.printOrHold(progress.Held{Object: p.Object, Words: words, Gone: true, Text: text}, ordered)
		}
	case await.Status:
		if text == "" {
			return
		}
		_, ordered := r.held[p.Object]
		delete(r.held, p.Object)
		willVanish := p.Absent && p.Object.Name != "" && !request.Missing && request.For != await.Created // the result reports it
		switch {
		case done && !r.talk.Silent:
			_, _ = fmt.Fprintln(r.Out, text)
		case done, r.talk.Quiet, willVanish:
		default:
			r.printOrHold(progress.Held{Object: p.Object, Words: words, Cause: terminal.Line(p.Verdict.Cause), Text: text}, ordered)
		}
	}
}

// printOrHold prints a line if there is room, and holds it otherwise; r.mu must be held. ordered reports whether r.order
// has the object.
func (r *lineRenderer) printOrHold(h progress.Held, ordered bool) {
	if r.room > 0 {
		r.print(h.Text)
		return
	}
	r.held[h.Object] = h
	if !ordered {
		r.order = append(r.order, h.Object)
	}
	r.changed.Ring()
}

func (r *lineRenderer) print(text string) {
	_, _ = fmt.Fprintln(r.Err, text)
	r.room--
	r.changed.Ring()
}

func (r *lineRenderer) logLine(src logSource, line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	printLogLine(r.Streams, src, line)
}

func (r *lineRenderer) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	printNote(r.Streams, text)
}

func (r *lineRenderer) hush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hushed = true
}

func (r *lineRenderer) close([]Ending) { r.group.Stop() }
