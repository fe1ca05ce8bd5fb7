package container

import (
	"slices"
	"testing"

	"github.com/opencontainers/cgroups"
)

// TestDeviceUsage has the entries of both versions of cgroups, of which some are sums or of other operations.
func TestDeviceUsage(t *testing.T) {
	entry := func(minor uint64, op string, value uint64) cgroups.BlkioStatEntry {
		return cgroups.BlkioStatEntry{Major: 8, Minor: minor, Op: op, Value: value}
	}
	got := deviceUsage(&cgroups.BlkioStats{
		IoServiceBytesRecursive: []cgroups.BlkioStatEntry{
			entry(16, "Read", 4096), entry(0, "Read", 512), entry(0, "Write", 1024), entry(0, "Sync", 1024), entry(0, "Total", 1536),
		},
		IoServicedRecursive: []cgroups.BlkioStatEntry{entry(0, "Read", 1), entry(0, "Write", 2), entry(0, "Discard", 3)},
	})
	want := []DeviceUsage{{Major: 8, ReadBytes: 512, WrittenBytes: 1024, Reads: 1, Writes: 2}, {Major: 8, Minor: 16, ReadBytes: 4096}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
