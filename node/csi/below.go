package csi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// below opens a directory in the agent's directory, and makes it first if create is true. Drivers may change what is in
// there at any time: a symbolic link on the way is an error, and one that is put there meanwhile does not lead out of
// the directory that it is in. The caller closes the result.
func (m *Manager) below(path string, create bool) (*os.Root, error) {
	rest, in := strings.CutPrefix(path, m.opts.Root+"/")
	if !in {
		return nil, fmt.Errorf("%s is not in %s", path, m.opts.Root)
	}
	at, err := os.OpenRoot(m.opts.Root)
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(rest, "/") {
		next, err := enter(at, name, create)
		_ = at.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		at = next
	}
	return at, nil
}

// enter opens a directory in another one.
func enter(at *os.Root, name string, create bool) (*os.Root, error) {
	if create {
		if err := at.Mkdir(name, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	info, err := at.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &kindError{name, info.Mode().Type()}
	}
	return at.OpenRoot(name)
}

// A kindError says that something is not a directory.
type kindError struct {
	name string
	kind fs.FileMode
}

func (e *kindError) Error() string { return fmt.Sprintf("%s is %s, want a directory", e.name, e.kind) }

// makeDir makes a directory in the agent's directory, unless it exists.
func (m *Manager) makeDir(path string) error {
	dir, err := m.below(path, true)
	if err != nil {
		return err
	}
	return dir.Close()
}

// listed returns the names of the directories in path. There are none if path does not exist, or if a driver has
// replaced it by something else: the agent ignores the records in it then.
func (m *Manager) listed(path string) ([]string, error) {
	dir, err := m.below(path, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if _, replaced := errors.AsType[*kindError](err); replaced {
		m.opts.Log.Warn("records of volumes ignored", "err", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := fs.ReadDir(dir.FS(), ".")
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// remove removes a file, link or empty directory, if it exists.
func (m *Manager) remove(path string) error {
	dir, err := m.below(filepath.Dir(path), false)
	if err == nil {
		defer dir.Close()
		err = dir.Remove(filepath.Base(path))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
