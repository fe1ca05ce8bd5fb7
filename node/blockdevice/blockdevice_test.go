package blockdevice_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/node/blockdevice"
	"github.com/sampan-io/sampan/node/blockdevice/blockdevicetest"
)

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// newRoot returns a directory; what is mounted in it when the test ends is unmounted.
func newRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	t.Cleanup(func() {
		mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(root))
		if err != nil {
			t.Error(err)
		}
		for _, m := range mounts {
			unmount(t, m.Mountpoint)
		}
	})
	return root
}

func unmount(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatalf("unmount %s: %v", dir, err)
	}
}

func TestFileSystemIsMadeOnceAndKept(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		device, _ := blockdevicetest.New(t)
		root := newRoot(t)
		m := blockdevice.New(root)
		mount := func(dir string, options ...string) string {
			t.Helper()
			dir = filepath.Join(root, dir)
			for range 2 { // the second time nothing is left to do
				if err := m.Mount(t.Context(), blockdevice.Request{Device: device, Dir: dir, Options: options}); err != nil {
					t.Fatal(err)
				}
			}
			return dir
		}
		a := mount("a/b", "noatime")
		infos, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(a))
		if err != nil || len(infos) != 1 || infos[0].FSType != "ext4" || !strings.Contains(infos[0].Options, "noatime") {
			t.Fatalf("mounted is %+v, %v; want ext4 with noatime, once", infos, err)
		}
		if err := os.WriteFile(filepath.Join(a, "file"), []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
		b := mount("b", "ro") // shares the mount that is there, which can be written to
		if err := os.WriteFile(filepath.Join(b, "more"), nil, 0o600); err != nil {
			t.Error(err)
		}
		unmount(t, a)
		unmount(t, b)
		c := mount("c", "ro")
		if got, err := os.ReadFile(filepath.Join(c, "file")); err != nil || string(got) != "kept" {
			t.Errorf("the file has %q, %v", got, err)
		}
		if err := os.WriteFile(filepath.Join(c, "late"), nil, 0o600); err == nil {
			t.Error("a device that is mounted with ro can be written to")
		}
	})
}

func TestFileSystemGrowsWithDevice(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		if may, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0); err != nil || may == 0 {
			t.Skip("needs CAP_SYS_RESOURCE, to expand ext4")
		}
		device, file := blockdevicetest.New(t)
		root := newRoot(t)
		r := blockdevice.Request{Device: device, Dir: filepath.Join(root, "a")}
		if err := blockdevice.New(root).Mount(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, 2*blockdevicetest.Size); err != nil {
			t.Fatal(err)
		}
		command(t, "losetup", "--set-capacity", device)
		if err := blockdevice.Expand(r); err != nil {
			t.Fatal(err)
		}
		var s unix.Statfs_t
		if err := unix.Statfs(r.Dir, &s); err != nil || int64(s.Blocks)*s.Bsize <= blockdevicetest.Size {
			t.Errorf("the file system has %d blocks of %d bytes, %v; want more than the device had", s.Blocks, s.Bsize, err)
		}
	})
}

func TestDevicesThatAreNotMounted(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			prepare []string // command that gets the device as its last argument
			content string   // of the device
			request blockdevice.Request
			want    string
		}{
			"another format": {
				prepare: []string{"mkswap"},
				want:    `: the device has the file system "swap", and the volume's fsType is "ext4"`,
			},
			"partitions": {
				content: strings.Repeat("\x00", 446) + "\x00\x00\x00\x00\x83\x00\x00\x00\x00\x08\x00\x00\x00\x08\x00\x00" + // a Linux partition of 1 MiB at 1 MiB
					strings.Repeat("\x00", 48) + "\x55\xaa",
				want: `: the device has the file system "unknown data, probably partitions", and the volume's fsType is "ext4"`,
			},
			"no program": {
				request: blockdevice.Request{Type: "none4"},
				want:    ": the device has no file system, and to format it needs the program mkfs.none4 on the node",
			},
			"only for reading": {
				request: blockdevice.Request{Options: []string{"ro"}},
				want:    "as we are manipulating it in read-only mode",
			},
			"no type":          {request: blockdevice.Request{Type: "../ext4"}, want: `fsType "../ext4" is not the name of a file system`},
			"no device":        {request: blockdevice.Request{Device: "/dev/null"}, want: `path "/dev/null" is not a block device`},
			"relative path":    {request: blockdevice.Request{Device: "disk"}, want: `path "disk" is not absolute`},
			"nothing is there": {request: blockdevice.Request{Device: "/dev/none"}, want: "stat /dev/none: no such file or directory"},
		} {
			t.Run(name, func(t *testing.T) {
				device, file := blockdevicetest.New(t)
				root := newRoot(t)
				if len(tt.prepare) > 0 {
					command(t, tt.prepare[0], append(tt.prepare[1:], device)...)
				}
				if err := os.WriteFile(device, []byte(tt.content), 0); err != nil {
					t.Fatal(err)
				}
				before, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				tt.request.Dir = filepath.Join(root, "a")
				if tt.request.Device == "" {
					tt.request.Device = device
				}
				if err := blockdevice.New(root).Mount(t.Context(), tt.request); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("Mount: %v; want %q", err, tt.want)
				}
				if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
					t.Errorf("the device has changed, %v", err)
				}
				if left, err := os.ReadDir(root); err != nil || len(left) > 0 {
					t.Errorf("the directory has %v, %v; want nothing", left, err)
				}
			})
		}
	})
}
