package volumes_test

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/node/volumes"
)

// TestCleanLeavesWhatDriversNeed cleans up below a mount that is busy, because a driver on the machine has its sockets
// there.
func TestCleanLeavesWhatDriversNeed(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		root, outside := t.TempDir(), t.TempDir()
		if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		staged, use := "plugins/kubernetes.io/csi/d.example.com/0a1b", "pods/uid-1/volumes/kubernetes.io~csi/pv"
		for _, dir := range []string{
			"plugins/d", "plugins_registry", "memory/uid-1", staged + "/globalmount", use + "/mount", "pods/uid-1/volumes/kubernetes.io~csi/other/mount",
			"pods/uid-1/containers/c", "pods/uid-2/volumes/kubernetes.io~empty-dir", "plugins/kubernetes.io/csi/volumeDevices/publish/pv",
		} {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o750); err != nil {
				t.Fatal(err)
			}
		}
		for _, file := range []string{staged + "/vol_data.json", use + "/vol_data.json", "pods/uid-1/containers/c/hosts", "plugins/d/config"} {
			if err := os.WriteFile(filepath.Join(root, file), []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		kept := filepath.Join(outside, "vol")
		if err := os.WriteFile(kept, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, link := range []string{"pods/uid-3", "plugins/kubernetes.io/csi/e.example.com", "pods/uid-1/volumes/kubernetes.io~nfs"} {
			if err := os.Symlink(outside, filepath.Join(root, link)); err != nil {
				t.Fatal(err)
			}
		}
		for name, ended := range map[string]bool{"plugins_registry/live.sock": false, "plugins/d/csi.sock": false, "plugins_registry/ended.sock": true} {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(root, name)})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			if ended {
				_ = l.Close()
			}
			defer l.Close()
		}
		for range 2 {
			if err := volumes.Clean(root); err != nil {
				t.Fatal(err)
			}
		}
		if mounted, err := mountinfo.Mounted(root); mounted || err != nil {
			t.Errorf("mounted: %t, %v", mounted, err)
		}
		var left []string
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				left = append(left, strings.TrimPrefix(path, root+"/"))
			}
			return err
		})
		want := []string{"plugins/d/config", "plugins/d/csi.sock", staged + "/vol_data.json", "plugins_registry/live.sock", use + "/vol_data.json"}
		if err != nil || !slices.Equal(left, want) {
			t.Errorf("left %q, %v, want %q", left, err, want)
		}
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("a file behind a link: %v", err)
		}
		for _, gone := range []string{"memory", "pods/uid-2", "pods/uid-1/containers", "plugins/kubernetes.io/csi/volumeDevices", staged + "/globalmount"} {
			if _, err := os.Lstat(filepath.Join(root, gone)); err == nil {
				t.Errorf("%s is left", gone)
			}
		}
	})
}

// TestCleanUnmountsNothingBehindLinks has links in place of directories of the agent, as a driver can make them.
func TestCleanUnmountsNothingBehindLinks(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		for _, name := range []string{"plugins", "pods", "memory", "plugins/kubernetes.io"} {
			root, outside := t.TempDir(), t.TempDir()
			if err := unix.Mount(outside, outside, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Unmount(outside, 0) })
			link := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(link), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(outside, link); err != nil {
				t.Fatal(err)
			}
			if err := volumes.Clean(root); err != nil {
				t.Error(err)
			}
			if mounted, err := mountinfo.Mounted(outside); !mounted || err != nil {
				t.Errorf("behind %s: mounted: %t, %v", name, mounted, err)
			}
		}
	})
}
