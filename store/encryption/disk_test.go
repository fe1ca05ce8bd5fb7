package encryption_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
	"github.com/sampan-io/sampan/store/encryption"
	"github.com/sampan-io/sampan/store/storetest"
)

// cluster is a data directory.
type cluster struct {
	*testing.T
	dir string
}

func (c cluster) keys() string { return filepath.Join(c.dir, "encryption.yaml") }

// run opens the store, with or without encryption, and calls use while it runs.
func (c cluster) run(encrypted bool, segment int64, use func(s *store.Store, e *encryption.Encryption, rewritten <-chan error)) {
	c.Helper()
	quiet := slog.New(slog.DiscardHandler)
	var e *encryption.Encryption
	rewritten := make(chan error, 1)
	backend, err := disk.Open(filepath.Join(c.dir, "store"), disk.Options{
		Segment: segment, Log: quiet, Rewritten: func(err error) { rewritten <- err },
		Reseal: func(key string, data []byte) []byte {
			if e == nil {
				return data
			}
			return e.Reseal(key, data)
		},
	})
	if err != nil {
		c.Fatal(err)
	}
	opts := store.Options{Decode: storetest.Decode, Log: quiet}
	if encrypted {
		if e, err = encryption.New(encryption.Options{Keys: c.keys(), Log: quiet}); err != nil {
			c.Fatal(err)
		}
		opts.Seal = e.Seal
		opts.Decode = func(key string, data []byte) (store.Value, error) {
			plain, err := e.Open(key, data)
			if err != nil {
				return nil, err
			}
			return storetest.Decode(key, plain)
		}
	}
	s, err := store.Open(c.Context(), backend, opts)
	if err != nil {
		c.Fatal(err)
	}
	if encrypted {
		if err := e.Save(c.Context()); err != nil {
			c.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(c.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	use(s, e, rewritten)
	stop()
	if err := <-ended; err != nil {
		c.Fatal(err)
	}
}

func (c cluster) put(s *store.Store, key, value string) {
	c.Helper()
	w := store.Write{Key: key, Value: &storetest.Text{Text: value}}
	if rec, err := s.Get(key); err == nil {
		w.Expect = rec.Revision
	}
	if _, err := s.Commit(c.Context(), w); err != nil {
		c.Fatal(err)
	}
}

func (c cluster) want(s *store.Store, key, value string) {
	c.Helper()
	if rec, err := s.Get(key); err != nil || rec.Value.(*storetest.Text).Text != value {
		c.Errorf("%s = %v, %v, want %s", key, rec.Value, err, value)
	}
}

// count returns how often a text is in the files of the data directory.
func (c cluster) count(text string) (n int) {
	c.Helper()
	for _, path := range c.holds(text) {
		data, err := os.ReadFile(path)
		if err != nil {
			c.Fatal(err)
		}
		n += bytes.Count(data, []byte(text))
	}
	return n
}

// holds returns the files of the data directory that have a text in them.
func (c cluster) holds(text string) (names []string) {
	c.Helper()
	err := filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		c.Fatal(err)
	}
	return names
}

func TestNoFileHasTheValueOfASecret(t *testing.T) {
	c := cluster{t, t.TempDir()}
	const marker = "correct horse battery staple"
	c.run(false, 0, func(s *store.Store, _ *encryption.Encryption, _ <-chan error) {
		c.put(s, "secrets/default/old", marker+" old")
		c.put(s, "secrets/default/old", marker+" older")
		c.put(s, "configmaps/default/a", "a config map")
	})
	if len(c.holds(marker)) == 0 {
		t.Fatal("without encryption the value is not found, so the search is wrong")
	}
	c.run(true, 0, func(s *store.Store, e *encryption.Encryption, rewritten <-chan error) {
		if e.Stale() != 1 {
			t.Errorf("%d stale records, want 1", e.Stale())
		}
		c.want(s, "secrets/default/old", marker+" older")
		c.put(s, "secrets/default/new", marker+" new")
		s.Rewrite()
		if err := <-rewritten; err != nil {
			t.Fatal(err)
		}
		if found := c.holds(marker); len(found) > 0 {
			t.Errorf("after the rewrite the value is in %v", found)
		}
		c.put(s, "secrets/default/new", marker+" newer")
	})
	if len(c.holds("a config map")) == 0 {
		t.Error("config maps are encrypted as well")
	}
	c.run(true, 0, func(s *store.Store, e *encryption.Encryption, rewritten <-chan error) {
		if e.Stale() != 0 {
			t.Errorf("%d stale records, want 0", e.Stale())
		}
		c.want(s, "secrets/default/old", marker+" older")
		c.want(s, "secrets/default/new", marker+" newer")
		s.Rewrite()
		if err := <-rewritten; err != nil {
			t.Fatal(err)
		}
	})
	if found := c.holds(marker); len(found) > 0 {
		t.Errorf("the value is in %v", found)
	}
	name, err := encryption.Rotate(c.keys(), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	c.run(true, 0, func(s *store.Store, e *encryption.Encryption, rewritten <-chan error) {
		if e.Stale() != 2 {
			t.Errorf("after a rotation %d records are stale, want 2", e.Stale())
		}
		s.Rewrite()
		if err := <-rewritten; err != nil {
			t.Fatal(err)
		}
		c.want(s, "secrets/default/new", marker+" newer")
	})
	if all, fresh := c.count("k8s:enc:aesgcm:s1:"), c.count("k8s:enc:aesgcm:s1:"+name); all != 2 || fresh != 2 {
		t.Errorf("%d records are encrypted, %d of them with the new key; want 2, 2", all, fresh)
	}
}

// TestFoldsEncrypt folds all the time, as a busy cluster does, with records that grow by their encryption.
func TestFoldsEncrypt(t *testing.T) {
	c := cluster{t, t.TempDir()}
	const marker = "correct horse battery staple"
	c.run(false, 300, func(s *store.Store, _ *encryption.Encryption, _ <-chan error) {
		for i := range 50 {
			c.put(s, fmt.Sprintf("secrets/default/%d", i%10), fmt.Sprint(marker, i))
		}
	})
	for range 3 {
		c.run(true, 300, func(s *store.Store, _ *encryption.Encryption, _ <-chan error) {
			for i := range 60 {
				c.put(s, fmt.Sprintf("secrets/default/%d", 5+i%10), fmt.Sprint(marker, i))
				c.put(s, fmt.Sprintf("configmaps/default/%d", i%5), fmt.Sprint(i))
			}
		})
	}
	c.run(true, 300, func(s *store.Store, e *encryption.Encryption, rewritten <-chan error) {
		s.Rewrite()
		if err := <-rewritten; err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			c.want(s, fmt.Sprintf("secrets/default/%d", i), fmt.Sprint(marker, 40+i))
			c.want(s, fmt.Sprintf("secrets/default/%d", 5+i), fmt.Sprint(marker, 50+i))
		}
	})
	if found := c.holds(marker); len(found) > 0 {
		t.Errorf("the value is in %v", found)
	}
}
