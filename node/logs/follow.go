package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/run"
)

// follower reads a file that grows. It reports the end of the file only when the
// container has ended or its context is over.
type follower struct {
	f       *os.File
	notify  *os.File // inotify descriptor
	running func() (bool, <-chan struct{})
	idle    func() // called before each wait
	guard   *run.Group
	done    context.Context //nolint:containedctx // the life of one read of a log
	last    bool            // the container has ended: what is there now is all
}

func newFollower(ctx context.Context, f *os.File, running func() (bool, <-chan struct{})) (*follower, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	notify := os.NewFile(uintptr(fd), "inotify") // nonblocking: the Go runtime polls it
	// By descriptor: the path may mean another file by now.
	if _, err := unix.InotifyAddWatch(fd, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.IN_MODIFY); err != nil {
		return nil, errors.Join(fmt.Errorf("inotify: %w", err), notify.Close())
	}
	w := &follower{f: f, notify: notify, running: running, guard: run.NewGroup(ctx, 0), done: ctx}
	// A wait on inotify ends by a deadline in the past, when ctx does or when
	// there is news of the container.
	w.guard.Go(func(ctx context.Context) {
		for {
			alive, changed := running()
			if !alive {
				break
			}
			select {
			case <-changed:
				continue
			case <-ctx.Done():
			}
			break
		}
		_ = notify.SetReadDeadline(time.Unix(1, 0))
	})
	return w, nil
}

func (w *follower) close() {
	w.guard.Stop()
	_ = w.notify.Close()
}

// Read implements io.Reader.
func (w *follower) Read(p []byte) (int, error) {
	for {
		n, err := w.f.Read(p)
		if n > 0 || err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
		if w.last || w.done.Err() != nil {
			return 0, io.EOF
		}
		w.idle()
		if alive, _ := w.running(); !alive {
			// What it printed before it ended is in the file by now.
			w.last = true
			continue
		}
		var buf [unix.SizeofInotifyEvent * 16]byte
		if _, err := w.notify.Read(buf[:]); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
	}
}
