package snapshots

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/snapshot"
)

func TestScheduleSavesAndKeepsTheNewest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), nil, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		failures := 0
		sched := Schedule{
			Source: Source{
				Freeze: s.Freeze, Info: func() snapshot.Info { return snapshot.Info{} },
				Seal: func(_ string, data []byte) ([]byte, error) { return data, nil },
			},
			Dir: dir, Name: "c", Every: time.Hour, Keep: 3, Failed: func(error) { failures++ }, Log: slog.New(slog.DiscardHandler),
		}
		start := func() *run.Group {
			g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
			g.Go(func(ctx context.Context) { _ = sched.Run(ctx) })
			synctest.Wait()
			return g
		}
		g := start()
		first := sched.names()
		if len(first) != 1 {
			t.Fatalf("at the start there are %v", first)
		}
		for _, other := range []string{"c-20000101-000000.snapshot", "d-scheduled-20000101-000000.snapshot", "notes.txt"} {
			if err := os.WriteFile(filepath.Join(dir, other), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, ".c-scheduled-20000101-000000.snapshot.x.new"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4*time.Hour + time.Minute)
		synctest.Wait()
		if all := sched.names(); len(all) != 3 || slices.Contains(all, first[0]) {
			t.Errorf("after four hours there are %v", all)
		}
		if all, err := os.ReadDir(dir); err != nil || len(all) != 6 {
			t.Errorf("files of others: %v, %v", all, err)
		}
		g.Stop()
		// A restart does not save before it is time.
		before := sched.names()
		time.Sleep(30 * time.Minute)
		g = start()
		if now := sched.names(); !slices.Equal(now, before) {
			t.Errorf("after a restart: %v, want %v", now, before)
		}
		g.Stop()
		// What cannot be saved is reported and tried again.
		sched.Dir = filepath.Join(dir, "notes.txt")
		g = start()
		time.Sleep(25 * time.Minute)
		synctest.Wait()
		if failures != 3 {
			t.Errorf("%d failures were reported in 25 minutes, want 3", failures)
		}
		g.Stop()
	})
}

// An incomplete file of a crash may fill the disk, so it goes before the next snapshot is written.
func TestScheduleRemovesIncompleteFirst(t *testing.T) {
	dir := t.TempDir()
	incomplete := filepath.Join(dir, ".c-scheduled-20000101-000000.snapshot.x.new")
	for _, file := range []string{incomplete, filepath.Join(dir, ".d-scheduled-20000101-000000.snapshot.x.new")} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := store.Open(t.Context(), nil, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	there := false
	sched := Schedule{Dir: dir, Name: "c", Keep: 3, Log: slog.New(slog.DiscardHandler), Source: Source{
		Freeze: s.Freeze, Seal: func(_ string, data []byte) ([]byte, error) { return data, nil },
		Info: func() snapshot.Info {
			_, err := os.Stat(incomplete)
			there = err == nil
			return snapshot.Info{}
		},
	}}
	if _, _, err := sched.save(t.Context()); err != nil || there {
		t.Errorf("the incomplete file was there while a snapshot was saved: %v (%v)", there, err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 2 {
		t.Errorf("%v, %v, want the snapshot and the file of another cluster", all, err)
	}
}

func TestScheduleDue(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) time.Time { return now.Add(d) }
	for name, c := range map[string]struct {
		last, failed, want time.Time
	}{
		"first":                  {want: now},
		"later":                  {last: at(-time.Hour), want: at(5 * time.Hour)},
		"missed":                 {last: at(-7 * time.Hour), want: at(-time.Hour)},
		"of the future":          {last: at(time.Hour), want: now},
		"failed":                 {failed: now, want: at(10 * time.Minute)},
		"failed, and one is due": {last: at(-6 * time.Hour), failed: at(-5 * time.Minute), want: at(5 * time.Minute)},
	} {
		if got := due(now, c.last, c.failed, 6*time.Hour); !got.Equal(c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
