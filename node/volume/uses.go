package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Uses records which pods use a directory or a device of the node, such as a local volume, that several pods may use at the same time.
// The records are links ROOT/UID/.used/VOLUME to what is used, so that they last as long as the files of the pod in ROOT: in a tmpfs
// they outlive the agent, but not the machine's mounts. It is safe for concurrent use.
type Uses struct {
	root string

	mu    sync.Mutex
	turns map[string]*turn // guarded by mu; by path
}

// A turn lets one pod at a time take a path.
type turn struct {
	token   chan struct{} // holds one while no pod takes the path
	waiters int           // guarded by Uses.mu; includes the pod that has the token
}

// NewUses returns the records below root, which has a directory for each pod.
func NewUses(root string) *Uses { return &Uses{root: root, turns: map[string]*turn{}} }

// Take records that a volume of a pod is at path, unless that is recorded. Before that it calls prepare, for which shared says whether
// another pod uses the path already; if it fails nothing is recorded. Pods take a path one after the other: Take waits for its turn
// until ctx is cancelled.
func (u *Uses) Take(ctx context.Context, pod types.UID, name, path string, prepare func(shared bool) error) error {
	release, err := u.enter(ctx, path)
	if err != nil {
		return err
	}
	defer release()
	record := filepath.Join(u.root, string(pod), usedDir, name)
	now, err := os.Readlink(record)
	if err == nil && now == path {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	shared, err := u.used(path, pod)
	if err != nil {
		return err
	}
	if err := prepare(shared); err != nil {
		return err
	}
	if now != "" {
		if err := os.Remove(record); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(record), 0o711); err != nil { // as the other directories of pods
		return err
	}
	return os.Symlink(path, record)
}

// usedDir is the directory of a pod's records; no volume has a dot in its name.
const usedDir = ".used"

// used reports whether a pod other than the given one uses a path.
func (u *Uses) used(path string, other types.UID) (bool, error) {
	pods, err := os.ReadDir(u.root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for _, p := range pods {
		if p.Name() == string(other) {
			continue
		}
		dir := filepath.Join(u.root, p.Name(), usedDir)
		records, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		for _, r := range records {
			if at, err := os.Readlink(filepath.Join(dir, r.Name())); err == nil && at == path {
				return true, nil
			}
		}
	}
	return false, nil
}

// enter waits until no other pod takes a path. The caller calls release when it has taken it.
func (u *Uses) enter(ctx context.Context, path string) (release func(), err error) {
	u.mu.Lock()
	t := u.turns[path]
	if t == nil {
		t = &turn{token: make(chan struct{}, 1)}
		t.token <- struct{}{}
		u.turns[path] = t
	}
	t.waiters++
	u.mu.Unlock()
	leave := func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if t.waiters--; t.waiters == 0 {
			delete(u.turns, path)
		}
	}
	select {
	case <-t.token:
		return func() { t.token <- struct{}{}; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("waiting for another pod that takes %s: %w", path, context.Cause(ctx))
	}
}
