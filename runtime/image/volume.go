package image

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Place is where a path of a container leads in its root file system, links followed.
// Parts of the path that do not exist yet stay as they are.
func Place(rootfs, place string) string {
	place = path.Clean("/" + place)
	top, err := unix.Open(rootfs, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return place
	}
	defer unix.Close(top)
	fd, err := within(top, place)
	if err != nil {
		return place
	}
	defer unix.Close(fd)
	whole, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return place
	}
	root, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(top))
	if err != nil {
		return place
	}
	rest, _ := strings.CutPrefix(whole, root)
	return path.Clean("/" + rest)
}

func within(top int, place string) (int, error) {
	return unix.Openat2(top, place, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// Volumes makes a directory for each of the places that an image declares as volumes,
// with what the image has there copied in, and returns them by place. rootfs is what
// [Store.Mount] returned for the container, in which nothing runs yet; its
// [Store.Unmount] removes them.
func (s *Store) Volumes(container, rootfs string, places []string) (map[string]string, error) {
	if len(places) == 0 {
		return nil, nil
	}
	top, err := unix.Open(rootfs, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("volumes of the image: %w", err)
	}
	defer unix.Close(top)
	parent := s.path("containers", container, "volumes")
	if err := os.Mkdir(parent, 0o711); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i, place := range places {
		dir := filepath.Join(parent, strconv.Itoa(i))
		if err := fillVolume(top, place, dir); err != nil {
			return nil, fmt.Errorf("volume %s of the image: %w", place, err)
		}
		out[place] = dir
	}
	return out, nil
}

// fillVolume copies the directory at a place in an image to dir. Links are followed
// within the image (M3).
func fillVolume(top int, place, dir string) error {
	if path.Clean(place) == "/" {
		return errors.New("the whole root file system can't be a volume")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	fd, err := within(top, place)
	if errors.Is(err, unix.ENOENT) {
		return nil // it begins empty
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errors.New("the image has a file there, not a directory")
	}
	from, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return err
	}
	return copyTree(from, dir)
}
