package disk

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// Options configures a backend. The zero value is good for a cluster.
type Options struct {
	// Segment is how long, in bytes, the log grows at least before it is folded
	// into a snapshot; 0 means 16 MiB, which is read in well under 100 ms at the
	// next start.
	Segment int64

	Log *slog.Logger // nil means slog.Default
}

// ahead is how much of the log is filled with zeros before it is needed. Less
// would mean more syncs that carry metadata, more would mean longer ones.
const ahead = 256 << 10

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
	buf       []byte

	sync func(*os.File) error // fdatasync, but for tests

	folding *run.Group  // nil before the first fold
	busy    atomic.Bool // a fold is under way; what follows is its own as long
	folded
}

// folded is what the newest segment stands on.
type folded struct {
	snapshot *entry // nil: none
	size     int64  // of the snapshot
	sealed   []entry
}

// An entry is a file of the directory.
type entry struct {
	name string // path
	header
}

// Open locks the directory, making it if need be, and looks at what is there. The
// error says which process has it, or that its format is newer than this
// program. Nothing else is changed until Load.
func Open(dir string, opts Options) (store.Backend, error) {
	opts.Segment = cmp.Or(opts.Segment, 16<<20)
	opts.Log = cmp.Or(opts.Log, slog.Default())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the data directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	d := &directory{dir: dir, opts: opts, lock: lock, sync: fdatasync}
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
	var all []entry
	for _, n := range names {
		name := filepath.Join(d.dir, n.Name())
		switch {
		case strings.HasSuffix(name, ".tmp"):
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
			stale = append(stale, e.name)
		}
	}
	for _, name := range stale {
		if err := os.Remove(name); err != nil {
			return err
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
func (d *directory) Load(_ context.Context, each func(store.Entry) error) (store.Revision, error) {
	l := newLedger(true)
	var last end
	for i, e := range d.segments {
		if i > 0 && e.first != last.seq {
			return 0, &CorruptError{e.name, 0, fmt.Sprintf("it begins with record %d, but the segment before it ends before %d", e.first, last.seq)}
		}
		var err error
		if last, err = readSegment(e, i == len(d.segments)-1, l.take); err != nil {
			return 0, err
		}
	}
	if d.snapshot != nil {
		if len(d.segments) > 0 && d.segments[0].first != d.snapshot.first {
			return 0, &CorruptError{d.segments[0].name, 0, fmt.Sprintf("it begins with record %d, but the snapshot ends before %d", d.segments[0].first, d.snapshot.first)}
		}
		size, err := readSnapshot(*d.snapshot, func(payload []byte) error {
			return l.older(payload, func(r raw) error {
				return each(store.Entry{Key: string(r.key), Data: slices.Clone(r.data), Created: r.created, Revision: r.revision})
			})
		})
		if err != nil {
			return 0, err
		}
		d.size = size
	}
	for _, e := range l.newest {
		if !e.deleted {
			if err := each(store.Entry{Key: e.key, Data: e.data, Created: e.created, Revision: e.revision}); err != nil {
				return 0, err
			}
		}
	}
	if err := d.resume(last); err != nil {
		return 0, err
	}
	return max(l.last, l.ceiling), nil
}

// resume opens the newest segment for writing behind its last frame; it makes
// the first one of an empty directory.
func (d *directory) resume(last end) error {
	if len(d.segments) == 0 {
		h := header{version: FormatVersion, kind: kindLog, number: 1, first: 1}
		if d.snapshot != nil {
			h.number, h.first = d.snapshot.number+1, d.snapshot.first
		}
		return d.begin(h)
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
		d.opts.Log.Warn("cut off what a crash left half-written", "file", e.name, "offset", last.at, "bytes", last.torn)
		size = last.at
		if err = f.Truncate(last.at); err == nil {
			err = f.Sync()
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("opening %s for writing: %w", e.name, err), f.Close())
	}
	d.log, d.name, d.head, d.end, d.allocated, d.seq = f, e.name, e.header, last.at, size, last.seq
	return nil
}

// begin makes a segment and goes on writing there.
func (d *directory) begin(h header) error {
	h.salt = rand.Uint32()
	name := filepath.Join(d.dir, fileName(kindLog, h.number))
	f, err := create(name, h)
	if err != nil {
		return err
	}
	if err := publish(f, name); err != nil {
		err = errors.Join(err, f.Close())
		// An empty segment must not stand behind one that is still written to.
		for _, n := range []string{name, name + ".tmp"} {
			if rerr := os.Remove(n); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
				d.broken = errors.Join(err, rerr)
			}
		}
		return err
	}
	d.rollAt = 0
	d.log, d.name, d.head, d.end, d.allocated, d.seq = f, name, h, headerSize, headerSize, h.first
	return nil
}

// create makes a file with a header under a name that only publish makes final.
func create(name string, h header) (*os.File, error) {
	f, err := os.OpenFile(name+".tmp", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(h.encode()); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return f, nil
}

// publish syncs a file made by create and gives it its name.
func publish(f *os.File, name string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// Commit implements [store.Backend].
func (d *directory) Commit(ctx context.Context, batch []store.Entry) error {
	b := beginFrame(d.buf[:0], payloadBatch)
	for _, e := range batch {
		b = appendEntry(b, e)
	}
	return d.record(ctx, b)
}

// Reserve implements [store.Backend].
func (d *directory) Reserve(ctx context.Context, ceiling store.Revision) error {
	return d.record(ctx, binary.AppendUvarint(beginFrame(d.buf[:0], payloadReserve), uint64(ceiling)))
}

// keepBuffer is the largest buffer that is kept for the next batch.
const keepBuffer = 1 << 20

// record writes a frame and syncs it.
func (d *directory) record(ctx context.Context, frame []byte) error {
	if d.broken != nil {
		return d.broken
	}
	if cap(frame) <= keepBuffer {
		d.buf = frame
	}
	if len(frame) > maxPayload {
		return fmt.Errorf("a batch of %d bytes is more than the %d that a record of the log can hold", len(frame), maxPayload)
	}
	endFrame(frame, 0, d.head.salt, d.seq)
	err := d.write(frame)
	if errors.Is(err, store.ErrFull) && d.stopFolding() {
		err = d.write(frame)
	}
	if err != nil {
		if !errors.Is(err, store.ErrFull) {
			d.broken = err
		}
		return err
	}
	d.end += int64(len(frame))
	d.seq++
	d.dirty = true
	if d.end > max(d.opts.Segment, d.rollAt) && !d.busy.Load() && d.end > d.size {
		d.roll(ctx)
	}
	return nil
}

// write puts a frame behind the last one and makes it durable. ErrFull means
// that nothing was written.
func (d *directory) write(frame []byte) error {
	name, size := d.name, int64(len(frame))
	if err := d.extend(d.end + size); err != nil {
		return err
	}
	if _, err := d.log.WriteAt(frame, d.end); err != nil {
		if !full(err) {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		// A file system that copies on write can run full here. Whatever got
		// into the file goes again.
		if err := d.log.Truncate(d.end); err != nil {
			return fmt.Errorf("taking back half a record in %s: %w", name, err)
		}
		d.allocated = d.end
		return fmt.Errorf("writing %s: %w", name, errors.Join(store.ErrFull, err))
	}
	if err := d.sync(d.log); err != nil {
		// What is on disk now nobody knows, and asking again would lie
		// (Linux forgets the error): there is no going on from here.
		return fmt.Errorf("syncing %s: %w", name, err)
	}
	return nil
}

// extend fills the log with zeros beyond need, if they do not reach there.
func (d *directory) extend(need int64) error {
	if need <= d.allocated {
		return nil
	}
	const page = 4096
	err := d.zero((need + ahead + page - 1) / page * page)
	if full(err) {
		err = d.zero(need)
	}
	if err == nil {
		return nil
	}
	if terr := d.log.Truncate(d.allocated); terr != nil {
		return fmt.Errorf("extending %s: %w", d.name, errors.Join(err, terr))
	}
	if full(err) {
		return fmt.Errorf("extending %s: %w", d.name, store.ErrFull)
	}
	return fmt.Errorf("extending %s: %w", d.name, err)
}

// zeros is only read. It is a page, because the page cache remembers what was
// written at once as one piece, and counts a commit as a write of all of it.
var zeros [4 << 10]byte

func (d *directory) zero(to int64) error {
	// Asking for the space first fails early and all at once.
	err := unix.Fallocate(int(d.log.Fd()), 0, d.allocated, to-d.allocated)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return os.NewSyscallError("fallocate", err)
	}
	for at := d.allocated; at < to; {
		n, err := d.log.WriteAt(zeros[:min(int64(len(zeros)), to-at)], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	d.allocated = to
	return nil
}

// Close implements [store.Backend].
func (d *directory) Close() error {
	if d.folding != nil {
		d.folding.Stop()
	}
	var err error
	if d.log != nil {
		if d.dirty && d.broken == nil {
			b := beginFrame(nil, payloadClosed)
			endFrame(b, 0, d.head.salt, d.seq)
			// Without this frame everything is still there, so a full disk is no
			// reason to complain.
			if err = d.write(b); errors.Is(err, store.ErrFull) {
				err = nil
			}
		}
		err = errors.Join(err, d.log.Close())
	}
	return errors.Join(err, d.lock.Close())
}
