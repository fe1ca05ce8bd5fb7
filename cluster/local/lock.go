package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sampan-io/sampan/internal/filelock"
	"github.com/sampan-io/sampan/internal/mounts"
	"github.com/sampan-io/sampan/internal/removal"
	"github.com/sampan-io/sampan/wait"
)

// Remove removes the data of the cluster, unless a process uses it (perhaps of a cluster
// with another name), or the directory is not the data of a cluster, the record
// of that directory by [Profile.Record], and the remains of [Profile.Stage]. It reports whether there was any data.
// A data directory that is a mount point stays, empty. It blocks for up to a few seconds while the cluster is being started.
func (p Profile) Remove(ctx context.Context) (bool, error) {
	had, err := p.removeData(ctx)
	if err != nil {
		return had, err
	}
	staged := p.removeStages()
	return had || staged, p.Unrecord()
}

// Unrecord removes the record of the data directory by [Profile.Record]. If the default one has the data of another
// cluster of that name, then the name means that one from now on.
func (p Profile) Unrecord() error {
	recorded, err := p.Recorded()
	if err != nil || recorded != p.DataDir {
		return err
	}
	if p.DataDir != p.Default && p.holdsIn(p.Default) {
		p.DataDir = p.Default
		return p.Record()
	}
	return p.forgetRecord()
}

func (p Profile) removeData(ctx context.Context) (bool, error) {
	holds, err := p.Holds()
	if foreign, ok := errors.AsType[*ForeignError](err); ok {
		return false, fmt.Errorf("%w; nothing was removed, remove it yourself if you want to", foreign)
	}
	if err != nil || !holds {
		return false, err
	}
	unstarted, err := p.unstarted(ctx)
	if err != nil {
		return false, err
	}
	defer unstarted()
	release, err := p.lock()
	if err != nil {
		return false, err
	}
	defer release()
	// A privileged pod may have mounted something in a volume.
	if err := mounts.UnmountInside(p.DataDir); err != nil {
		return true, fmt.Errorf("removing the data directory: %w", err)
	}
	if err := removal.Tree(p.DataDir); err != nil && !emptied(p.DataDir) {
		return true, fmt.Errorf("removing the data directory: %w", err)
	}
	return true, nil
}

// emptied reports whether a directory that could not be removed is empty: a mount point of the user, or a directory in one
// that belongs to another user, stays.
func emptied(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) == 0
}

// Alone blocks while another process cleans up after the cluster (`up` does it
// after a start that failed, perhaps because of a `down`, which does it, too), and then keeps
// others from it. It reports false if there is nothing to remove any more.
func (p Profile) Alone() (release func(), left bool, err error) {
	dir, err := os.Open(p.RunDir)
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("locking the run directory: %w", err)
	}
	release = func() { _ = dir.Close() }
	err = filelock.Lock(dir)
	mine, statErr := dir.Stat()
	if err = errors.Join(err, statErr); err != nil {
		release()
		return nil, false, fmt.Errorf("locking the run directory: %w", err)
	}
	now, err := os.Stat(p.RunDir)
	return release, err == nil && os.SameFile(mine, now), nil
}

// starting makes the data directory and keeps [Profile.Remove] from it until the result is
// called: a cluster that is being started has no lock of its own yet.
func (p Profile) starting() (release func(), err error) {
	for {
		if err := os.MkdirAll(p.DataDir, 0o700); err != nil {
			return nil, fmt.Errorf("making the data directory: %w", err)
		}
		dir, err := os.Open(p.DataDir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed in this moment
		}
		if err != nil {
			return nil, fmt.Errorf("locking the data directory: %w", err)
		}
		_ = filelock.Share(dir) // some file systems have no locks
		mine, err := dir.Stat()
		now, nowErr := os.Stat(p.DataDir)
		if err == nil && nowErr == nil && os.SameFile(mine, now) {
			return func() { _ = dir.Close() }, nil
		}
		_ = dir.Close()
	}
}

// startPatience is how long the end of a start is waited for: it ends in a moment when the
// cluster that it was for was stopped.
const startPatience = 5 * time.Second

// unstarted blocks until no cluster is being started in the data directory, and keeps any
// from it until the result is called.
func (p Profile) unstarted(ctx context.Context) (release func(), err error) {
	dir, err := os.Open(p.DataDir)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory: %w", err)
	}
	pace := wait.Pace{First: 10 * time.Millisecond, Limit: startPatience}
	err = wait.Until(ctx, pace, func(context.Context) (bool, error) {
		return !errors.Is(filelock.TryLock(dir), filelock.ErrLocked), nil
	})
	if err != nil {
		_ = dir.Close()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := p.restoring(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("cluster %s is being started in %s; stop it with `sampan down --name=%s`; nothing was removed", p.Name, p.DataDir, p.Name)
	}
	return func() { _ = dir.Close() }, nil
}

// KeepStopped keeps the cluster, which must not run, from being started by [Start] until the result is called, for a
// restore. It blocks for up to a few seconds while it is being started.
func (p Profile) KeepStopped(ctx context.Context) (release func(), err error) {
	unstarted, err := p.unstarted(ctx)
	if err != nil {
		return nil, err
	}
	free, err := p.lock()
	if err != nil {
		unstarted()
		return nil, err
	}
	free() // a server takes it itself
	noted := p.noteRestore()
	return func() {
		noted()
		unstarted()
	}, nil
}

// restoreFile is locked by the process that restores the cluster, and has its ID, for messages to others.
func (p Profile) restoreFile() string { return filepath.Join(p.DataDir, "restore.lock") }

// noteRestore says in the restoreFile that this process restores the cluster, until the result is called. Without the
// file others get a less exact message.
func (p Profile) noteRestore() (end func()) {
	f, err := os.OpenFile(p.restoreFile(), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return func() {}
	}
	_ = filelock.TryLock(f)
	_, _ = fmt.Fprintln(f, os.Getpid())
	return func() {
		_ = os.Remove(f.Name())
		_ = f.Close()
	}
}

// restoring returns an error if a process restores the cluster.
func (p Profile) restoring() error {
	f, err := os.Open(p.restoreFile())
	if err != nil {
		return nil //nolint:nilerr // none does, as far as can be seen
	}
	defer f.Close()
	if !errors.Is(filelock.TryShare(f), filelock.ErrLocked) {
		return nil // the file was left by a crash
	}
	text, _ := io.ReadAll(io.LimitReader(f, 20))
	return fmt.Errorf("cluster %s is being restored by process %s, in %s; nothing was changed", p.Name, strings.TrimSpace(string(text)), p.DataDir)
}

// lock takes the lock that the store of a running cluster holds (see package
// store/disk), so that none begins to run meanwhile.
func (p Profile) lock() (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(p.DataDir, "store", "lock"), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil // it was never started so far
	}
	if err != nil {
		return nil, fmt.Errorf("locking the data directory: %w", err)
	}
	err = filelock.TryLock(f)
	if err == nil {
		return func() { _ = f.Close() }, nil
	}
	owner, _ := os.ReadFile(f.Name())
	_ = f.Close()
	if !errors.Is(err, filelock.ErrLocked) {
		return nil, fmt.Errorf("locking the data directory %s: %w", p.DataDir, err)
	}
	return nil, fmt.Errorf("the data directory %s is in use by process %s; `sampan status --all` says which cluster that is, nothing was removed", p.DataDir, strings.TrimSpace(string(owner)))
}
