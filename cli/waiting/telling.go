package waiting

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/exit"
	"github.com/sampan-io/sampan/cli/progress"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/internal/run"
)

// A telling tells how a wait goes on: as a picture on a terminal, as events for a
// program, otherwise as a line per change. It is safe for concurrent use.
type telling struct {
	session.Streams
	talk  Talk
	group *run.Group
	dirty chan struct{} // the picture is to be drawn

	mu     sync.Mutex
	lines  progress.Lines              // guarded by mu
	held   map[await.Ref]progress.Held // guarded by mu; lines that are not told yet
	order  []await.Ref                 // guarded by mu; in which objects came to be held; may name some that are not
	room   int                         // guarded by mu; how many lines may be told as they come
	hushed bool                        // guarded by mu; nothing is told any more
	tree   *progress.Tree              // guarded by mu; nil without a picture
	screen *progress.Screen            // guarded by mu; nil without a picture
	drawn  bool                        // guarded by mu; the picture stands there
	size   func() (width, height int)
}

const (
	// firstFrame is how long a wait must last to be worth a picture.
	firstFrame = 100 * time.Millisecond
	// frame is the shortest time between two pictures. More could not be seen.
	frame = 50 * time.Millisecond
)

// calmFor is how long a calm wait says nothing.
const calmFor = 2 * time.Second

// Lines are told as they come while they are few. When there are more, what has come is
// told together after a pause; while that goes on, pauses grow.
const (
	lineRoom   = 10
	firstLull  = time.Second
	longLull   = 10 * time.Second
	gatherMost = 10 // lines after a pause
)

// newTelling begins to tell; close must be called.
func newTelling(ctx context.Context, streams session.Streams, talk Talk, words progress.Words, timeout time.Duration) *telling {
	if streams.Release != nil {
		context.AfterFunc(ctx, streams.Release)
	}
	t := &telling{Streams: streams, talk: talk, group: run.NewGroup(ctx, 0), dirty: make(chan struct{}, 1)}
	if talk.Quiet || talk.Events != nil {
		return t
	}
	if style, size, ok := terminalOf(streams.Err); ok {
		t.tree = progress.NewTree(words, style, time.Now(), timeout)
		t.screen = progress.NewScreen(streams.Err)
		t.size = size
		t.group.Go(t.draw)
		return t
	}
	if !talk.Calm {
		t.room = lineRoom
	}
	t.group.Go(t.gather)
	return t
}

// gather tells what was held back, after a pause, until ctx is over.
func (t *telling) gather(ctx context.Context) {
	pause := firstLull
	if t.talk.Calm {
		pause = calmFor
	}
	for calm := t.talk.Calm; run.Pause(ctx, pause); calm = false {
		if told := t.release(); told && !calm {
			pause = min(2*pause, longLull)
			continue
		}
		// It was quiet for so long, or is calm no more.
		pause = firstLull
		t.mu.Lock()
		t.room = lineRoom
		t.mu.Unlock()
		select {
		case <-t.dirty:
		case <-ctx.Done():
			return
		}
	}
}

// release tells what is held, and reports whether that was anything.
func (t *telling) release() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []progress.Held
	for _, r := range t.order {
		if h, is := t.held[r]; is {
			all = append(all, h)
			delete(t.held, r) // it may be named again
		}
	}
	t.order = nil
	if t.hushed {
		return false
	}
	for _, line := range progress.Gather(all, gatherMost) {
		_, _ = fmt.Fprintln(t.Err, line)
	}
	return len(all) > 0
}

// terminalOf returns what a stream can show if it is a terminal that can be drawn on.
func terminalOf(w io.Writer) (style progress.Style, size func() (width, height int), ok bool) {
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return style, nil, false
	}
	if kind := os.Getenv("TERM"); kind == "" || kind == "dumb" {
		return style, nil, false
	}
	style.Color = os.Getenv("NO_COLOR") == ""                     // https://no-color.org
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} { // the first one set decides (POSIX)
		if locale := strings.ToLower(os.Getenv(name)); locale != "" {
			style.Unicode = strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
			break
		}
	}
	size = func() (int, int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil || width <= 1 || height <= 1 {
			return 80, 24 // one that does not know
		}
		return width, height
	}
	return style, size, true
}

// draw keeps the picture current until ctx is over.
func (t *telling) draw(ctx context.Context) {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH, syscall.SIGCONT)
	defer signal.Stop(resized)
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTSTP)
	defer signal.Stop(stopped)
	first := time.NewTimer(firstFrame)
	defer first.Stop()
	for waiting := true; waiting; {
		select {
		case <-first.C:
			waiting = false
		case <-stopped:
			t.suspend()
		case <-ctx.Done():
			return
		}
	}
	clock := time.NewTicker(time.Second) // the picture shows how long things last
	defer clock.Stop()
	for {
		t.mu.Lock()
		t.picture()
		t.mu.Unlock()
		if !run.Pause(ctx, frame) {
			return
		}
		select {
		case <-t.dirty:
		case <-clock.C:
		case <-resized:
		case <-stopped:
			t.suspend()
		case <-ctx.Done():
			return
		}
	}
}

