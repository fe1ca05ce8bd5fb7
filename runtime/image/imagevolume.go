package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/mounts"
)

// imageMounts returns where the images are mounted that are volumes of a container.
func imageMounts(target string) string { return target + ".images" }

// MountImage mounts an image read-only for a container that has it as a volume, and returns the path of the image or of a
// directory or file in it, which is found without leaving the image (M3). container and target are those of [Store.Mount],
// which was called before; [Store.Unmount] unmounts the image.
func (s *Store) MountImage(container, imageID, target, subPath string, index int) (string, error) {
	s.uses.RLock()
	defer s.uses.RUnlock()
	s.mu.RLock()
	img := s.images[imageID]
	s.mu.RUnlock()
	if img == nil {
		return "", fmt.Errorf("image %s: %w", imageID, ErrNotFound)
	}
	if err := s.useAlso(container, img); err != nil {
		return "", err
	}
	chain, err := s.readChain("", img.Layers[len(img.Layers)-1].ChainID)
	if err != nil {
		return "", err
	}
	at := filepath.Join(imageMounts(target), strconv.Itoa(index))
	if err := os.MkdirAll(at, 0o711); err != nil { // containers' users reach their own files
		return "", err
	}
	if err := mountReadOnly(at, dirs(chain)); err != nil {
		return "", err
	}
	if subPath == "" {
		return at, nil
	}
	top, err := unix.Open(at, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(top)
	fd, err := within(top, subPath)
	if err != nil {
		return "", fmt.Errorf("path %q in the image: %w", subPath, err)
	}
	defer unix.Close(fd)
	// The image can't change, so the path stays what it is.
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
}

// useAlso adds the layers of an image to the layers in use by a container (M4).
func (s *Store) useAlso(container string, img *Image) error {
	u, err := s.readUse(container)
	if err != nil {
		return err
	}
	for _, l := range img.Layers {
		u.Chains = append(u.Chains, l.ChainID)
	}
	data, err := json.Marshal(u)
	if err != nil {
		return err
	}
	return s.writeDurably(s.path("containers", container, "use.json"), data)
}

// mountReadOnly mounts layers, the top one first, with nothing over them. Programs in them can't be executed from there, as
// the API of image volumes says.
func mountReadOnly(target string, layers []string) error {
	const flags = unix.MS_RDONLY | unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOEXEC
	if len(layers) == 1 { // overlayfs wants two
		if err := unix.Mount(layers[0], target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind mount at %s: %w", target, err)
		}
		if err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); err != nil {
			return fmt.Errorf("read-only mount at %s: %w", target, errors.Join(err, unix.Unmount(target, unix.MNT_DETACH)))
		}
		return nil
	}
	for _, l := range layers {
		if strings.ContainsAny(l, ":,\\") {
			return fmt.Errorf("overlay: the path %s must not contain colons, commas and backslashes", l)
		}
	}
	if options := "lowerdir=" + strings.Join(layers, ":"); len(options) < os.Getpagesize() {
		if err := unix.Mount("overlay", target, "overlay", flags, options); err != nil {
			return fmt.Errorf("overlay at %s: %w", target, err)
		}
		return nil
	}
	ctx, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	defer unix.Close(ctx)
	return createOverlay(ctx, target, layers, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
}

// unmountImages unmounts the images that are volumes of a container.
func unmountImages(target string) error {
	dir := imageMounts(target)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := mounts.DetachBelow(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
