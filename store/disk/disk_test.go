package disk_test

import (
	"log/slog"
	"testing"

	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
	"github.com/sampan-io/sampan/store/storetest"
)

// medium returns a maker of directories whose log is folded when it is longer than
// segment bytes.
func medium(segment int64) func(t *testing.T) storetest.Medium {
	return func(t *testing.T) storetest.Medium {
		dir := t.TempDir()
		return func() (store.Backend, error) {
			return disk.Open(dir, disk.Options{Segment: segment, Log: slog.New(slog.DiscardHandler)})
		}
	}
}

func TestStore(t *testing.T)                    { storetest.Run(t, medium(0)) }
func TestStoreThatFoldsAllTheTime(t *testing.T) { storetest.Run(t, medium(200)) }
func TestStoreIsAMap(t *testing.T)              { storetest.Model(t, medium(500)) }
func TestStoreIsLinear(t *testing.T)            { storetest.Linear(t, medium(0)) }
func TestConditions(t *testing.T)               { storetest.Conditions(t, medium(0)) }
func TestConditionMutants(t *testing.T)         { storetest.ConditionMutants(t, medium(0)) }
