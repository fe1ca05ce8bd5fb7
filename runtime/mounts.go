package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A mountPoint is one line of /proc/self/mountinfo.
type mountPoint struct {
	path   string
	shared bool // what is mounted in it shows elsewhere, too
}

func mountPoints() ([]mountPoint, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var out []mountPoint
	for line := range strings.Lines(string(data)) {
		const path, optional = 4, 6 // fields of mountinfo
		fields := strings.Fields(line)
		if len(fields) <= optional {
			continue
		}
		m := mountPoint{path: unescape.Replace(fields[path])}
		for _, f := range fields[optional:] {
			if f == "-" {
				break
			}
			m.shared = m.shared || strings.HasPrefix(f, "shared:")
		}
		out = append(out, m)
	}
	return out, nil
}

// privateMount keeps mounts below dir from showing up in other mount namespaces,
// which would keep pods' namespaces alive after us. Where mounts aren't shared
// nothing has to be done.
func privateMount(dir string) error {
	mounts, err := mountPoints()
	if err != nil {
		return err
	}
	over := mountOver(mounts, dir)
	if !over.shared {
		return nil
	}
	if over.path != dir {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind mount of %s: %w", dir, err)
		}
	}
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mount %s private: %w", dir, err)
	}
	return nil
}

// mountOver returns the mount that holds path.
func mountOver(mounts []mountPoint, path string) mountPoint {
	var over mountPoint
	for _, m := range mounts {
		if (m.path == "/" || m.path == path || strings.HasPrefix(path, m.path+"/")) && len(m.path) >= len(over.path) {
			over = m
		}
	}
	return over
}

// checkShared reports an error, in containerd's words, unless what a container mounts
// in a mount of path can show on the host.
func checkShared(path string) error {
	mounts, err := mountPoints()
	if err != nil {
		return err
	}
	if over := mountOver(mounts, path); !over.shared {
		return fmt.Errorf("path %q is mounted on %q but it is not a shared mount", path, over.path)
	}
	return nil
}

// unmountBelow unmounts all that is mounted at dir or below it.
func unmountBelow(dir string) error {
	mounts, err := mountPoints()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range slices.Backward(mounts) { // the last one made goes first
		if m.path != dir && !strings.HasPrefix(m.path, dir+"/") {
			continue
		}
		err := unix.Unmount(m.path, unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("unmounting %s: %w", m.path, err))
		}
	}
	return errors.Join(errs...)
}
