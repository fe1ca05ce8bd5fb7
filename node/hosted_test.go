package node

import (
	"path/filepath"
	"strings"
	"testing"
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
