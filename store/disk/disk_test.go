package disk_test

import (
	"testing"

	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
	"github.com/sampan-io/sampan/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Medium {
		dir := t.TempDir()
		return func() (store.Backend, error) { return disk.Open(dir, disk.Options{}) }
	})
}

func TestStoreThatFoldsAllTheTime(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Medium {
		dir := t.TempDir()
		return func() (store.Backend, error) { return disk.Open(dir, disk.Options{Segment: 200}) }
	})
}
