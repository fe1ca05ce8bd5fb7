//go:build !linux || portable

package logs

import (
	"os"
	"path/filepath"
	"sync"
	"time"
)

// poll is how often a file is read again.
const poll = 100 * time.Millisecond

// A watch waits for a moment: the follower then looks for changes itself.
type watch struct {
	ended chan struct{}
	end   sync.Once
}

func newWatch(string, *os.File) (*watch, error) { return &watch{ended: make(chan struct{})}, nil }

func (*watch) file(*os.File) error { return nil }

func (*watch) forget() {}

// wait blocks for a moment, or until interrupt was called.
func (w *watch) wait() error {
	timer := time.NewTimer(poll)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ended:
	}
	return nil
}

// interrupt ends this wait and all later ones.
func (w *watch) interrupt() { w.end.Do(func() { close(w.ended) }) }

func (*watch) close() {}

// nameOf returns the present name of an open file, or the one that it was opened with if it was removed: a log that is rotated ends
// there for a slow reader, unlike on Linux. The files of a log
// are in one directory.
func nameOf(f *os.File) (string, error) {
	self, err := f.Stat()
	if err != nil {
		return "", err
	}
	if now, err := os.Stat(f.Name()); err == nil && os.SameFile(self, now) {
		return f.Name(), nil
	}
	dir := filepath.Dir(f.Name())
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && os.SameFile(self, info) {
			return filepath.Join(dir, e.Name()), nil
		}
	}
	return f.Name(), nil
}