// suspend leaves the terminal as it was, and stops the process until somebody lets it go on.
// It stops itself, because the runtime does not let the signal of the terminal do that once
// it has been asked for.
func (t *telling) suspend() {
	t.mu.Lock()
	defer t.mu.Unlock() // nothing is written meanwhile
	if t.drawn {
		width, _ := t.size()
		_ = t.screen.Clear(width) // see picture
		t.drawn = false
	}
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) // the process may stop itself
}

// picture draws; t.mu must be held. A terminal that can't be written to is not worth
// an error of its own.
func (t *telling) picture() {
	if t.hushed || !inForeground(t.Err) {
		return
	}
	width, height := t.size()
	// The last column and line stay empty: writing there makes terminals scroll.
	_ = t.screen.Draw(t.tree.Lines(time.Now(), width-1, height-1), width)
	t.drawn = true
}

// inForeground reports whether a terminal is ours to draw on: not while its shell has it and
// the command goes on in the background.
func inForeground(w io.Writer) bool {
	f, isFile := w.(*os.File)
	if !isFile {
		return true
	}
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == syscall.Getpgrp() // an error: it controls nobody
}

// hear takes in news of an object, of which these are the words.
func (t *telling) hear(p await.Progress, words progress.Words, request await.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.talk.Events != nil {
		t.talk.Events.Send(progress.EventOf(p))
		return
	}
	if t.tree != nil {
		t.tree.Update(p, words, time.Now())
		t.mark()
		return
	}
	if t.hushed {
		return
	}
	text, done := t.lines.Line(p, words)
	_, named := t.held[p.Object] // in order
	if text != "" || p.Gone {
		delete(t.held, p.Object)
	}
	switch {
	case text == "", done && t.talk.Silent:
	case done:
		_, _ = fmt.Fprintln(t.Out, text)
	case p.Lost != nil:
		_, _ = fmt.Fprintln(t.Err, text)
	case t.talk.Quiet, p.Absent && !p.Gone && p.Object.Name != "" && !request.Missing && request.For != await.Created:
	case t.room > 0 || p.Back:
		_, _ = fmt.Fprintln(t.Err, text)
		t.room--
		t.mark()
	default:
		if t.held == nil {
			t.held = map[await.Ref]progress.Held{}
		}
		t.held[p.Object] = progress.Held{Object: p.Object, Words: words, Cause: progress.Clean(p.Verdict.Cause), Gone: p.Gone, Text: text}
		if !named {
			t.order = append(t.order, p.Object)
		}
		t.mark()
	}
}

// mark lets who tells what is held, or draws, know that there is something new.
func (t *telling) mark() {
	select {
	case t.dirty <- struct{}{}:
	default:
	}
}

// aside lets f write whole lines to the terminal, above the picture.
func (t *telling) aside(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.drawn {
		f()
		return
	}
	width, _ := t.size()
	_ = t.screen.Clear(width) // see picture
	f()
	t.picture()
}

// hush ends the telling for good: others use the terminal now.
func (t *telling) hush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hushed {
		return
	}
	t.hushed = true
	if t.drawn {
		width, _ := t.size()
		_ = t.screen.Close(width) // see picture
		t.drawn = false
	}
}

// close takes the picture away. What was done is told then, where a picture stood
// for it.
func (t *telling) close(ends []Ending) {
	t.group.Stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tree == nil {
		return
	}
	if t.drawn {
		width, _ := t.size()
		_ = t.screen.Close(width) // see picture
	}
	for _, e := range ends {
		for _, p := range e.Outcome.Objects {
			if p.Verdict.State == await.Done && !t.talk.Silent {
				_, _ = fmt.Fprintf(t.Out, "%s %s\n", p.Object, e.words.Reached)
			}
		}
	}
	t.tree = nil
}

// Events is a stream of events for programs, one JSON object in a line each. It is safe for
// concurrent use. A nil *Events stands for text for people.
type Events struct {
	began time.Time

	mu sync.Mutex
	w  io.Writer // guarded by mu
}

func newEventStream(w io.Writer) *Events { return &Events{w: w, began: time.Now()} }

// Send writes one event, with the time and how long it took.
func (s *Events) Send(e progress.Event) {
	now := time.Now()
	e.Time, e.Elapsed = now.UTC(), now.Sub(s.began).Round(time.Microsecond).Seconds()
	line, err := json.Marshal(e)
	if err != nil {
		return // there is nothing in an event that can't be encoded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.w.Write(append(line, '\n')) // who does not listen is not told
}

// result ends the stream, with what an error means.
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

// Ended ends the stream of a command that stands for a Job and ends with this exit code.
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
		e.Error = strings.Join(exit.Explain(err), "\n")
	}
	for _, end := range ends {
		for _, p := range end.Outcome.Objects {
			e.Objects = append(e.Objects, progress.StatusOf(p, end.hint))
		}
	}
	s.Send(e)
}
