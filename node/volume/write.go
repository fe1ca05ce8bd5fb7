package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	dataLink = "..data"
	nextLink = "..data_tmp"
)

// Write makes dir, which must exist, hold p and nothing else but directories for mounts, in one step for its
// readers (V1). It reports whether anything had to be done. A gid that is not
// negative becomes the group of dir and of everything in it, and may then read it.
func Write(dir string, p Payload, gid int) (changed bool, err error) {
	for path := range p {
		if !filepath.IsLocal(path) || strings.HasPrefix(path, "..") {
			return false, fmt.Errorf("path %q leaves the volume", path) // V3
		}
	}
	current, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if current != "" && holds(filepath.Join(dir, current), p) { // V2
		return false, nil
	}
	fresh, err := os.MkdirTemp(dir, "..")
	if err != nil {
		return false, err
	}
	if err := fill(fresh, p, gid); err != nil {
		return false, errors.Join(err, os.RemoveAll(fresh))
	}
	next := filepath.Join(dir, nextLink)
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := os.Symlink(filepath.Base(fresh), next); err != nil {
		return false, err
	}
	if err := os.Rename(next, filepath.Join(dir, dataLink)); err != nil {
		return false, err
	}
	if err := link(dir, p); err != nil {
		return true, err
	}
	if current != "" {
		if err := os.RemoveAll(filepath.Join(dir, current)); err != nil {
			return true, err
		}
	}
	return true, setGroup(context.Background(), dir, gid, 0o440)
}

// holds reports whether dir has exactly the files of p.
func holds(dir string, p Payload) bool {
	n := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		n++
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		want, ok := p[rel]
		if !ok {
			return fs.ErrNotExist
		}
		have, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(have, want.Data) {
			return fs.ErrNotExist
		}
		return nil
	})
	return err == nil && n == len(p)
}

func fill(dir string, p Payload, gid int) error {
	if err := os.Chmod(dir, 0o755); err != nil { // containers run as any user
		return err
	}
	for path, file := range p {
		full := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			return err
		}
		mode := fs.FileMode(file.Mode) & fs.ModePerm
		if err := os.WriteFile(full, file.Data, mode); err != nil {
			return err
		}
		if err := os.Chmod(full, mode); err != nil { // whatever the umask says
			return err
		}
		if file.User != nil {
			if err := os.Chown(full, int(*file.User), -1); err != nil {
				return err
			}
		}
	}
	return setGroup(context.Background(), dir, gid, 0o440)
}

// link makes the names in the volume and removes those of earlier payloads. Directories stay: mounts of containers may be on them
// (see [MakeMountPoints] and [Subpath]).
func link(dir string, p Payload) error {
	want := map[string]bool{}
	for path := range p {
		top, _, _ := strings.Cut(path, string(filepath.Separator))
		want[top] = true
	}
	for name := range want {
		err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type() == fs.ModeSymlink && !strings.HasPrefix(e.Name(), "..") && !want[e.Name()] {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Own gives everything in a writable volume to a group, and new files in it as
// well. It returns early if ctx is cancelled.
func Own(ctx context.Context, dir string, gid int) error { return setGroup(ctx, dir, gid, 0o660) }

// Owned reports whether the directory itself belongs to the group with the rights that [Own] gives it.
func Owned(dir string, gid int) bool {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return false
	}
	const rights = unix.S_ISGID | 0o770
	return int(st.Gid) == gid && st.Mode&rights == rights
}

// Group returns the group of a directory.
func Group(dir string) (int, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: dir, Err: err}
	}
	return int(st.Gid), nil
}

// setGroup gives dir and everything in it to a group, with these rights. Files that are made in its directories later
// belong to the group as well. It does nothing for a negative gid. Containers and other programs may change the volume meanwhile: no
// link that they put in the place of a file or directory leads out of it, and files that they remove are ignored.
//
// A directory is changed after everything in it, and dir last: [Owned] is true only of a volume that was changed to its end. As in
// kubelet, a file whose owner or mode can't be changed, such as one on a server that trusts no root, is left as it is.
func setGroup(ctx context.Context, dir string, gid int, rights fs.FileMode) error {
	if gid < 0 {
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return giveToGroup(ctx, root, ".", gid, rights)
}

func giveToGroup(ctx context.Context, root *os.Root, path string, gid int, rights fs.FileMode) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	info, err := root.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		names, err := list(root, path)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := giveToGroup(ctx, root, filepath.Join(path, name), gid, rights); err != nil {
				return err
			}
		}
	}
	_ = root.Lchown(path, -1, gid)
	switch {
	case info.IsDir():
		_ = root.Chmod(path, info.Mode()|rights|0o110|fs.ModeSetgid)
	case info.Mode().IsRegular():
		_ = root.Chmod(path, info.Mode()|rights)
	}
	return nil
}

// list returns the names in a directory: none if it has been removed or replaced.
func list(root *os.Root, path string) ([]string, error) {
	dir, err := root.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// Subpath opens the part of the volume at dir that path names. If it does not exist, it is created as a directory with the mode of the
// volume, as by kubelet. No link leads out of the volume,
// even if a container has put one there, and the found file is not opened for reading
// or writing: it may be a FIFO without a writer, or a device. The returned file is a
// handle for mounting; the caller closes it, and uses it in place of the path, which
// may change at any time.
func Subpath(dir, path string) (*os.File, error) {
	f, err := Find(dir, path)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := makeLike(root, path); err != nil {
		return nil, err
	}
	return Find(dir, path)
}

// makeLike creates the directories of a path that do not exist, each with the mode of the root, whatever the umask is.
func makeLike(root *os.Root, path string) error {
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	mode := info.Mode() & (fs.ModePerm | fs.ModeSetgid | fs.ModeSticky)
	made := "."
	for name := range strings.SplitSeq(filepath.Clean(path), string(filepath.Separator)) {
		made = filepath.Join(made, name)
		switch err := root.Mkdir(made, mode.Perm()); {
		case errors.Is(err, fs.ErrExist):
		case err != nil:
			return err
		default:
			if err := root.Chmod(made, mode); err != nil {
				return err
			}
		}
	}
	return nil
}

// Find opens the part of the volume at dir that path names, as [Subpath] does, and creates nothing.
func Find(dir, path string) (*os.File, error) {
	return lookUp(dir, path, beneath)
}

// Read opens a regular file in the volume at dir for reading. Links in the volume lead to where they do in a container that has the volume
// as its root directory. Files of other types, which opening might change, are not opened.
func Read(dir, path string) (*os.File, error) {
	found, err := lookUp(dir, path, inRoot)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	info, err := found.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is %s, want a regular file", path, info.Mode().Type())
	}
	return reopen(found)
}
