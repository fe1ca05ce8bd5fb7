// Package wholefile replaces files so that a reader, and the next start after a crash, see the old contents or the new ones,
// never a part.
//
// The new contents are written to a file of another name, which is then renamed. That alone is not enough for a power cut: a
// file system may keep the rename and not the contents, and then shows an empty file. So a [Durable] file is synced before it is
// renamed, and its folder afterwards.
package wholefile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Keep says how long a file has to last.
type Keep int

// The values of Keep.
const (
	Durable   Keep = iota // over a power cut
	UntilBoot             // no longer than the machine runs: nothing is synced
)

// suffix ends the names of files that are not complete. A crash may leave one behind; readers of a folder skip them.
const suffix = ".new"

// Write replaces the file at path, or makes it. Its folder has to exist. If it fails, the file is as it was before, and nothing
// is left behind. Several goroutines and processes may write one file: the last one wins. A symbolic link at path is replaced, not
// followed. The process's umask applies to mode.
func Write(path string, data []byte, mode fs.FileMode, keep Keep) error {
	f, err := Create(path, mode, keep)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(data); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return f.Commit()
}

// WriteIn is [Write] for a name below a root, which no symbolic link leads out of. The incomplete file is made in the folder stage
// of the root, on the same file system; "" is the folder of name.
func WriteIn(root *os.Root, name, stage string, data []byte, mode fs.FileMode, keep Keep) error {
	return write(root, name, stage, data, mode, keep, nothing)
}

func write(root *os.Root, name, stage string, data []byte, mode fs.FileMode, keep Keep, before tap) error {
	if stage == "" {
		stage = path.Dir(name)
	}
	f, err := create(root, name, stage, mode, keep, before)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := before("write"); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return fmt.Errorf("writing %s: %w", f.shown(), err)
	}
	return f.Commit()
}

// A File is new contents that replace a file in the end. It belongs to one goroutine.
type File struct {
	*os.File

	root    *os.Root
	own     bool // root is closed with the file
	name    string
	stage   string // the name of the incomplete file; "" when there is none any more
	keep    Keep
	before  tap
	through bool // nothing is replaced: the file is written to directly
}

// A tap is called before each step that changes the disk. An error ends the replacement there.
type tap func(step string) error

func nothing(string) error { return nil }

// Create begins to replace the file at path, like [Write], for contents that are written in pieces. The caller ends it with Commit
// or Discard.
func Create(path string, mode fs.FileMode, keep Keep) (*File, error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	f, err := create(root, filepath.Base(path), ".", mode, keep, nothing)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	f.own = true
	return f, nil
}

func create(root *os.Root, name, stage string, mode fs.FileMode, keep Keep, before tap) (*File, error) {
	for {
		f := &File{root: root, name: name, keep: keep, before: before}
		f.stage = path.Join(stage, "."+path.Base(name)+"."+strconv.FormatUint(rand.Uint64(), 36)+suffix)
		if err := before("create"); err != nil {
			return nil, err
		}
		var err error
		f.File, err = root.OpenFile(f.stage, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode) // EXCL: not through a link
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, fs.ErrExist):
			return nil, fmt.Errorf("writing %s: %w", f.shown(), err)
		}
	}
}

// shown is the name of the file in messages.
func (f *File) shown() string { return filepath.Join(f.root.Name(), f.name) }

// Commit replaces the file by what was written. After an error the file is as it was before, unless the error comes from the sync
// of the folder: then it depends on the file system which of the two a power cut leaves.
func (f *File) Commit() error {
	defer f.Discard()
	if f.through {
		return f.File.Close()
	}
	if err := f.commit(); err != nil {
		return fmt.Errorf("writing %s: %w", f.shown(), err)
	}
	return nil
}

func (f *File) commit() error {
	if f.keep == Durable {
		if err := f.before("sync"); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	if err := f.File.Close(); err != nil {
		return err
	}
	if err := f.before("rename"); err != nil {
		return err
	}
	if err := f.root.Rename(f.stage, f.name); err != nil {
		return err
	}
	f.stage = ""
	if f.keep != Durable {
		return nil
	}
	if err := f.before("sync folder"); err != nil {
		return err
	}
	return f.syncFolder()
}

func (f *File) syncFolder() error {
	dir, err := f.root.Open(path.Dir(f.name))
	if err != nil {
		return err
	}
	return errors.Join(syncFolder(dir), dir.Close())
}

// Discard removes what was written, unless it was committed. It may be called more than once, and after Commit.
func (f *File) Discard() {
	_ = f.File.Close() // a second time after Commit
	if f.stage != "" {
		_ = f.root.Remove(f.stage)
		f.stage = ""
	}
	if f.own {
		f.own = false
		_ = f.root.Close()
	}
}

// Rename gives a file another name in its folder, in place of the file that has it, durably.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	return errors.Join(syncFolder(dir), dir.Close())
}

// Incomplete reports whether a name in a folder is that of a file that a crash kept from being complete. It is of no use.
func Incomplete(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, suffix)
}
