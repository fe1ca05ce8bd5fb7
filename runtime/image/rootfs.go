package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
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
	s.uses.RLock()
	defer s.uses.RUnlock()
	s.mu.RLock()
	img := s.images[imageID]
	s.mu.RUnlock()
	if img == nil {
		return "", fmt.Errorf("image %s: %w", imageID, ErrNotFound)
	}
	rootfs, err := s.mount(container, img, target)
	if err != nil {
		return "", errors.Join(fmt.Errorf("root file system of image %s: %w", imageID, err), s.Unmount(container, target))
	}
	return rootfs, nil
}

func (s *Store) mount(container string, img *Image, target string) (string, error) {
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
	if err := os.MkdirAll(target, 0o700); err != nil {
		return "", err
	}
	return target, mountOverlay(target, dirs(chain), upper, work)
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
	return os.RemoveAll(s.path("containers", container))
}

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
			errs = append(errs, os.RemoveAll(s.path("containers", e.Name())))
		}
	}
	return errors.Join(errs...)
}
