package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// quiet are options for tests that tear logs on purpose.
var quiet = Options{Log: slog.New(slog.DiscardHandler)}

// load opens dir and returns what is there, "key=data" in key order.
func load(dir string, opts Options) ([]string, store.Revision, error) {
	b, err := Open(dir, opts)
	if err != nil {
		return nil, 0, err
	}
	var got []string
	rev, err := b.Load(context.Background(), func(e store.Entry) error {
		got = append(got, e.Key+"="+string(e.Data))
		return nil
	})
	slices.Sort(got)
	return got, rev, errors.Join(err, b.Close())
}

// A script is a list of batches and what is live after each.
type script struct {
	batches [][]store.Entry
	after   [][]string
}

func newScript(batches int) script {
	var s script
	live := map[string]string{}
	rev := store.Revision(0)
	note := func() {
		var l []string
		for k, v := range live {
			l = append(l, k+"="+v)
		}
		slices.Sort(l)
		s.after = append(s.after, l)
	}
	note()
	for i := range batches {
		var batch []store.Entry
		for j := range 1 + i%3 {
			rev++
			e := store.Entry{Key: fmt.Sprintf("pods/%d", (i+j)%4), Data: []byte(fmt.Sprintf("%d-%d", i, j)), Created: 1, Revision: rev}
			if i%4 == 3 {
				e.Data = nil
				delete(live, e.Key)
			} else {
				live[e.Key] = string(e.Data)
			}
			batch = append(batch, e)
		}
		s.batches = append(s.batches, batch)
		note()
	}
	return s
}

// write plays the script into dir and returns the bytes of the only segment and
// where each frame ends.
func (s script) write(t testing.TB, dir string) (name string, log []byte, ends []int64) {
	b, err := Open(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Load(context.Background(), func(store.Entry) error { return nil }); err != nil {
		t.Fatal(err)
	}
	d := b.(*directory)
	ends = append(ends, d.end)
	for _, batch := range s.batches {
		if err := b.Commit(context.Background(), store.Batch{Entries: batch}); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, d.end)
	}
	d.dirty = false // no closing frame: as after a crash
	name = d.name
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	log, err = os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return name, log, ends
}

// frameAt returns the number of the frame that holds the byte at off.
func frameAt(ends []int64, off int64) int {
	n, _ := slices.BinarySearch(ends, off+1)
	return n - 1
}

func TestALogCutAnywhereKeepsItsWholeBatches(t *testing.T) {
	s := newScript(7)
	name, log, ends := s.write(t, t.TempDir())
	for cut := ends[0]; cut <= ends[len(ends)-1]; cut++ {
		for _, zeros := range []int{0, 1000} {
			if err := os.WriteFile(name, append(log[:cut:cut], make([]byte, zeros)...), 0o600); err != nil {
				t.Fatal(err)
			}
			whole := frameAt(ends, cut)
			for range 2 { // the second time finds what the first has cut
				got, _, err := load(filepath.Dir(name), quiet)
				if err != nil || !slices.Equal(got, s.after[whole]) {
					t.Fatalf("cut at %d + %d zeros: %q, %v; want the %d whole batches %q", cut, zeros, got, err, whole, s.after[whole])
				}
			}
		}
	}
}

