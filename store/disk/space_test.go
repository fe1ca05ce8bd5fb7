package disk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/store"
)

// A client writes to a directory as a store does, and knows what must be there.
type client struct {
	t    *testing.T
	dir  string
	opts Options
	d    *directory
	rev  store.Revision
	live map[string]store.Entry
}

// newClient opens a directory on a file system of its own with that many bytes and inodes.
func newClient(t *testing.T, options string) *client {
	t.Helper()
	return newClientWith(t, options, quiet)
}

// newClientWith is newClient with options of the directory.
func newClientWith(t *testing.T, options string, opts Options) *client {
	t.Helper()
	c := &client{t: t, dir: t.TempDir(), opts: opts, live: map[string]store.Entry{}}
	if err := unix.Mount("tmpfs", c.dir, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.d.Close(), unix.Unmount(c.dir, 0)); err != nil {
			t.Error(err)
		}
	})
	c.open()
	return c
}

func (c *client) open() {
	c.t.Helper()
	b, err := Open(c.dir, c.opts)
	if err != nil {
		c.t.Fatal(err)
	}
	c.d = b.(*directory)
	got := map[string]store.Entry{}
	rev, err := b.Load(context.Background(), func(e store.Entry) error { got[e.Key] = e; return nil })
	if err != nil {
		c.t.Fatal(err)
	}
	if len(got) != len(c.live) {
		c.t.Fatalf("%d records after a start, want %d", len(got), len(c.live))
	}
	for key, want := range c.live {
		if e := got[key]; string(e.Data) != string(want.Data) || e.Revision != want.Revision || e.Expires != want.Expires {
			c.t.Fatalf("%s after a start: revision %d with %d bytes, want %d with %d", key, e.Revision, len(e.Data), want.Revision, len(want.Data))
		}
	}
	c.rev = max(c.rev, rev)
}

// crash opens the directory again as a new process does after kill -9, and stop after a clean end.
func (c *client) crash() {
	c.t.Helper()
	c.d.dirty = false // no closing frame
	c.stop()
}

func (c *client) stop() {
	c.t.Helper()
	if err := c.d.Close(); err != nil {
		c.t.Fatal(err)
	}
	c.open()
}

func (c *client) put(key string, size int, frees bool) error {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	return c.write(store.Entry{Key: key, Data: data}, frees)
}

func (c *client) remove(key string) error { return c.write(store.Entry{Key: key}, true) }

func (c *client) write(e store.Entry, frees bool) error {
	c.rev++
	e.Revision, e.Created = c.rev, c.rev
	if was, ok := c.live[e.Key]; ok {
		e.Created, e.Replaces = was.Created, was.Size()
	}
	err := c.d.Commit(context.Background(), store.Batch{Entries: []store.Entry{e}, Frees: frees})
	switch {
	case err != nil:
	case e.Data == nil:
		delete(c.live, e.Key)
	default:
		c.live[e.Key] = e
	}
	return err
}

// fill writes until there is no space.
func (c *client) fill(size int) (written int) {
	c.t.Helper()
	for i := 0; ; i++ {
		switch err := c.put(fmt.Sprintf("pods/%d-%d", c.rev, i), size, false); {
		case errors.Is(err, store.ErrFull):
			return i
		case err != nil:
			c.t.Fatal(err)
		}
	}
}

// ballast takes what is left of the file system, as another program may.
func (c *client) ballast() {
	c.t.Helper()
	f, err := os.OpenFile(filepath.Join(c.dir, "ballast"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		if full(err) { // no inode is left either
			return
		}
		c.t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if err := f.Close(); !full(err) && err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) keys() []string {
	var keys []string
	for key := range c.live {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// TestAFullDiskTakesDeletions fills a disk, together with another program, and deletes, with
// stops and crashes at each stage. What is deleted makes space for new records.
func TestAFullDiskTakesDeletions(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		for _, size := range []int{300, 5_000, 100_000} {
			c := newClient(t, "size=10m")
			n := c.fill(size)
			if total := n * size; total < 3<<20 {
				t.Errorf("size %d: a disk of 10 MiB was full after %d bytes", size, total)
			}
			for round, again := range []func(){c.stop, c.crash, c.stop, c.crash} {
				c.ballast()
				again()
				c.ballast()
				if err := c.put("pods/new", size, false); !errors.Is(err, store.ErrFull) {
					t.Fatalf("size %d, round %d: a new record on a full disk: %v, want ErrFull", size, round, err)
				}
				keys := c.keys()
				for i, key := range keys[:len(keys)/3] {
					// Objects with finalizers are written once more before they go.
					if err := c.put(key, len(c.live[key].Data)+60, true); err != nil && size < 100_000 {
						t.Fatalf("size %d, round %d: update %d on a full disk: %v", size, round, i, err)
					}
					if err := c.remove(key); err != nil {
						t.Fatalf("size %d, round %d: deletion %d on a full disk: %v", size, round, i, err)
					}
				}
				again()
				for i := range len(keys) / 12 {
					if err := c.put(fmt.Sprintf("pods/again-%d-%d", round, i), size, false); err != nil {
						t.Fatalf("size %d, round %d: record %d after deletions: %v", size, round, i, err)
					}
				}
				again()
				c.fill(size)
			}
		}
	})
}

// TestGarbageDoesNotFillADisk updates one record on a disk that is far smaller than a segment.
func TestGarbageDoesNotFillADisk(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		c := newClient(t, "size=4m")
		for i := range 1000 {
			if err := c.put("pods/a", 50_000, false); err != nil {
				t.Fatalf("update %d: %v", i, err)
			}
		}
		c.crash()
	})
}

