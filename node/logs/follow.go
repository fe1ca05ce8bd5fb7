package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

// follower reads a log that grows and is rotated. It reports the end of the log only
// when the container has ended or its context is cancelled.
//
// Rotation renames the file at path to path.TIMESTAMP, or path.TIMESTAMP.gz once it is
// compressed, and makes a new file at path; names sort by age. The open file keeps
// its content whatever happens to its name. At its end the follower asks the kernel
// for its present name: if that is not path, the next file is the oldest one that is
// younger. If a slow reader finds that the next file has been removed, it continues with
// the oldest file that is left, like the kubelet.
type follower struct {
	path    string
	f       *os.File
	content io.Reader // f, or what is unpacked of it
	stamp   string    // of f, if it had been rotated when it was opened; otherwise ""
	watch   *watch
	running func() (bool, <-chan struct{})
	idle    func() // called before each wait
	guard   *run.Group
	done    context.Context //nolint:containedctx // the life of one read of a log
	last    bool            // the container has ended: what is there now is all
	drained bool            // f is at its end although the next file was there before the last read
}

// newFollower follows the log at path from the present offset of f, which is the
// open file.
func newFollower(ctx context.Context, path string, f *os.File, running func() (bool, <-chan struct{})) (*follower, error) {
	changes, err := newWatch(filepath.Dir(path), f) // the new file of a rotation appears in the directory
	if err != nil {
		return nil, err
	}
	w := &follower{path: path, f: f, content: f, watch: changes, running: running, guard: run.NewGroup(ctx, 0), done: ctx}
	// A wait on the watch ends when ctx does or when there is news of the container.
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
		changes.interrupt()
	})
	return w, nil
}

func (w *follower) close() {
	w.guard.Stop()
	w.watch.close()
	_ = w.f.Close()
}

// Read implements io.Reader.
func (w *follower) Read(p []byte) (int, error) {
	for {
		n, err := w.content.Read(p)
		if n > 0 {
			return n, nil // an error comes again; the end of this file is not that of the log
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if w.done.Err() != nil {
			return 0, io.EOF
		}
		more, err := w.next()
		if err != nil {
			return 0, err
		}
		if more {
			continue
		}
		if w.last {
			return 0, io.EOF
		}
		w.idle()
		if alive, _ := w.running(); !alive {
			// The files now have all of its output.
			w.last = true
			continue
		}
		if err := w.watch.wait(); err != nil {
			return 0, err
		}
	}
}

// next goes on to the next file if the open one, which is at its end, has been
// rotated. It reports whether there is more to read.
func (w *follower) next() (bool, error) {
	stamp := w.stamp
	if stamp == "" {
		name, err := nameOf(w.f)
		if err != nil {
			return false, err
		}
		if stamp = stampOf(w.path, name); stamp == "" {
			return false, nil // it is still the youngest one, or the whole log was removed
		}
	}
	f, content, found, err := openAfter(w.path, stamp)
	if err != nil || f == nil {
		return false, err
	}
	if w.stamp == "" && !w.drained {
		// The runtime may have written to the old file until the new one was there.
		w.drained = true
		return true, f.Close()
	}
	w.watch.forget()
	_ = w.f.Close()
	w.f, w.content, w.stamp, w.drained = f, content, found, false
	if found != "" {
		return true, nil // it grows no more
	}
	return true, w.watch.file(w.f)
}

// openAfter opens the oldest file of a log that is younger than the one with this
// stamp, and returns its own, which is "" for the file at path. It returns nil if
// there is none yet.
func openAfter(path, stamp string) (*os.File, io.Reader, string, error) {
	for {
		name, found, err := nameAfter(path, stamp)
		if err != nil {
			return nil, nil, "", err
		}
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			if found == "" {
				return nil, nil, "", nil // the new file is about to be made
			}
			continue // compressed or removed meanwhile
		}
		if err != nil {
			return nil, nil, "", err
		}
		if found == "" {
			// It may be younger than one that was rotated after the look. Files older
			// than the open one have their names by now.
			if _, again, err := nameAfter(path, stamp); err != nil || again != "" && again != openStamp(path, f) {
				_ = f.Close()
				if err != nil {
					return nil, nil, "", err
				}
				continue
			}
		}
		if !strings.HasSuffix(name, gzipSuffix) {
			return f, f, found, nil
		}
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, nil, "", errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
		}
		return f, z, found, nil
	}
}

// openStamp returns the stamp of an open file of a log, and "" for the file at path.
func openStamp(path string, f *os.File) string {
	name, err := nameOf(f)
	if err != nil {
		return ""
	}
	return stampOf(path, name)
}

const gzipSuffix = ".gz"

// stampOf returns the timestamp in the name of a rotated file of the log at path, and
// "" for any other name.
func stampOf(path, name string) string {
	stamp, ok := strings.CutPrefix(filepath.Base(name), filepath.Base(path)+".")
	if !ok {
		return ""
	}
	stamp = strings.TrimSuffix(stamp, gzipSuffix)
	if _, err := time.Parse("20060102-150405", stamp); err != nil {
		return ""
	}
	return stamp
}

// nameAfter returns the name and the stamp of the oldest file of a log that is younger
// than the one with this stamp: path itself and "" if no rotated one is. A file that is
// renamed meanwhile may be missing in one look at a directory, but not in two that agree.
func nameAfter(path, stamp string) (name, found string, err error) {
	for {
		name, found, err = lookAfter(path, stamp)
		if err != nil {
			return "", "", err
		}
		again, _, err := lookAfter(path, stamp)
		if err != nil || again == name {
			return name, found, err
		}
	}
}

func lookAfter(path, stamp string) (name, found string, err error) {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return "", "", err
	}
	name = path
	for _, e := range entries { // sorted, so a plain file comes before its compressed copy
		if s := stampOf(path, e.Name()); s > stamp && (found == "" || s < found) {
			name, found = filepath.Join(filepath.Dir(path), e.Name()), s
		}
	}
	return name, found, nil
}
