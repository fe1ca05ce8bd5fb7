package waiting

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/cli/progress"
	"github.com/sampan-io/sampan/cli/session"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/terminal"
)

const (
	// firstFrame is how long a wait must last before there is a picture.
	firstFrame = 100 * time.Millisecond
	// frame is the shortest time between two pictures.
	frame = 50 * time.Millisecond
)

// A treeRenderer draws a picture on a terminal.
type treeRenderer struct {
	session.Streams
	silent  bool
	group   *run.Group
	changed run.Bell // rung when the picture must be drawn
	size    func() (width, height int)

	mu     sync.Mutex
	tree   *progress.Tree   // guarded by mu
	screen *progress.Screen // guarded by mu
	hushed bool             // guarded by mu
	drawn  bool             // guarded by mu; the picture is on the terminal
}

func newTreeRenderer(ctx context.Context, streams session.Streams, talk Talk, tree *progress.Tree, size func() (width, height int)) *treeRenderer {
	r := &treeRenderer{
		Streams: streams, silent: talk.Silent, group: run.NewGroup(ctx, 0), changed: run.NewBell(), size: size,
		tree: tree, screen: progress.NewScreen(terminal.Raw(streams.Err)),
	}
	r.group.Go(r.draw)
	return r
}

// terminalOf returns the style and the size of a stream if it is a terminal on which a picture can be drawn.
func terminalOf(w io.Writer) (style progress.Style, size func() (width, height int), ok bool) {
	f, is := terminal.File(w)
	if !is {
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
			return 80, 24 // a terminal that does not report its size
		}
		return width, height
	}
	return style, size, true
}

// draw keeps the picture up to date until ctx is cancelled.
func (r *treeRenderer) draw(ctx context.Context) {
	resized := make(chan os.Signal, 1)
	terminal.NotifyResized(resized)
	terminal.NotifyContinued(resized)
	defer signal.Stop(resized)
	stopped := make(chan os.Signal, 1)
	terminal.NotifyStopped(stopped)
	defer signal.Stop(stopped)
	first := time.NewTimer(firstFrame)
	defer first.Stop()
	for waiting := true; waiting; {
		select {
		case <-first.C:
			waiting = false
		case <-stopped:
			r.suspend()
		case <-ctx.Done():
			return
		}
	}
	clock := time.NewTicker(time.Second) // the picture shows durations
	defer clock.Stop()
	for {
		r.mu.Lock()
		r.picture()
		r.mu.Unlock()
		if !run.Pause(ctx, frame) {
			return
		}
		select {
		case <-r.changed:
		case <-clock.C:
		case <-resized:
		case <-stopped:
			r.suspend()
		case <-ctx.Done():
			return
		}
	}
}

// suspend leaves the terminal as it was and stops the process until it receives SIGCONT. It sends itself SIGSTOP, because
// the Go runtime ignores the terminal's SIGTSTP once signal.Notify was called for it.
func (r *treeRenderer) suspend() {
	r.mu.Lock()
	defer r.mu.Unlock() // nothing is written while the process is stopped
	r.clear()
	terminal.Stop()
}

// picture draws; r.mu must be held. Errors of the terminal are ignored.
func (r *treeRenderer) picture() {
	if r.hushed || !inForeground(r.Err) {
		return
	}
	width, height := r.size()
	// The last column and line stay empty: writing there makes terminals scroll.
	_ = r.screen.Draw(r.tree.Lines(time.Now(), width-1, height-1), width)
	r.drawn = true
}

// clear removes the picture; r.mu must be held.
func (r *treeRenderer) clear() {
	if r.drawn {
		width, _ := r.size()
		_ = r.screen.Clear(width) // see picture
		r.drawn = false
	}
}

// inForeground reports whether this process may draw on a terminal: it may not while it runs in the background.
func inForeground(w io.Writer) bool {
	f, isFile := w.(*os.File)
	return !isFile || terminal.Foreground(f)
}

func (r *treeRenderer) update(p await.Progress, words progress.Words, _ await.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tree.Update(p, words, time.Now())
	r.changed.Ring()
}

func (r *treeRenderer) logLine(src logSource, line []byte) {
	r.above(func() { printLogLine(r.Streams, src, line) })
}

func (r *treeRenderer) note(text string) {
	r.above(func() { printNote(r.Streams, text) })
}

// above calls f, which writes whole lines to the terminal, with the picture below them.
func (r *treeRenderer) above(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	redraw := r.drawn
	r.clear()
	f()
	if redraw {
		r.picture()
	}
}

func (r *treeRenderer) hush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hushed = true
	r.clear()
}

// close removes the picture and prints the done objects.
func (r *treeRenderer) close(ends []Ending) {
	r.group.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clear()
	for _, e := range ends {
		for _, s := range e.Outcome.Objects {
			if s.Verdict.State == await.Done && !r.silent {
				_, _ = fmt.Fprintln(r.Out, progress.DoneLine(s, e.words))
			}
		}
	}
}