// TestHistoryMakesRoomForWrites updates a record on a small disk, of which another program then takes what is free: the
// history goes, and writes go on.
func TestHistoryMakesRoomForWrites(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		opts := quiet
		opts.Segment, opts.History = 256<<10, History{Keep: time.Hour}
		c := newClientWith(t, "size=8m", opts)
		update := func(times int) {
			t.Helper()
			for i := range times {
				if err := c.put("pods/a", 20_000, false); err != nil {
					t.Fatalf("update %d: %v", i, err)
				}
			}
		}
		update(1000)
		c.crash()
		before := kept(t, c.d.archive)
		if len(before) < 3 {
			t.Fatalf("%d generations are kept on a disk with space", len(before))
		}
		c.ballast()
		update(200)
		oldest := before[0].names[0]
		for _, g := range kept(t, c.d.archive) {
			if slices.Contains(g.names, oldest) {
				t.Errorf("%s, the oldest file of the history, is left on a full disk", oldest)
			}
		}
		c.crash()
	})
}

// TestMoreDeletionsThanTheSlackHolds deletes all records of a disk on which another program takes
// whatever becomes free.
func TestMoreDeletionsThanTheSlackHolds(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		c := newClient(t, "size=10m")
		c.fill(300)
		c.ballast()
		for i, key := range c.keys() {
			if err := c.remove(key); err != nil {
				t.Fatalf("deletion %d of %d: %v", i, c.rev, err)
			}
			if i%2000 == 1999 {
				c.ballast()
				c.crash()
			}
		}
		c.stop()
	})
}

