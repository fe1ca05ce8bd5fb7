package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/wholefile"
	"github.com/sampan-io/sampan/store"
)

// Options configures a backend. The zero value is good for a cluster.
type Options struct {
	// Segment is how long, in bytes, the log grows at least before it is folded
	// into a snapshot; 0 means 16 MiB, which is read in well under 100 ms at the
	// next start.
	Segment int64

	// Reseal returns the data that a fold writes for a record, given the log's data. It is called from the
	// goroutine of the fold. Nil means that data are copied. A fold that has to make space copies them as well,
	// because they might become larger.
	Reseal func(key string, data []byte) []byte

	// Rewritten is called when a fold that [store.Rewriter] asked for, and the one of the history after it, have ended. Nil
	// means no call.
	Rewritten func(error)

	// History says which superseded writes are kept. The zero value keeps none, and Load removes the files of earlier ones.
	History History

	// Notify is called when the file system has little space left, and when it has enough
	// again. It must not block. Nil means that this is only logged.
	Notify func(store.Notice)

	Log *slog.Logger // nil means slog.Default
}

// directory is a store.Backend.
type directory struct {
	dir  string
	opts Options
	lock *os.File

	segments []entry // by number, without gaps; what Load reads

	log       *os.File // the newest segment
	name      string   // its path
	head      header
	end       int64  // where the next frame goes
	allocated int64  // the file has zeros from end to here
	seq       uint64 // of the next frame
	dirty     bool   // something was written since the last closing frame
	broken    error  // not nil: the state of the log is unknown
	rollAt    int64  // no new segment before the log is this long
	live      int64  // size of the live records, as store.Entry.Size counts
	gaveUp    int64  // length of the log when folding it made no room; 0: that was not tried
	buf       []byte

	sync func(*os.File) error // fdatasync, but for tests

	space *space

	folding *run.Group  // nil before the first fold
	tight   bool        // the fold has to make space; set before it begins
	busy    atomic.Bool // a fold is under way and owns the fields below and the files of space
	folded
	foldErr error // of the last fold

	rewriting atomic.Bool // Rewrite asked for the fold that is under way or comes next

	archive *archive
	stamper stamper
	purging purges
	changes historyChanges
}

// version returns the format version of new segments.
func (d *directory) version() uint32 {
	if d.opts.History.keeps() {
		return FormatVersion
	}
	return plainVersion
}

// folded is the state below the newest segment.
type folded struct {
	snapshot *entry // nil: none
	size     int64  // of the snapshot
	content  int64  // of the snapshot, as store.Entry.Size counts
	sealed   []entry
	length   int64 // of the sealed segments
	drift    int64 // by how much live was too large when the snapshot was made; added up once
}

// An entry is a file of the directory.
type entry struct {
	name string // path
	header
}

