package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/store"
)

func TestStoreMemory(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for _, tt := range []struct {
		asked, available, quota, load int64
	}{
		{0, 0, 512 * mib, 0},
		{0, 128 * mib, 64 * mib, 96 * mib},
		{0, 700 * mib, 175 * mib, 525 * mib},
		{0, 1 * gib, 256 * mib, 768 * mib},
		{0, 64 * gib, 512 * mib, 48 * gib},
		{600 * mib, 700 * mib, 600 * mib, 600 * mib},
		{4 * gib, 700 * mib, 4 * gib, 700 * mib},
	} {
		if got := newStoreMemory(tt.asked, tt.available); got.quota != tt.quota || got.load != tt.load {
			t.Errorf("--store-quota=%d with %d bytes of memory: %+v, want %d and %d", tt.asked, tt.available, got, tt.quota, tt.load)
		}
	}
	m := newStoreMemory(0, 700*mib)
	err := m.explain(fmt.Errorf("loading: %w", &store.MemoryError{Needs: 600 * mib, Limit: m.load}), "/data")
	for _, want := range []string{"/data/store", "need about 600 MiB", "may have 700 MiB", "more memory", "--store-quota=700Mi"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
	err = m.explain(&store.MemoryError{Needs: 800 * mib, Limit: m.load}, "/data")
	if strings.Contains(err.Error(), "--store-quota") {
		t.Errorf("advice that does not help: %v", err)
	}
	other := errors.New("other")
	if err := m.explain(other, "/data"); err != other {
		t.Errorf("another error became %v", err)
	}
}
