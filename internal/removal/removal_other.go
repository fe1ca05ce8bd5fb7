//go:build !linux || portable

package removal

import (
	"errors"
	"io/fs"
	"os"
)

// Tree is os.RemoveAll: without a real node no hostile program writes to a directory of the cluster.
func Tree(path string) error { return os.RemoveAll(path) }

// List returns what is in a directory. There is nothing in one that does not exist. Something else at path, such as a
// symbolic link, is removed.
func List(path string) ([]os.DirEntry, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, os.Remove(path)
	}
	return os.ReadDir(path)
}
