package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sampan-io/sampan/internal/mounts"
	"github.com/sampan-io/sampan/internal/removal"
	"github.com/sampan-io/sampan/node/csi"
	"github.com/sampan-io/sampan/node/pluginregistry"
)

// Clean removes what agents have left in the file system under node.Options.RootDir: mounts, volumes, secrets. No pod of the
// node may be running any more. It may be called again.
//
// It leaves what is not the agent's: files of drivers in plugins, and sockets of programs that run on the machine. It
// also leaves the records of the volumes that CSI drivers have mounted, although they are unmounted: as after a restart
// of the machine, the next agent has the drivers mount them again, or undo what they did elsewhere.
func Clean(rootDir string) error {
	if !filepath.IsAbs(rootDir) {
		return fmt.Errorf("node: directory %q is not absolute", rootDir)
	}
	if err := unmountDirectory(filepath.Join(rootDir, "plugins")); err != nil {
		return err
	}
	for _, dir := range []struct {
		name string
		keep []string
	}{
		{"pods", csi.PodRecords()},
		{"memory", nil},
		{"plugins/kubernetes.io", csi.StagingRecords()},
	} {
		path := filepath.Join(rootDir, dir.name)
		if err := errors.Join(unmountDirectory(path), removeExcept(path, dir.keep)); err != nil {
			return err
		}
	}
	if err := pluginregistry.Clean(rootDir); err != nil {
		return err
	}
	// It may be a shared mount: see shareMounts. A program whose socket is in it keeps it busy.
	return mounts.DetachTop(rootDir)
}

// unmountDirectory unmounts everything below a directory. A link at its path, which a driver may have made, is removed:
// what is mounted below the other end is not the agent's.
func unmountDirectory(path string) error {
	if _, err := removal.List(path); err != nil {
		return err
	}
	return mounts.UnmountBelow(path)
}

// removeExcept removes a directory except for files that keep names: it has the name on each level below the directory,
// where * is any. No symbolic link is followed.
func removeExcept(dir string, keep []string) error {
	entries, err := removal.List(dir)
	if err != nil {
		return err
	}
	left := false
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		named := len(keep) > 0 && (keep[0] == "*" || keep[0] == e.Name())
		switch {
		case named && len(keep) == 1 && e.Type().IsRegular():
			left = true
		case named && len(keep) > 1 && e.IsDir():
			if err := removeExcept(path, keep[1:]); err != nil {
				return err
			}
			_, err := os.Lstat(path)
			left = left || err == nil
		default:
			if err := removal.Tree(path); err != nil {
				return err
			}
		}
	}
	if left {
		return nil
	}
	return removal.Tree(dir)
}