// Open locks the directory, making it if need be, and reads the headers of its files. The
// error says which process has locked it, or that its format is newer than this
// program. Nothing else is changed until Load.
func Open(dir string, opts Options) (store.Backend, error) {
	opts.Segment = cmp.Or(opts.Segment, 16<<20)
	opts.Log = cmp.Or(opts.Log, slog.Default())
	if opts.Notify == nil {
		opts.Notify = func(store.Notice) {}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the data directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	d := &directory{dir: dir, opts: opts, lock: lock, sync: fdatasync, space: newSpace(dir, opts), archive: newArchive(dir, opts)}
	if err := d.survey(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// survey finds the newest snapshot and the segments after it, and removes what a
// crash left of older ones.
func (d *directory) survey() error {
	names, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	var stale []string
	var all, old []entry
	for _, n := range names {
		name := filepath.Join(d.dir, n.Name())
		switch {
		case strings.HasSuffix(name, ".tmp") || wholefile.Incomplete(n.Name()):
			stale = append(stale, name)
			continue
		case !strings.HasSuffix(name, ".log") && !strings.HasSuffix(name, ".snapshot"):
			continue
		}
		h, err := headerOf(name)
		if err != nil {
			return err
		}
		if want := fileName(h.kind, h.number); want != n.Name() {
			return &CorruptError{name, 0, "its header says that its name is " + want}
		}
		all = append(all, entry{name, h})
	}
	for _, e := range all {
		if e.kind == kindSnapshot && (d.snapshot == nil || e.number > d.snapshot.number) {
			d.snapshot = &e
		}
	}
	next := uint64(1)
	if d.snapshot != nil {
		next = d.snapshot.number + 1
	}
	for _, e := range all { // ReadDir sorts by name
		switch {
		case e.kind == kindLog && e.number >= next:
			if want := next + uint64(len(d.segments)); e.number != want {
				return fmt.Errorf("%s is missing, though %s is there: restore the data directory from a backup, or move it away to start with an empty cluster",
					filepath.Join(d.dir, fileName(kindLog, want)), e.name)
			}
			d.segments = append(d.segments, e)
		case d.snapshot == nil || e != *d.snapshot:
			old = append(old, e)
		}
	}
	d.archive.retire(old)
	for _, name := range stale {
		// It is ignored as long as it is there, and some file systems cannot remove a file
		// when they are full.
		if err := os.Remove(name); err != nil {
			d.opts.Log.Warn("cannot remove an obsolete file", "err", err)
		}
	}
	return nil
}

func fileName(kind uint32, number uint64) string {
	if kind == kindSnapshot {
		return fmt.Sprintf("%08d.snapshot", number)
	}
	return fmt.Sprintf("%08d.log", number)
}

func headerOf(name string) (header, error) {
	f, err := os.Open(name)
	if err != nil {
		return header{}, err
	}
	defer f.Close()
	_, h, err := readHeader(name, f, 0)
	return h, err
}

// Load implements [store.Backend]. It cuts off what a crash left half-written.
func (d *directory) Load(ctx context.Context, each func(store.Entry) error) (store.Revision, error) {
	l := newLiveSet(true)
	if err := d.load(ctx, l, each, nil); err != nil {
		return 0, err
	}
	return max(l.last, l.ceiling), nil
}

// LoadRecent implements [store.Recaller].
func (d *directory) LoadRecent(ctx context.Context, each func(store.Entry) error, recent func(store.Entry, bool) error) (store.Recalled, error) {
	l := newLiveSet(true)
	l.recent = &recentWrites{floors: map[string]store.Revision{}}
	folded := d.snapshot != nil // a fold that begins with the load makes a new one
	if err := d.load(ctx, l, each, recent); err != nil {
		return store.Recalled{}, err
	}
	got := store.Recalled{Last: max(l.last, l.ceiling), Durable: l.last, Floors: l.recent.floors}
	switch {
	case l.gapped, folded && l.first == 0:
		got.Floor, got.Durable = got.Last, got.Last
	case folded:
		got.Floor = max(l.crash, l.first-1) // the snapshot does not have the writes that it was made of
	default:
		got.Floor = l.crash
	}
	return got, nil
}

// load reads the snapshot and the log. If recent is not nil, it gets the recent writes of l, and each the state before.
func (d *directory) load(ctx context.Context, l *liveSet, each func(store.Entry) error, recent func(store.Entry, bool) error) error {
	var last end
	sizes := map[string]int{} // of the records before the recent writes to them
	load := func(e store.Entry) error {
		d.live += int64(e.Size())
		if l.recent.writes(e.Key) {
			sizes[e.Key] = e.Size()
		}
		return each(e)
	}
	for i, e := range d.segments {
		if i > 0 && e.first != last.seq {
			return &CorruptError{e.name, 0, fmt.Sprintf("it begins with record %d, but the segment before it ends before %d", e.first, last.seq)}
		}
		var err error
		if last, err = readSegment(e, i == len(d.segments)-1, l.takePayload); err != nil {
			return err
		}
		if i < len(d.segments)-1 {
			d.length += last.at
		}
	}
	if err := d.checkMark(last); err != nil {
		return err
	}
	if d.snapshot != nil {
		if len(d.segments) > 0 && d.segments[0].first != d.snapshot.first {
			return &CorruptError{d.segments[0].name, 0, fmt.Sprintf("it begins with record %d, but the snapshot ends before %d", d.segments[0].first, d.snapshot.first)}
		}
		size, err := readSnapshot(*d.snapshot, func(payload []byte) error {
			return l.older(payload, func(r raw) error {
				e := r.entry()
				e.Data = slices.Clone(e.Data)
				return load(e)
			}, func(r raw) { e := r.entry(); d.content += int64(e.Size()) })
		})
		if err != nil {
			return err
		}
		d.size = size
	}
	for _, e := range l.newest {
		if e.Data != nil {
			if err := load(*e); err != nil {
				return err
			}
		}
	}
	for _, e := range l.recent.list() {
		d.live += int64(e.Size() - sizes[e.Key])
		sizes[e.Key] = e.Size()
		l.recent.count[e.Key]--
		if err := recent(*e, l.recent.count[e.Key] == 0); err != nil {
			return err
		}
	}
	return d.resume(ctx, last)
}

// checkMark compares the end of the log with the one of the last clean stop.
func (d *directory) checkMark(last end) error {
	m, ok, err := readMark(d.dir)
	if err != nil {
		d.opts.Log.Warn("cannot read where the log ended at the last clean stop: a missing end would not be noticed", "err", err)
	}
	if !ok {
		return nil
	}
	var newest *entry
	if n := len(d.segments); n > 0 {
		newest = &d.segments[n-1]
	}
	return m.check(d.dir, newest, last.at)
}

// resume opens the newest segment for writing behind its last frame; it makes
// the first one of an empty directory. A fold that did not end in an earlier run begins again.
func (d *directory) resume(ctx context.Context, last end) error {
	defer d.space.checkFree()
	d.archive.begin()
	if len(d.segments) == 0 {
		h := header{version: d.version(), kind: kindLog, number: 1, first: 1}
		if d.snapshot != nil {
			h.number, h.first = d.snapshot.number+1, d.snapshot.first
		}
		if err := d.begin(h); err != nil {
			return err
		}
		d.space.keep(d.live)
		return nil
	}
	newest := len(d.segments) - 1
	e := d.segments[newest]
	d.sealed = d.segments[:newest]
	f, err := os.OpenFile(e.name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil && last.torn > 0 {
		d.opts.Log.Warn("removed a half-written record after a crash", "file", e.name, "offset", last.at, "bytes", last.torn)
		size = last.at
		if err = f.Truncate(last.at); err == nil {
			err = f.Sync()
		}
	}
	if err == nil {
		err = d.confirm(f, last)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("opening %s for writing: %w", e.name, err), f.Close())
	}
	d.log, d.name, d.head, d.end, d.allocated, d.seq = f, e.name, e.header, last.at, size, last.seq
	d.archive.reached(d.head.number, d.end)
	if e.version != d.version() {
		d.seal(ctx) // on a full disk the other format goes on
	}
	if len(d.sealed) > 0 {
		d.startFold(ctx)
	} else {
		d.space.keep(d.live)
	}
	return nil
}

// confirm makes the last frame durable, which it may not be if the process before was killed
// while it synced the frame, or if that sync failed: the page cache has the frame then, and the
// medium may not. Earlier frames were synced before the last one was written.
func (d *directory) confirm(f *os.File, last end) error {
	if last.last == 0 {
		return nil
	}
	frame := make([]byte, last.at-last.last)
	if _, err := f.ReadAt(frame, last.last); err != nil {
		return err
	}
	// Written again, because after a failed sync Linux takes the pages for clean.
	if _, err := f.WriteAt(frame, last.last); err != nil && !full(err) {
		return err
	}
	return d.sync(f)
}

// Close implements [store.Backend].
func (d *directory) Close() error {
	if d.folding != nil {
		d.folding.Stop()
	}
	if d.changes.group != nil { // the goroutine of a fold uses it
		d.changes.group.Stop()
	}
	var err error
	if d.log != nil {
		if d.dirty && d.broken == nil {
			b := beginFrame(nil, payloadClosed)
			endFrame(b, 0, d.head.salt, d.seq)
			// Without this frame everything is still there, so a full disk is not an error.
			if err = d.extend(d.end + int64(len(b))); err == nil {
				err = d.write(b)
			}
			if err == nil {
				d.end += int64(len(b))
				d.keepMark()
			}
			if errors.Is(err, store.ErrFull) {
				err = nil
			}
		}
		err = errors.Join(err, d.log.Close())
	}
	return errors.Join(err, d.lock.Close())
}

// keepMark records where the log ends at a clean stop. The stop does not depend on it.
func (d *directory) keepMark() {
	err := writeMark(d.dir, mark{segment: d.head.number, salt: d.head.salt, end: d.end})
	if err != nil && !full(err) {
		d.opts.Log.Warn("cannot record where the log ends", "err", err)
	}
}
