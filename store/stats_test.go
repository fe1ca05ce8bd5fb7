package store_test

import (
	"context"
	"testing"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
)

func TestStatsCountWritesAndSyncs(t *testing.T) {
	dir := t.TempDir()
	b, err := disk.Open(dir, disk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), b, store.Options{Decode: func(_ string, data []byte) (store.Value, error) { return &statsValue{data}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(ctx context.Context) { _ = s.Run(ctx) })
	defer g.Stop()
	<-s.Ready()
	for _, key := range []string{"pods/a", "pods/b", "nodes/n"} {
		if _, err := s.Commit(t.Context(), store.Write{Key: key, Value: &statsValue{[]byte(key)}}); err != nil {
			t.Fatal(err)
		}
	}
	got := s.Stats()
	if got.Records != 3 || got.History != 3 || got.Writes != 3 || got.Syncs == 0 || got.Syncs > 3 || got.Revision != s.Revision() || got.Full {
		t.Errorf("%+v", got)
	}
	if n := s.Count("pods/"); n != 2 {
		t.Errorf("%d pods, want 2", n)
	}
	use, err := disk.UsageOf(dir)
	if err != nil || use.Segments == 0 || use.Bytes == 0 || use.Free == 0 || use.Total < use.Free {
		t.Errorf("usage %+v, %v", use, err)
	}
}

type statsValue struct{ data []byte }

func (v *statsValue) Bytes() []byte                          { return v.data }
func (v *statsValue) Place(created, revision store.Revision) {}
