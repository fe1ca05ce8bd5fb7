package wholefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// maxLinks bounds the symbolic links to a file, as in Linux.
const maxLinks = 40

// CreateOutput is [Create] for a file that a user names for the output of a command: symbolic links are followed. A
// device, a pipe and any other file that is not regular is written to as it is, and so is the standard output if path
// names it; bytes written to it before [File.Discard] stay.
func CreateOutput(path string, mode fs.FileMode) (*File, error) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		target, err := followed(path)
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", path, err)
		}
		return Create(target, mode, Durable)
	case err != nil:
		return nil, fmt.Errorf("writing %s: %w", path, err)
	case standard(st):
		return through(path, os.O_APPEND)
	case !st.Mode().IsRegular():
		return through(path, 0)
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	return Create(target, mode, Durable)
}

// through opens a file whose contents are not replaced.
func through(path string, flags int) (*File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|flags, 0)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	return &File{File: f, through: true}, nil
}

// standard reports whether a file is the standard output or error of the process.
func standard(st fs.FileInfo) bool {
	for _, f := range []*os.File{os.Stdout, os.Stderr} {
		if other, err := f.Stat(); err == nil && os.SameFile(st, other) {
			return true
		}
	}
	return false
}

// followed returns the path of the missing file that path leads to.
func followed(path string) (string, error) {
	for range maxLinks {
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // it is no link
		}
		if !filepath.IsAbs(target) {
			dir, err := filepath.EvalSymlinks(filepath.Dir(path)) // because .. in a link is relative to that
			if err != nil {
				return "", err
			}
			target = filepath.Join(dir, target)
		}
		path = target
	}
	return "", errors.New("too many levels of symbolic links")
}
