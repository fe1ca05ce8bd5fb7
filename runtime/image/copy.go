package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// copyTree copies what is in from into the directory to, with owners, modes, times,
// extended attributes and hard links. The directory to itself gets the attributes
// of from.
func copyTree(from, to string) error {
	c := &copier{links: map[uint64]string{}}
	err := filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return err
		}
		return c.one(p, filepath.Join(to, rel))
	})
	if err != nil {
		return fmt.Errorf("copying %s: %w", from, err)
	}
	for _, d := range slices.Backward(c.dirs) {
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, d.path, d.times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("time of %s: %w", d.path, err)
		}
	}
	return nil
}

type copier struct {
	links map[uint64]string // by inode, where a file with several names went
	dirs  []copiedDir
}

type copiedDir struct {
	path  string
	times []unix.Timespec
}

func (c *copier) one(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return err
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	kind := st.Mode & unix.S_IFMT
	if kind != unix.S_IFDIR && st.Nlink > 1 {
		if first, ok := c.links[st.Ino]; ok {
			return os.Link(first, to)
		}
		c.links[st.Ino] = to
	}
	var err error
	switch kind {
	case unix.S_IFDIR:
		if err = os.Mkdir(to, 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
		c.dirs = append(c.dirs, copiedDir{to, times})
	case unix.S_IFREG:
		err = copyFile(from, to)
	case unix.S_IFLNK:
		var target string
		if target, err = os.Readlink(from); err == nil {
			err = os.Symlink(target, to)
		}
	default:
		err = unix.Mknod(to, kind|0o600, int(st.Rdev))
	}
	if err != nil {
		return err
	}
	if err := os.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if kind != unix.S_IFLNK {
		if err := unix.Chmod(to, st.Mode&0o7777); err != nil {
			return err
		}
	}
	if err := copyAttributes(from, to); err != nil {
		return err
	}
	if kind == unix.S_IFDIR {
		return nil
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, to, times, unix.AT_SYMLINK_NOFOLLOW)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in) // shares the blocks where the file system can
	return errors.Join(err, out.Close())
}

func copyAttributes(from, to string) error {
	names := make([]byte, 4096)
	n, err := unix.Llistxattr(from, names)
	if err != nil || n == 0 {
		return nil // the file system has none
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names[:n]), "\x00"), "\x00") {
		if strings.HasPrefix(name, "trusted.") {
			continue // overlayfs' own
		}
		value := make([]byte, 64<<10) // the kernel's limit
		size, err := unix.Lgetxattr(from, name, value)
		if err != nil {
			continue
		}
		if err := unix.Lsetxattr(to, name, value[:size], 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
			return fmt.Errorf("extended attribute %s of %s: %w", name, to, err)
		}
	}
	return nil
}
