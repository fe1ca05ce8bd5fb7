package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/store"
)

func TestCreateMakesAStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	var want []string
	err := Create(dir, 1<<20, func(add func(store.Entry) error) error {
		for i := range 3000 {
			e := store.Entry{Key: fmt.Sprintf("pods/%04d", i), Data: []byte(strings.Repeat("x", i%100)), Created: 1, Revision: store.Revision(i + 1)}
			want = append(want, e.Key+"="+string(e.Data))
			if err := add(e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time after a clean stop
		got, revision, err := load(dir, quiet)
		if err != nil || revision != 1<<20 || !slices.Equal(got, want) {
			t.Fatalf("loaded %d records at revision %d, error %v; want %d at %d", len(got), revision, err, len(want), 1<<20)
		}
	}
	// A write goes on behind it.
	b, err := Open(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Load(context.Background(), func(store.Entry) error { return nil })
	if err == nil {
		err = b.Commit(context.Background(), store.Batch{Entries: []store.Entry{{Key: "pods/0000", Created: 1, Revision: 1<<20 + 1}}})
	}
	if err = errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	if got, revision, err := load(dir, quiet); err != nil || revision != 1<<20+1 || !slices.Equal(got, want[1:]) {
		t.Errorf("after a deletion: %d records at revision %d, error %v", len(got), revision, err)
	}
	if err := Create(dir, 1, func(func(store.Entry) error) error { return nil }); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Create in a directory with a store: %v", err)
	}
}

func TestCreateLeavesNoStoreAfterAnError(t *testing.T) {
	broken := errors.New("broken")
	one := store.Entry{Key: "pods/a", Data: []byte("x"), Created: 1, Revision: 5}
	for name, fill := range map[string]func(add func(store.Entry) error) error{
		"error":           func(add func(store.Entry) error) error { return errors.Join(add(one), broken) },
		"late revision":   func(add func(store.Entry) error) error { e := one; e.Revision = 11; return add(e) },
		"without a value": func(add func(store.Entry) error) error { e := one; e.Data = nil; return add(e) },
	} {
		dir := filepath.Join(t.TempDir(), "store")
		if err := Create(dir, 10, fill); err == nil {
			t.Errorf("%s: no error", name)
		}
		if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
			t.Errorf("%s: left %v, error %v", name, names, err)
		}
	}
}
