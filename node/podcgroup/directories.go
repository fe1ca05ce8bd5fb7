package podcgroup

import (
	"io/fs"
	"os"
	"path/filepath"
)

// mountPoint is where systems mount cgroups: of version 2 at the directory itself, of version 1 each hierarchy below it.
const mountPoint = "/sys/fs/cgroup"

// Directories returns the directories of a cgroup in all hierarchies.
func Directories(path string) []string {
	dirs := []string{filepath.Join(mountPoint, path)}
	more, err := filepath.Glob(filepath.Join(mountPoint, "*", path))
	if err != nil {
		return dirs
	}
	return append(dirs, more...)
}

// RemoveEmpty removes a cgroup and the empty ones below it.
func RemoveEmpty(root string) {
	for _, dir := range Directories(root) {
		var all []string
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				all = append(all, path)
			}
			return nil
		})
		for i := len(all) - 1; i >= 0; i-- {
			_ = os.Remove(all[i]) // one with processes stays
		}
	}
}