// TestNoInodeIsLeft has another program take all inodes, so that no file can be made.
func TestNoInodeIsLeft(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		c := newClient(t, "size=4m,nr_inodes=20")
		update := func() {
			for i := range 200 {
				if err := c.put(fmt.Sprintf("pods/%d", i%10), 50_000, false); err != nil {
					t.Fatalf("update %d: %v", i, err)
				}
			}
		}
		update()
		for i := 0; ; i++ {
			if err := os.WriteFile(filepath.Join(c.dir, fmt.Sprint("file", i)), nil, 0o600); full(err) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		update()
		c.crash()
		for _, key := range c.keys() {
			if err := c.remove(key); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestLittleSpaceIsReportedOnceAndItsEnd(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		var got []string
		c := newClient(t, "size=10m")
		c.stop()
		c.d.space.notify = func(n store.Notice) { got = append(got, fmt.Sprintf("%s %v", n.Reason, n.Warning)) }
		name := filepath.Join(c.dir, "ballast")
		for range 2 {
			if err := os.WriteFile(name, make([]byte, 8<<20+900<<10), 0o600); err != nil {
				t.Fatal(err)
			}
			c.d.space.checkFree()
			c.d.space.checkFree()
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
			c.d.space.checkFree()
		}
		want := []string{"StoreSpaceLow true", "StoreSpaceRecovered false", "StoreSpaceLow true", "StoreSpaceRecovered false"}
		if !slices.Equal(got, want) {
			t.Errorf("notices %q, want %q", got, want)
		}
	})
}

// TestAnInterruptedFoldResumesAtTheStart has several sealed segments left by folds that did not
// end.
func TestAnInterruptedFoldResumesAtTheStart(t *testing.T) {
	c := &client{t: t, dir: t.TempDir(), opts: quiet, live: map[string]store.Entry{}}
	c.open()
	for range 8 {
		for range 10 {
			if err := c.put("pods/a", 1000, false); err != nil {
				t.Fatal(err)
			}
		}
		if !c.d.seal(t.Context()) {
			t.Fatal("no new segment")
		}
	}
	if n := len(files(t, c.dir, "*.log")); n != 9 {
		t.Fatalf("%d segments, want 9", n)
	}
	c.crash()
	c.d.folding.Wait()
	if logs, snapshots := len(files(t, c.dir, "*.log")), len(files(t, c.dir, "*.snapshot")); logs != 1 || snapshots != 1 {
		t.Errorf("after a start there are %d segments and %d snapshots, want one of each", logs, snapshots)
	}
	c.stop()
	if err := c.d.Close(); err != nil {
		t.Error(err)
	}
}

// TestTheLastFrameIsSyncedAtTheStart checks that a frame which a killed process has written and
// perhaps not synced is synced before it is read.
func TestTheLastFrameIsSyncedAtTheStart(t *testing.T) {
	c := &client{t: t, dir: t.TempDir(), opts: quiet, live: map[string]store.Entry{}}
	c.open()
	broken := errors.New("the disk is broken")
	c.d.sync = func(*os.File) error { return broken }
	if err := c.put("pods/a", 10, false); !errors.Is(err, broken) {
		t.Fatalf("Commit with a broken disk = %v", err)
	}
	if err := c.d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, fails := range []bool{true, false} {
		b, err := Open(c.dir, quiet)
		if err != nil {
			t.Fatal(err)
		}
		synced := 0
		b.(*directory).sync = func(f *os.File) error {
			if fails {
				return broken
			}
			synced++
			return fdatasync(f)
		}
		_, err = b.Load(t.Context(), func(store.Entry) error { return nil })
		if fails && !errors.Is(err, broken) {
			t.Errorf("Load = %v though the last frame cannot be synced", err)
		}
		if !fails && (err != nil || synced == 0) {
			t.Errorf("Load = %v after %d syncs, want one", err, synced)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestAnOlderFormatIsRead checks that a directory of version 1 is read, and goes on in a segment
// of this version, which has deadlines.
func TestAnOlderFormatIsRead(t *testing.T) {
	dir := t.TempDir()
	h := header{version: 1, kind: kindLog, number: 1, first: 1, salt: 7}
	b := h.encode()
	for i, e := range []store.Entry{
		{Key: "pods/a", Data: []byte("1"), Created: 1, Revision: 1},
		{Key: "pods/b", Data: []byte("2"), Created: 2, Revision: 2, Expires: 77}, // not known then
		{Key: "pods/a", Created: 1, Revision: 3},
	} {
		at := len(b)
		b = appendEntry(beginFrame(b, payloadBatch), 1, e)
		endFrame(b, at, h.salt, uint64(i+1))
	}
	if err := os.WriteFile(filepath.Join(dir, fileName(kindLog, 1)), b, 0o600); err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, dir: dir, opts: quiet, live: map[string]store.Entry{
		"pods/b": {Key: "pods/b", Data: []byte("2"), Created: 2, Revision: 2},
	}}
	c.open()
	c.d.folding.Wait()
	if err := c.write(store.Entry{Key: "events/a", Data: []byte("3"), Expires: 1 << 40}, false); err != nil {
		t.Fatal(err)
	}
	c.crash()
	for _, name := range append(files(t, dir, "*.log"), files(t, dir, "*.snapshot")...) {
		if h, err := headerOf(name); err != nil || h.version != plainVersion {
			t.Errorf("%s has version %d, %v", name, h.version, err)
		}
	}
	if err := c.d.Close(); err != nil {
		t.Error(err)
	}
}

func TestDeadlinesOutliveAFold(t *testing.T) {
	c := &client{t: t, dir: t.TempDir(), opts: quiet, live: map[string]store.Entry{}}
	c.open()
	for i := range 3 {
		if err := c.write(store.Entry{Key: fmt.Sprint("events/", i), Data: []byte(strings.Repeat("x", i)), Expires: int64(100 * i)}, false); err != nil {
			t.Fatal(err)
		}
	}
	c.d.roll(t.Context())
	c.d.folding.Wait()
	if c.d.foldErr != nil {
		t.Fatal(c.d.foldErr)
	}
	c.crash()
	if err := c.d.Close(); err != nil {
		t.Error(err)
	}
}
