//go:build !portable

package logs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A watch waits for writes to one open file and for new files in its directory.
type watch struct {
	queue  int      // inotify descriptor
	notify *os.File // the same; its method Fd would end deadlines
	id     int      // of the file
}

func newWatch(dir string, f *os.File) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	w := &watch{queue: fd, notify: os.NewFile(uintptr(fd), "inotify")} // nonblocking: the Go runtime polls it
	_, err = unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO)
	if err == nil {
		err = w.file(f)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("inotify: %w", err), w.notify.Close())
	}
	return w, nil
}

// file watches an open file, by descriptor: its path may mean another by now.
func (w *watch) file(f *os.File) (err error) {
	w.id, err = unix.InotifyAddWatch(w.queue, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.IN_MODIFY)
	return err
}

// forget ends the watch of the file.
func (w *watch) forget() {
	_, _ = unix.InotifyRmWatch(w.queue, uint32(w.id)) // or it went with the file
}

// wait blocks until something has changed since the last wait, or interrupt was called.
func (w *watch) wait() error {
	var buf [unix.SizeofInotifyEvent * 64]byte
	if _, err := w.notify.Read(buf[:]); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// interrupt ends this wait and all later ones, by a deadline in the past.
func (w *watch) interrupt() { _ = w.notify.SetReadDeadline(time.Unix(1, 0)) }

func (w *watch) close() { _ = w.notify.Close() }

// nameOf returns the present name of an open file, or the last one of a removed file.
func nameOf(f *os.File) (string, error) {
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	return strings.TrimSuffix(name, " (deleted)"), err
}
