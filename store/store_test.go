package store_test

import (
	"testing"

	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Medium {
		return func() (store.Backend, error) { return nil, nil }
	})
}