func TestAFlippedByteIsReportedWithItsPlace(t *testing.T) {
	s := newScript(7)
	name, log, ends := s.write(t, t.TempDir())
	last := len(ends) - 2
	for off := range ends[len(ends)-1] {
		damaged := slices.Clone(log)
		damaged[off] ^= 0x41
		if err := os.WriteFile(name, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		got, _, err := load(filepath.Dir(name), quiet)
		frame := frameAt(ends, off)
		var c *CorruptError
		switch {
		case off < headerSize:
			if err == nil {
				t.Fatalf("byte %d of the header flipped: no error", off)
			}
		case frame == last:
			// A damaged last frame looks like a torn one.
			if err != nil || !slices.Equal(got, s.after[last]) {
				t.Fatalf("byte %d in the last frame flipped: %q, %v", off, got, err)
			}
		case !errors.As(err, &c) || c.File != name || c.Offset != ends[frame]:
			t.Fatalf("byte %d flipped: %v, want the offset %d", off, err, ends[frame])
		default:
			if now, err := os.ReadFile(name); err != nil || !slices.Equal(now, damaged) {
				t.Fatalf("byte %d flipped: the file was changed (%v)", off, err)
			}
			for _, want := range []string{name, fmt.Sprint(c.Offset), "Restore", "move it away"} {
				if !strings.Contains(err.Error(), want) {
					t.Fatalf("the error does not say %q: %v", want, err)
				}
			}
		}
	}
}

func TestCleanStopGuardsLastBatch(t *testing.T) {
	dir := t.TempDir()
	b, err := Open(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Load(t.Context(), func(store.Entry) error { return nil })
	err = errors.Join(err, b.Commit(t.Context(), store.Batch{Entries: []store.Entry{{Key: "pods/a", Data: []byte("x"), Created: 1, Revision: 1}}}))
	d := b.(*directory)
	name, at := d.name, d.end-1
	if err := errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	flip(t, name, at)
	var c *CorruptError
	if _, _, err := load(dir, quiet); !errors.As(err, &c) {
		t.Errorf("the last batch was damaged after a clean stop: %v, want a CorruptError", err)
	}
}

func flip(t *testing.T, name string, at int64) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 1
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// foldedDir returns a directory with a snapshot, a sealed segment or more and a
// newest one, and what is live.
func foldedDir(t *testing.T) (dir string, want []string) {
	t.Helper()
	dir = t.TempDir()
	opts := quiet
	opts.Segment = 400
	live := map[string]string{}
	for round := range 3 {
		b, err := Open(dir, opts)
		if err != nil {
			t.Fatal(err)
		}
		rev, err := b.Load(t.Context(), func(store.Entry) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		d := b.(*directory)
		for i := 0; i < 50 || d.snapshotOf() == nil; i++ {
			rev++
			e := store.Entry{Key: fmt.Sprintf("pods/%d", i%7), Data: []byte(fmt.Sprintf("%d/%d", round, i)), Created: 1, Revision: rev}
			live[e.Key] = string(e.Data)
			if err := b.Commit(t.Context(), store.Batch{Entries: []store.Entry{e}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for k, v := range live {
		want = append(want, k+"="+v)
	}
	slices.Sort(want)
	return dir, want
}

// snapshotOf returns the snapshot if no fold is under way.
func (d *directory) snapshotOf() *entry {
	if d.busy.Load() {
		return nil
	}
	return d.snapshot
}

func files(t *testing.T, dir, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, dir, err)
	}
	return names
}

func TestAFoldedLogHoldsTheSame(t *testing.T) {
	dir, want := foldedDir(t)
	got, _, err := load(dir, quiet)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("loaded %q, %v; want %q", got, err, want)
	}
	if n := len(files(t, dir, "*.snapshot")); n != 1 {
		t.Errorf("%d snapshots, want 1", n)
	}
}

// TestAWriteWaitsForAFoldThatMakesSpace has a fold take all the space that there is.
func TestAWriteWaitsForAFoldThatMakesSpace(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
			t.Fatal(err)
		}
		b, err := Open(dir, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Load(t.Context(), func(store.Entry) error { return nil }); err != nil {
			t.Fatal(err)
		}
		d := b.(*directory)
		filled := make(chan error)
		d.busy.Store(true)
		d.folding = run.NewGroup(t.Context(), 0)
		d.folding.Go(func(context.Context) {
			defer d.busy.Store(false)
			name := filepath.Join(dir, "all that there is")
			filled <- os.WriteFile(name, make([]byte, 2<<20), 0o600)
			_ = os.Remove(name)
		})
		if err := <-filled; !full(err) {
			t.Fatalf("filling the file system: %v, want that there is no space left", err)
		}
		e := store.Entry{Key: "pods/a", Data: make([]byte, 300_000), Created: 1, Revision: 1}
		if err := b.Commit(t.Context(), store.Batch{Entries: []store.Entry{e}}); err != nil {
			t.Errorf("while the fold had all the space: %v", err)
		}
		if err := errors.Join(b.Close(), unix.Unmount(dir, 0)); err != nil {
			t.Error(err)
		}
	})
}

func TestADamagedSnapshotStopsTheStart(t *testing.T) {
	dir, _ := foldedDir(t)
	name := files(t, dir, "*.snapshot")[0]
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{headerSize, headerSize + frameSize + 3, info.Size() - 1} {
		flip(t, name, at)
		var c *CorruptError
		if _, _, err := load(dir, quiet); !errors.As(err, &c) || c.File != name {
			t.Errorf("byte %d of the snapshot flipped: %v, want a CorruptError", at, err)
		}
		flip(t, name, at)
	}
	if err := os.Truncate(name, info.Size()-3); err != nil {
		t.Fatal(err)
	}
	if _, _, err := load(dir, quiet); err == nil {
		t.Error("a snapshot without its end was loaded")
	}
}

func TestAMissingFileIsNoticed(t *testing.T) {
	dir, _ := foldedDir(t)
	if err := os.Remove(files(t, dir, "*.snapshot")[0]); err != nil {
		t.Fatal(err)
	}
	if _, _, err := load(dir, quiet); err == nil || !strings.Contains(err.Error(), "00000001.log is missing") {
		t.Errorf("without the snapshot: %v", err)
	}
}

func TestANewerFormatIsRefused(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, fileName(kindLog, 1))
	h := header{version: FormatVersion + 1, kind: kindLog, number: 1, first: 1}
	if err := os.WriteFile(name, h.encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir, quiet)
	for _, want := range []string{name, fmt.Sprintf("format version %d", FormatVersion+1), "newer sampan", "another data directory"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open = %v, want an error that says %q", err, want)
		}
	}
	// And the directory is free again.
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, _, err := load(dir, quiet); err != nil {
		t.Error(err)
	}
}

