package cluster

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/sampan-io/sampan/cluster/local"
	"github.com/sampan-io/sampan/internal/memory"
	"github.com/sampan-io/sampan/store"
)

// memoryLimit is from how many bytes on the collector of the process runs more often; 0 means never.
func memoryLimit() uint64 { return memory.Available() / 2 }

// storeMemory is how much memory objects may take, in bytes.
type storeMemory struct {
	quota     int64 // when writes are refused
	load      int64 // when a start is refused; 0: never
	available int64 // for the process; 0: not known
}

// newStoreMemory returns the bounds of a process that may have so many bytes of memory. asked is the value of
// --store-quota, 0 if it was not passed. Objects that are there already need not fit into the quota: they can be deleted.
// But they have to fit into three quarters of the memory or, if the administrator asks for that by a larger quota, into
// all of it: otherwise the kernel would kill the process again and again.
func newStoreMemory(asked, available int64) storeMemory {
	m := storeMemory{quota: asked, available: available}
	if asked == 0 {
		m.quota = local.DefaultStoreQuota(available)
	}
	if available > 0 {
		m.load = max(available/4*3, min(m.quota, available))
	}
	return m
}

// storeMemory returns the bounds for this cluster. The clusters of one process share the memory for objects, unless
// --store-quota was passed.
func (c *cluster) storeMemory() storeMemory {
	available := int64(min(memory.Available(), 1<<62))
	m := newStoreMemory(c.Settings.Server.StoreQuota(), available)
	if c.Settings.Server.StoreQuota() == 0 && available > 0 {
		m.quota = local.DefaultStoreQuota(available / int64(c.Process.share))
	}
	return m
}

// explain adds to the error of a store that was not loaded what the administrator can do.
func (m storeMemory) explain(err error, dir string) error {
	large, ok := errors.AsType[*store.MemoryError](err)
	if !ok {
		return err
	}
	advice := "give the process more memory, for as long as it takes to delete objects at least"
	if large.Needs < m.available && m.load < m.available {
		advice += fmt.Sprintf(", or pass --store-quota=%dMi to start nevertheless", m.available>>20)
	}
	return fmt.Errorf("not enough memory to start: the objects in %s need about %s, and the process may have %s for everything (the memory of the machine or, if that is less, the limit of a cgroup). Nothing was changed: %s",
		filepath.Join(dir, "store"), store.Bytes(large.Needs), store.Bytes(m.available), advice)
}
