// Package blockdevicetest makes block devices for tests, out of files.
//
// It is a test kit: only tests and kits import it.
package blockdevicetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/internal/nstest"
)

// Size is how large devices are, in bytes.
const Size = 16 << 20

// New returns an empty block device, and the file behind it. The device is removed when the test ends. The test is skipped without root,
// and if the kernel has no loop devices.
func New(t testing.TB) (device, file string) {
	t.Helper()
	nstest.NeedRoot(t)
	if _, err := os.Stat("/dev/loop-control"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("needs loop devices: there is no /dev/loop-control")
	}
	file = filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, Size)); err != nil {
		t.Fatal(err)
	}
	// Its output is the name of the device.
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	device = strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("losetup --detach %s: %v: %s", device, err, out)
		}
	})
	return device, file
}