func TestADirectoryHasOneOwner(t *testing.T) {
	dir := t.TempDir()
	b, err := Open(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(dir, quiet)
	for _, want := range []string{dir, fmt.Sprintf("process %d", os.Getpid()), "stop that one, or use another directory"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the second Open = %v, want an error that says %q", err, want)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := load(dir, quiet); err != nil {
		t.Errorf("after the first owner is gone: %v", err)
	}
}

// FuzzLog checks the law of the log: cut anywhere it gives its whole batches;
// with a byte changed it gives them up to a torn end or says where the damage
// is; and whatever its bytes are, reading them ends, and once read they read the
// same.
func FuzzLog(f *testing.F) {
	f.Add(uint8(3), uint16(100), uint16(60), byte(1), []byte{})
	f.Add(uint8(9), uint16(65535), uint16(200), byte(0), []byte("garbage"))
	f.Fuzz(func(t *testing.T, batches uint8, cut, at uint16, xor byte, junk []byte) {
		s := newScript(int(batches % 16))
		name, log, ends := s.write(t, t.TempDir())
		dir := filepath.Dir(name)
		length := ends[len(ends)-1]
		cutAt := max(headerSize, min(int64(cut), length))
		torn := slices.Concat(log[:cutAt], junk)
		if int64(at) >= headerSize && int64(at) < cutAt {
			torn[at] ^= xor
		}
		same := int64(0) // the junk may happen to complete a frame
		for same < min(length, int64(len(torn))) && torn[same] == log[same] {
			same++
		}
		changed := same < cutAt
		if err := os.WriteFile(name, torn, 0o600); err != nil {
			t.Fatal(err)
		}
		got, _, err := load(dir, quiet)
		whole := frameAt(ends, same)
		var c *CorruptError
		switch {
		case err == nil && !slices.Equal(got, s.after[whole]):
			t.Fatalf("loaded %q, want the %d whole batches %q", got, whole, s.after[whole])
		case err != nil && (!errors.As(err, &c) || c.Offset != ends[whole]):
			t.Fatalf("%v, want damage at %d", err, ends[whole])
		case err != nil && !changed:
			t.Fatalf("a log that was only cut: %v", err)
		case err == nil:
			again, _, err := load(dir, quiet)
			if err != nil || !slices.Equal(again, got) {
				t.Fatalf("loaded again: %q, %v; at first %q", again, err, got)
			}
		}
	})
}

// TestAcknowledgedWritesWereSynced checks the promise that no killed process can: that the bytes
// were on the medium before Commit or Reserve returned, and that a sync that fails is
// never taken for one that did not.
func TestAcknowledgedWritesWereSynced(t *testing.T) {
	b, err := Open(t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	d := b.(*directory)
	if _, err := d.Load(t.Context(), func(store.Entry) error { return nil }); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	var synced []byte // what a power failure now would leave
	d.sync = func(*os.File) (err error) {
		synced, err = os.ReadFile(d.name)
		return err
	}
	at := d.end
	for i := range 5 {
		data := fmt.Sprintf("value %d", i)
		err := d.Commit(t.Context(), store.Batch{Entries: []store.Entry{{Key: "pods/a", Data: []byte(data), Created: 1, Revision: store.Revision(i + 1)}}})
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(synced)) < d.end || !strings.Contains(string(synced[at:d.end]), data) {
			t.Fatalf("commit %d was acknowledged before it was synced", i)
		}
		at = d.end
	}
	synced = nil
	if err := d.Reserve(t.Context(), 1000); err != nil || int64(len(synced)) < d.end {
		t.Errorf("Reserve = %v, with %d of %d bytes synced", err, len(synced), d.end)
	}
	broken := errors.New("the disk is broken")
	d.sync = func(*os.File) error { return broken }
	for range 2 {
		if err := d.Commit(t.Context(), store.Batch{Entries: []store.Entry{{Key: "pods/a", Data: []byte("lost"), Created: 1, Revision: 9}}}); !errors.Is(err, broken) {
			t.Fatalf("Commit with a broken disk = %v", err)
		}
		d.sync = func(*os.File) error { return nil } // Linux says it once: it must not be believed
	}
}
