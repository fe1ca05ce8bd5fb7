package disk

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/sampan-io/sampan/internal/wholefile"
	"github.com/sampan-io/sampan/store"
)

// Create makes the directory of a store with the records that fill adds, each key once, and with no revision above
// ceiling used so far: the first write to the store gets a higher one. Fill's entries belong to it again when add
// returns. The directory must not exist, or be empty. After an error, or a crash, there is no store in the directory;
// the caller removes it.
func Create(dir string, ceiling store.Revision, fill func(add func(store.Entry) error) error) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the data directory: %w", err)
	}
	if names, err := os.ReadDir(dir); err != nil {
		return err
	} else if len(names) > 0 {
		return fmt.Errorf("making a store in %s: %w: it is not empty", dir, fs.ErrExist)
	}
	h := header{version: plainVersion, kind: kindSnapshot, salt: rand.Uint32(), number: 1, first: 1}
	f, err := wholefile.Create(filepath.Join(dir, fileName(h.kind, h.number)), 0o600, wholefile.Durable)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(h.encode()); err != nil {
		return err
	}
	w := &snapshotWriter{file: f.File, salt: h.salt, size: headerSize}
	err = fill(func(e store.Entry) error {
		switch {
		case e.Key == "" || e.Data == nil:
			return fmt.Errorf("making a store: record %q has no key or no value", e.Key)
		case e.Revision > ceiling:
			return fmt.Errorf("making a store: record %q has revision %d, above %d", e.Key, e.Revision, ceiling)
		}
		return w.addEntry(e)
	})
	if err == nil {
		err = w.close(ceiling)
	}
	if err == nil {
		err = f.Commit()
	}
	if full(err) {
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	return err
}
