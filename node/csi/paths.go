package csi

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/node/pluginregistry"
	"github.com/sampan-io/sampan/node/volume"
)

// pluginName is the name of kubelet's volume plug-in for CSI; it is a part of paths and messages.
const pluginName = "kubernetes.io/csi"

// driverName is what a name of a driver has to be, as for CSIDriver objects. It is the name of a directory.
var driverName = regexp.MustCompile(`^[a-z0-9A-Z]([-a-z0-9A-Z.]{0,61}[a-z0-9A-Z])?$`)

// hash returns a SHA-256 sum in hexadecimal.
func hash(parts ...string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(parts, ""))))
}

// EphemeralHandle returns the handle of a volume that is defined in a pod.
func EphemeralHandle(pod types.UID, name string) string { return "csi-" + hash(string(pod), name) }

// staged returns the directory of a staged volume, with its record.
func (m *Manager) staged(driver, handle string) string {
	return filepath.Join(m.opts.Root, "plugins", pluginName, driver, hash(handle))
}

// published returns the directory of a pod's volumes.
func (m *Manager) published(pod types.UID) string {
	return filepath.Join(m.opts.Root, "pods", string(pod), "volumes", "kubernetes.io~csi")
}

// Path returns where the volume of a pod is published.
func (m *Manager) Path(pod types.UID, name string) string {
	return filepath.Join(m.published(pod), name, "mount")
}

// shown returns a path as the driver with this socket sees it (csi-C1).
func (m *Manager) shown(endpoint, path string) string {
	if rest, in := strings.CutPrefix(path, m.opts.Root+"/"); in && strings.HasPrefix(endpoint, pluginregistry.KubeletDir+"/") {
		return filepath.Join(pluginregistry.KubeletDir, rest)
	}
	return path
}

func (m *Manager) sockets() pluginregistry.Sockets { return pluginregistry.Sockets(m.opts.Root) }

// checkTarget returns the directory or device that a driver has published as a volume, opened as a handle, or what is
// wrong with it (csi-C5).
func (m *Manager) checkTarget(target string, block bool) (*os.File, error) {
	parent, err := m.below(filepath.Dir(target), false)
	if err != nil {
		return nil, fmt.Errorf("the target path: %w", err)
	}
	defer parent.Close()
	info, err := parent.Lstat(filepath.Base(target))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("the driver has not made the target path")
	case err != nil:
		return nil, err
	case !block && !info.IsDir():
		return nil, fmt.Errorf("the target path is %s, want a directory", info.Mode().Type())
	}
	f, err := volume.Find(m.opts.Root, strings.TrimPrefix(target, m.opts.Root+"/"))
	if err != nil {
		return nil, fmt.Errorf("the target path: %w", err)
	}
	if found, err := f.Stat(); !block && (err != nil || !os.SameFile(info, found)) {
		_ = f.Close()
		return nil, errors.New("the driver changes the target path after it has published the volume")
	}
	return f, nil
}
