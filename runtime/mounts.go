package runtime

import (
	"fmt"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// privateMount prevents that mounts below dir appear in other mount namespaces, which
// would keep pods' namespaces alive after the runtime. It changes nothing if mounts
// aren't shared.
func privateMount(dir string) error {
	over, err := mountOver(dir)
	if err != nil || !shared(over) {
		return err
	}
	if over.Mountpoint != dir {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind mount of %s: %w", dir, err)
		}
	}
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mount %s private: %w", dir, err)
	}
	return nil
}

// mountedBelow reports whether something is mounted below a directory.
func mountedBelow(dir string) (bool, error) {
	below, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		below := strings.HasPrefix(m.Mountpoint, dir+"/")
		return !below, below
	})
	return len(below) > 0, err
}

// mountOver returns the mount that holds path.
func mountOver(path string) (*mountinfo.Info, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.Mountpoint != "/" && m.Mountpoint != path && !strings.HasPrefix(path, m.Mountpoint+"/"), false
	})
	over := &mountinfo.Info{}
	for _, m := range mounts {
		if len(m.Mountpoint) >= len(over.Mountpoint) {
			over = m
		}
	}
	return over, err
}

// shared reports whether mounts in a mount appear in other mount namespaces, too.
func shared(m *mountinfo.Info) bool { return strings.Contains(" "+m.Optional, " shared:") }

// checkShared returns an error, with containerd's text, unless mounts that a container
// makes in a mount of path can appear on the host.
func checkShared(path string) error {
	over, err := mountOver(path)
	if err == nil && !shared(over) {
		err = fmt.Errorf("path %q is mounted on %q but it is not a shared mount", path, over.Mountpoint)
	}
	return err
}
