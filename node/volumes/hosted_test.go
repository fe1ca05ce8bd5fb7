package volumes

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/node/csi"
)

func TestOnlyBlockDevicesAreVolumesOfModeBlock(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:                           "is not a block device",
		"/dev/null":                   "is not a block device",
		filepath.Join(dir, "missing"): "does not exist",
	} {
		if err := findDevice(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestKubeletDirectoryIsTheAgentsOwn(t *testing.T) {
	f := &Files{node: Node{DevicePluginDir: "/d/device-plugins", SeccompRoot: "/d/seccomp"}, csi: &csi.Manager{}, root: "/d/pods"}
	for path, want := range map[string]string{
		"/var/lib/kubelet": "/d/pods", "/var/lib/kubelet/plugins/x": "/d/pods/plugins/x", "/var/lib/kubeletx": "/var/lib/kubeletx",
		"/var/lib/kubelet/device-plugins/": "/d/device-plugins", "/var/lib/kubelet/seccomp/operator": "/d/seccomp/operator", "/var/lib/kubelet/seccomp2": "/d/pods/seccomp2",
	} {
		if got := f.hostPath(path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}
