package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/mounts"
	"github.com/sampan-io/sampan/internal/removal"
)

// use lists the layers of a container's root file system.
type use struct {
	Chains []string
}

func (s *Store) readUse(container string) (use, error) {
	var u use
	data, err := os.ReadFile(s.path("containers", container, "use.json"))
	if err != nil {
		return u, err
	}
	return u, json.Unmarshal(data, &u)
}

// Mount makes the root file system of a container from an image and returns its
// path: target, where it is mounted, or a directory with a copy where there is no
// overlayfs. container is a name of the caller's for [Store.Unmount].
func (s *Store) Mount(container, imageID, target string) (string, error) {
	return s.MountFor(container, imageID, target, nil)
}

// Users are the users of a container, which are not those of the host.
type Users struct {
	Namespace *os.File // of the kernel; open as long as a call lasts
	Root      uint32   // the host's user, and group, that is 0 in it
}

// MountFor is like [Store.Mount] for a container with users of its own: to them, files belong to the owners that the image
// names. It needs overlayfs, and a kernel and a file system of the store that map the owners of files. A nil users means
// those of the host.
func (s *Store) MountFor(container, imageID, target string, users *Users) (string, error) {
	s.uses.RLock()
	defer s.uses.RUnlock()
	s.mu.RLock()
	img := s.images[imageID]
	s.mu.RUnlock()
	if img == nil {
		return "", fmt.Errorf("image %s: %w", imageID, ErrNotFound)
	}
	rootfs, err := s.mount(container, img, target, users)
	if err != nil {
		return "", errors.Join(fmt.Errorf("root file system of image %s: %w", imageID, err), s.Unmount(container, target))
	}
	return rootfs, nil
}

func (s *Store) mount(container string, img *Image, target string, users *Users) (string, error) {
	dir := s.path("containers", container)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	var u use
	for _, l := range img.Layers {
		u.Chains = append(u.Chains, l.ChainID)
	}
	data, err := json.Marshal(u)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "use.json"), data, 0o600); err != nil {
		return "", err
	}
	chain, err := s.readChain("", img.Layers[len(img.Layers)-1].ChainID)
	if err != nil {
		return "", err
	}
	if !s.overlay && users != nil {
		return "", errors.New("users of the pod's own need overlayfs")
	}
	if !s.overlay {
		rootfs := filepath.Join(dir, "rootfs")
		if err := os.Mkdir(rootfs, 0o755); err != nil {
			return "", err
		}
		return rootfs, s.copyChain(chain, rootfs)
	}
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return "", err
	}
	// The root directory of an overlay has the attributes of the upper one.
	if err := copyDirAttributes(chain[0].fs, upper); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o711); err != nil {
		return "", err
	}
	if err := os.MkdirAll(target, 0o700); err != nil {
		return "", err
	}
	lower := dirs(chain)
	if users != nil {
		if err := shift(upper, users.Root); err != nil {
			return "", err
		}
		var done func() error
		if lower, done, err = mapOwners(lower, filepath.Join(dir, lowerDir), users); err != nil {
			return "", err
		}
		return target, errors.Join(mountOverlay(target, lower, upper, work), done())
	}
	return target, mountOverlay(target, lower, upper, work)
}

// shift gives a directory to the user and the group that are its owners in a namespace whose root is the host's user root.
func shift(dir string, root uint32) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	if err := os.Chown(dir, int(st.Uid+root), int(st.Gid+root)); err != nil {
		return err
	}
	return unix.Chmod(dir, st.Mode&0o7777)
}

// mapOwners mounts each directory below at, so that its files belong to users of the namespace. The mounts are read-only:
// nothing that removes what is below at can change a layer. Done removes them: an overlay holds what it needs of them.
func mapOwners(dirs []string, at string, users *Users) (mapped []string, done func() error, err error) {
	done = func() error {
		if err := mounts.DetachBelow(at); err != nil {
			return err
		}
		return os.RemoveAll(at)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, done())
		}
	}()
	for i, dir := range dirs {
		target := filepath.Join(at, strconv.Itoa(i))
		if err := os.MkdirAll(target, 0o700); err != nil {
			return nil, nil, err
		}
		if err := mapOne(dir, target, users); err != nil {
			return nil, nil, fmt.Errorf("owners of the files in %s: %w", dir, err)
		}
		mapped = append(mapped, target)
	}
	return mapped, done, nil
}

func mapOne(dir, target string, users *Users) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(tree) }()
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY, Propagation: unix.MS_PRIVATE, Userns_fd: uint64(users.Namespace.Fd())}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return err
	}
	return unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// copyDirAttributes makes directory to with the owner and mode of from.
func copyDirAttributes(from, to string) error {
	var st unix.Stat_t
	if err := unix.Stat(from, &st); err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	if err := os.Chown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	return unix.Chmod(to, st.Mode&0o7777)
}

// Unmount removes a container's root file system and what was written to it. What
// isn't there is no error.
func (s *Store) Unmount(container, target string) error {
	if err := unmountImages(target); err != nil {
		return err
	}
	err := unix.Unmount(target, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unmounting %s: %w", target, err)
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.discard(container)
}

// discard removes the files of a container. Layers that a start left mounted there, because it was cut off, stay.
func (s *Store) discard(container string) error {
	lower := s.path("containers", container, lowerDir)
	if _, err := os.Lstat(lower); err == nil {
		if err := mounts.DetachBelow(lower); err != nil {
			return err
		}
	}
	return removal.Tree(s.path("containers", container))
}

// lowerDir is where the layers of a container with users of its own are mounted, while its root file system is being made.
const lowerDir = "lower"

// Sweep removes the root file systems of containers for which keep returns false, such as
// those from before the machine was started.
func (s *Store) Sweep(keep func(container string) bool) error {
	entries, err := os.ReadDir(s.path("containers"))
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !keep(e.Name()) {
			errs = append(errs, s.discard(e.Name()))
		}
	}
	return errors.Join(errs...)
}
