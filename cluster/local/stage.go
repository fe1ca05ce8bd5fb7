package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sampan-io/sampan/internal/filelock"
	"github.com/sampan-io/sampan/internal/removal"
)

// staged is the end of the names of directories that are not complete. A name of a cluster has no dots.
const staged = ".restoring-"

// Stage makes a directory beside the data directory, in which that is prepared, and removes the remains of a crash.
// Release removes it if it is still there.
func (p Profile) Stage() (dir string, release func(), err error) {
	parent := filepath.Dir(p.DataDir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", nil, fmt.Errorf("making the data directory: %w", err)
	}
	p.removeStages()
	if dir, err = os.MkdirTemp(parent, filepath.Base(p.DataDir)+staged+"*"); err != nil {
		return "", nil, fmt.Errorf("making the data directory: %w", err)
	}
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	_ = filelock.TryLock(f) // some file systems have no locks
	return dir, func() {
		_ = removal.Tree(dir) // not there after a success
		_ = f.Close()
	}, nil
}

// removeStages removes the directories of Stage whose processes have ended, as far as it can. It reports whether there
// was one.
func (p Profile) removeStages() (removed bool) {
	parent := filepath.Dir(p.DataDir)
	entries, _ := os.ReadDir(parent) // without the right to list it nothing is removed
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), filepath.Base(p.DataDir)+staged) {
			continue
		}
		f, err := os.Open(filepath.Join(parent, e.Name()))
		if err != nil {
			continue // another process has removed it
		}
		if filelock.TryLock(f) == nil {
			removed = removal.Tree(f.Name()) == nil || removed
		}
		_ = f.Close()
	}
	return removed
}
