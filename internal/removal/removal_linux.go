//go:build !portable

package removal

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// deepest is how many levels below the top are open at a time. Directories below that are moved to the top first.
const deepest = 64

// batch is how many names of a directory are read at a time.
const batch = 512

// Tree removes a file or a directory with all that is in it, and follows no symbolic link. It holds a bounded number of
// descriptors, however deep the directory is. It is no error if there is nothing at path. What is mounted below it is
// an error.
func Tree(path string) error {
	err := os.Remove(path)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	top := os.NewFile(uintptr(fd), path)
	defer top.Close()
	t := &tree{top: fd, path: path}
	if err := t.empty(top, 0); err != nil {
		return err
	}
	return os.Remove(path)
}

// List returns what is in a directory. There is nothing in one that does not exist. Something else at path, such as a
// symbolic link, is removed.
func List(path string) ([]os.DirEntry, error) {
	dir, err := os.OpenFile(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case errors.Is(err, unix.ENOTDIR):
		return nil, os.Remove(path)
	case err != nil:
		return nil, err
	}
	defer dir.Close()
	return dir.ReadDir(-1)
}

// A tree is a directory that is being removed.
type tree struct {
	top   int // descriptor
	path  string
	moved int // directories that were moved to the top
}

// empty removes all that is in a directory. It reads the names again until there are none: reading goes on in no
// defined place after names were removed or added.
func (t *tree) empty(dir *os.File, depth int) error {
	for {
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		names, err := dir.Readdirnames(batch)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := t.remove(int(dir.Fd()), name, depth); err != nil && !errors.Is(err, unix.ENOENT) {
				return &os.PathError{Op: "remove", Path: filepath.Join(t.path, "…", name), Err: err}
			}
		}
	}
}

// remove removes one file or directory, or moves a directory that is too deep.
func (t *tree) remove(parent int, name string, depth int) error {
	err := unix.Unlinkat(parent, name, 0)
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
		return err
	}
	if depth == deepest {
		return t.lift(parent, name)
	}
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	if err := t.empty(dir, depth+1); err != nil {
		return err
	}
	return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
}

// lift moves a directory to the top, under a name that is free there.
func (t *tree) lift(parent int, name string) error {
	for {
		t.moved++
		err := unix.Renameat2(parent, name, t.top, "moved-"+strconv.Itoa(t.moved), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}
