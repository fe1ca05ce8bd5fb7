package store_test

import (
	"testing"

	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/storetest"
)

func memory(*testing.T) storetest.Medium {
	return func() (store.Backend, error) { return nil, nil }
}

func TestMemory(t *testing.T)         { storetest.Run(t, memory) }
func TestMemoryIsAMap(t *testing.T)   { storetest.Model(t, memory) }
func TestMemoryIsLinear(t *testing.T) { storetest.Linear(t, memory) }
