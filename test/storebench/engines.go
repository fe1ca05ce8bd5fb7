package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"github.com/tidwall/wal"
	"go.etcd.io/bbolt"

	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
)

var engines = map[string]func(dir string) (store.Backend, error){
	"log (store/disk)": func(dir string) (store.Backend, error) {
		return disk.Open(filepath.Join(dir, "disk"), disk.Options{Log: slog.New(slog.DiscardHandler)})
	},
	"pebble": func(dir string) (store.Backend, error) {
		db, err := pebble.Open(filepath.Join(dir, "pebble"), &pebble.Options{
			Logger: quiet{}, MemTableSize: 4 << 20, CacheSize: 1 << 20,
		})
		return pebbleEngine{db}, err
	},
	"bbolt": func(dir string) (store.Backend, error) {
		db, err := bbolt.Open(filepath.Join(dir, "bolt"), 0o600, &bbolt.Options{FreelistType: bbolt.FreelistMapType})
		return boltEngine{db}, err
	},
	"tidwall/wal": func(dir string) (store.Backend, error) {
		l, err := wal.Open(filepath.Join(dir, "wal"), &wal.Options{NoCopy: true})
		return &walEngine{l: l}, err
	},
}

// encode makes the value of an engine that has keys of its own.
func encode(e store.Entry) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(e.Created))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Revision))
	return append(b, e.Data...)
}

func decode(k, v []byte) store.Entry {
	return store.Entry{
		Key:      string(k),
		Data:     append([]byte(nil), v[16:]...),
		Created:  store.Revision(binary.LittleEndian.Uint64(v)),
		Revision: store.Revision(binary.LittleEndian.Uint64(v[8:])),
	}
}

type quiet struct{}

func (quiet) Infof(string, ...any)         {}
func (quiet) Errorf(string, ...any)        {}
func (quiet) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }

type pebbleEngine struct{ db *pebble.DB }

func (p pebbleEngine) Load(_ context.Context, each func(store.Entry) error) (store.Revision, error) {
	it, err := p.db.NewIter(nil)
	if err != nil {
		return 0, err
	}
	var last store.Revision
	for it.First(); it.Valid(); it.Next() {
		e := decode(it.Key(), it.Value())
		last = max(last, e.Revision)
		if err := each(e); err != nil {
			return 0, err
		}
	}
	return last, it.Close()
}

func (p pebbleEngine) Commit(_ context.Context, batch store.Batch) error {
	b := p.db.NewBatch()
	for _, e := range batch.Entries {
		if e.Data == nil {
			_ = b.Delete([]byte(e.Key), nil)
		} else {
			_ = b.Set([]byte(e.Key), encode(e), nil)
		}
	}
	return b.Commit(pebble.Sync)
}

func (p pebbleEngine) Reserve(context.Context, store.Revision) error { return nil }
func (p pebbleEngine) Close() error                                  { return p.db.Close() }

type boltEngine struct{ db *bbolt.DB }

var bucket = []byte("b")

func (b boltEngine) Load(_ context.Context, each func(store.Entry) error) (store.Revision, error) {
	var last store.Revision
	return last, b.db.Update(func(tx *bbolt.Tx) error {
		bk, err := tx.CreateBucketIfNotExists(bucket)
		if err != nil {
			return err
		}
		return bk.ForEach(func(k, v []byte) error {
			e := decode(k, v)
			last = max(last, e.Revision)
			return each(e)
		})
	})
}

func (b boltEngine) Commit(_ context.Context, batch store.Batch) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		bk := tx.Bucket(bucket)
		var errs []error
		for _, e := range batch.Entries {
			if e.Data == nil {
				errs = append(errs, bk.Delete([]byte(e.Key)))
			} else {
				errs = append(errs, bk.Put([]byte(e.Key), encode(e)))
			}
		}
		return errors.Join(errs...)
	})
}

func (b boltEngine) Reserve(context.Context, store.Revision) error { return nil }
func (b boltEngine) Close() error                                  { return b.db.Close() }

// walEngine never folds its log: it is the library as it comes.
type walEngine struct {
	l    *wal.Log
	next uint64
}

func (w *walEngine) Load(_ context.Context, each func(store.Entry) error) (store.Revision, error) {
	first, err := w.l.FirstIndex()
	if err != nil {
		return 0, err
	}
	last, err := w.l.LastIndex()
	if err != nil {
		return 0, err
	}
	w.next = last + 1
	live := map[string]store.Entry{}
	var rev store.Revision
	for i := max(first, 1); i <= last; i++ {
		b, err := w.l.Read(i)
		if err != nil {
			return 0, err
		}
		for len(b) > 0 {
			k := int(binary.LittleEndian.Uint32(b))
			v := int(binary.LittleEndian.Uint32(b[4:]))
			e := decode(b[8:8+k], b[8+k:8+k+v])
			live[e.Key] = e
			rev = max(rev, e.Revision)
			b = b[8+k+v:]
		}
	}
	for _, e := range live {
		if err := each(e); err != nil {
			return 0, err
		}
	}
	return rev, nil
}

func (w *walEngine) Commit(_ context.Context, batch store.Batch) error {
	var b []byte
	for _, e := range batch.Entries {
		v := encode(e)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Key)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
		b = append(append(b, e.Key...), v...)
	}
	err := w.l.Write(w.next, b)
	w.next++
	return err
}

func (w *walEngine) Reserve(context.Context, store.Revision) error { return nil }
func (w *walEngine) Close() error                                  { return w.l.Close() }
