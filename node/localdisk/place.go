package localdisk

import (
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/volumefit"
)

// Path returns the path on this machine of a volume of the type local, whose path is otherwise that of its spec. root is the directory
// of the node's volumes, as in [Handlers]. A volume of this provisioner may have been made when the data directory had another path:
// volumes can't be changed, so it is found by its name in root (D6).
func Path(root string, v *corev1.PersistentVolume) string {
	path := v.Spec.Local.Path
	if v.Annotations[volumefit.ProvisionedBy] != Provisioner || !isName(v.Name) {
		return path
	}
	return directory(root).find(v.Name, path)
}

// find returns the path below d of a volume that was made with a path, or that path itself: if d cannot have returned it before it was
// moved, or if the volume is still there and not in d.
func (d directory) find(name, path string) string {
	here := filepath.Join(string(d), name)
	before := filepath.IsAbs(path) && filepath.Clean(path) == path && filepath.Base(path) == name &&
		filepath.Base(filepath.Dir(path)) == filepath.Base(string(d))
	if path == here || !before || !isDir(here) && isDir(path) {
		return path
	}
	return here
}

// isDir reports whether a path is that of a directory; a symbolic link is none.
func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
