package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// A liveSet collects the live records while a log is read.
type liveSet struct {
	data    bool                    // keep the data of entries, not only which is the newest
	newest  map[string]*store.Entry // a deletion has no Data
	last    store.Revision
	first   store.Revision // of the entries of the log; 0: it has none
	ceiling store.Revision
	recent  *recentWrites // nil: none are kept apart

	// gapped is set from a ceiling that is written again, as it was, to the next clean stop: a crash meanwhile can have
	// lost older volatile writes than the newest entry.
	gapped bool

	// crash is the ceiling that was in force at the last crash that entries followed: it may have taken revisions up to
	// there.
	crash store.Revision
}

func newLiveSet(data bool) *liveSet { return &liveSet{data: data, newest: map[string]*store.Entry{}} }

// takePayload records a payload of the log.
func (l *liveSet) takePayload(payload []byte) error {
	switch payload[0] {
	case payloadBatch, payloadStamped:
		return decodeEntries(payload, func(r raw) error {
			if l.first == 0 {
				l.first = r.revision
			}
			if r.revision > l.ceiling {
				l.passed()
			}
			inOrder := r.revision > l.last && l.last >= l.crash
			l.last = max(l.last, r.revision)
			if l.recent != nil {
				l.recent.take(r, l.newest, inOrder)
				return nil
			}
			e := l.newest[string(r.key)]
			if e == nil {
				e = &store.Entry{Key: string(r.key)}
				l.newest[e.Key] = e
			}
			e.Created, e.Revision, e.Expires, e.Data = r.created, r.revision, r.expires, nil
			if l.data && !r.deleted {
				e.Data = slices.Clone(r.data)
			}
			return nil
		})
	case payloadReserve:
		return l.reserve(payload)
	case payloadClosed:
		return nil
	}
	return errMalformed
}

// passed notes that revisions beyond the ceiling are in use. If the entries do not reach it, there was a crash.
func (l *liveSet) passed() {
	if l.last < l.ceiling {
		l.crash = l.ceiling
	}
}

func (l *liveSet) reserve(payload []byte) error {
	c, n := binary.Uvarint(payload[1:])
	if n <= 0 {
		return errMalformed
	}
	switch ceiling := store.Revision(c); {
	case ceiling > l.ceiling:
		l.passed()
	case ceiling == l.ceiling:
		l.gapped = true
	case ceiling < l.ceiling: // a clean stop, which saves everything
		l.gapped = false
	}
	l.ceiling = store.Revision(c)
	return nil
}

// older passes on the entries of a snapshot payload that the log did not replace. all, if not
// nil, gets the others too. The log must have been taken before.
func (l *liveSet) older(payload []byte, each func(raw) error, all func(raw)) error {
	switch payload[0] {
	case payloadBatch, payloadStamped:
		return decodeEntries(payload, func(r raw) error {
			if all != nil {
				all(r)
			}
			if l.newest[string(r.key)] != nil {
				return nil
			}
			return each(r)
		})
	case payloadReserve:
		// The snapshot's word on revisions is older than the log's, so a ceiling
		// in the log, even a lower one, goes before it. But entries of the log
		// lie above it in any case.
		if l.ceiling == 0 {
			return l.reserve(payload)
		}
		return nil
	}
	return errMalformed
}

// readSegment goes through the payloads of a segment.
func readSegment(e entry, newest bool, each func(payload []byte) error) (end, error) {
	f, err := os.Open(e.name)
	if err != nil {
		return end{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return end{}, err
	}
	r, _, err := readHeader(e.name, f, info.Size())
	if err != nil {
		return end{}, err
	}
	tail := func(off int64) ([]byte, error) {
		b := make([]byte, info.Size()-off)
		_, err := f.ReadAt(b, off)
		return b, err
	}
	return scan(r, newest, tail, each)
}

// readSnapshot goes through the payloads of a snapshot, which must be complete,
// and returns its size.
func readSnapshot(e entry, each func(payload []byte) error) (int64, error) {
	f, err := os.Open(e.name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	r, _, err := readHeader(e.name, f, info.Size())
	if err != nil {
		return 0, err
	}
	return info.Size(), scanSnapshot(r, each)
}

// scanSnapshot calls each for the payloads of a snapshot, which must be complete, but not for the last one.
func scanSnapshot(r *reader, each func(payload []byte) error) error {
	r.seq = 1
	for {
		at := r.off
		payload, err := r.next()
		var bad badFrame
		switch {
		case errors.As(err, &bad):
			return &CorruptError{r.file, at, string(bad)}
		case err != nil: // io.EOF before the closing frame included
			return &CorruptError{r.file, at, "the end is missing: " + err.Error()}
		case payload[0] == payloadClosed:
			return nil
		}
		if err := each(payload); errors.Is(err, errMalformed) {
			return &CorruptError{r.file, at, err.Error()}
		} else if err != nil {
			return err
		}
	}
}

// roll begins a new segment and has the older files folded into a snapshot. An error does not
// concern the write that caused it: the log goes on as it is.
func (d *directory) roll(ctx context.Context) {
	if d.seal(ctx) {
		d.startFold(ctx)
	}
}

// seal ends the newest segment and begins another one. It reports false if that failed.
func (d *directory) seal(ctx context.Context) bool {
	old, at, was := d.log, d.end, entry{d.name, d.head}
	if err := d.begin(header{version: d.version(), kind: kindLog, number: was.number + 1, first: d.seq}); err != nil {
		d.opts.Log.WarnContext(ctx, "cannot start a new log segment; trying again when this one has grown", "err", err)
		d.rollAt = d.end + d.opts.Segment
		return false
	}
	// The new segment says where this one ends, so an error here has no consequence.
	_ = old.Truncate(at)
	if err := old.Close(); err != nil {
		d.opts.Log.WarnContext(ctx, "closing a full segment", "file", was.name, "err", err)
	}
	d.sealed = append(d.sealed, was)
	d.length += at
	return true
}

// startFold folds the snapshot and the sealed segments into a new snapshot, in a goroutine of
// its own. None may be under way.
func (d *directory) startFold(ctx context.Context) {
	d.settleFold()
	d.busy.Store(true)
	if d.folding == nil {
		d.folding = run.NewGroup(context.WithoutCancel(ctx), 0)
	}
	if d.changes.group == nil {
		d.changes.group = run.NewGroup(context.WithoutCancel(ctx), 0)
	}
	first, live := d.head.first, d.live
	d.folding.Go(func(ctx context.Context) {
		defer d.busy.Store(false)
		made, err := d.fold(ctx, first, live)
		d.space.reserveUsed()
		d.foldErr = err
		switch {
		case errors.Is(err, errInterrupted):
			d.purging.take().end(err)
			return
		case err != nil:
			d.opts.Log.WarnContext(ctx, "cannot write a snapshot; trying again when the log has grown", "err", err)
		default:
			d.folded = made
		}
		d.space.keep(live - made.drift)
		list := d.purging.take()
		if err != nil {
			list.end(err)
			list = nil
		}
		rewriting := d.rewriting.Swap(false)
		if rewriting && (err != nil || d.opts.Reseal == nil) {
			d.rewritten(err)
			rewriting = false
		}
		if rewriting || len(list) > 0 {
			d.rewriteHistory(historyChange{reseal: rewriting, purges: list})
		}
	})
}

// Rewrite implements [store.Rewriter].
func (d *directory) Rewrite(ctx context.Context) error {
	if d.broken != nil {
		return d.broken
	}
	if d.folding != nil {
		d.folding.Wait() // it may have passed records that have to be written again
	}
	d.rewriting.Store(true)
	if !d.seal(ctx) && len(d.sealed) == 0 {
		// The next fold does it, when there is space for one.
		return d.broken
	}
	d.startFold(ctx)
	return nil
}

// settleFold corrects live by the result of the last fold. No fold may be under way.
func (d *directory) settleFold() {
	d.live = max(d.live-d.drift, 0)
	d.drift = 0
}

// makeRoom folds the log when there is no space, and reports whether that, or a fold that was
// under way, may have made some. It blocks until the fold has ended.
func (d *directory) makeRoom(ctx context.Context, frees bool) bool {
	if d.busy.Load() {
		d.folding.Wait()
		return true
	}
	d.settleFold()
	log := d.length + d.end
	garbage, worth := log, d.space.slack/4
	if !frees {
		garbage = log - (d.live - d.content)
		worth = max(worth, d.live/32) // so that not every write folds the live records
	}
	if garbage < worth || d.gaveUp > 0 && log < d.gaveUp+d.space.slack/4 {
		return false
	}
	if err := d.space.makeSpare(); full(err) {
		d.space.trim(snapshotSize(d.live)) // what is more in the reserve is of better use here
		_ = d.space.makeSpare()            // seal reports an error
	}
	if !d.seal(ctx) && len(d.sealed) == 0 {
		d.gaveUp = log
		return false
	}
	d.tight = true
	d.startFold(ctx)
	d.folding.Wait()
	d.tight = false
	d.gaveUp = 0
	if d.foldErr != nil {
		d.gaveUp = log
	}
	return d.foldErr == nil
}

var errInterrupted = errors.New("interrupted by the stop of the store")

// fold writes a snapshot of the live records before the frame with the given sequence, then removes
// the files that it replaces. live is the log's count of the size of the live records.
func (d *directory) fold(ctx context.Context, first uint64, live int64) (folded, error) {
	was := d.folded
	l := newLiveSet(false)
	for _, e := range was.sealed {
		if _, err := readSegment(e, false, func(p []byte) error {
			if ctx.Err() != nil {
				return errInterrupted
			}
			return l.takePayload(p)
		}); err != nil {
			return folded{}, err
		}
	}
	h := header{
		version: plainVersion, kind: kindSnapshot, salt: rand.Uint32(),
		number: was.sealed[len(was.sealed)-1].number, first: first,
	}
	name := filepath.Join(d.dir, fileName(h.kind, h.number))
	f, err := d.space.takeReserve(h)
	if err != nil {
		return folded{}, err
	}
	w := &snapshotWriter{file: f, salt: h.salt, size: headerSize}
	if !d.tight {
		w.reseal = d.opts.Reseal
	}
	if err = w.copyLive(ctx, l, was); err == nil {
		if err = w.close(max(l.last, l.ceiling)); err == nil {
			err = publish(f, name)
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return folded{}, fmt.Errorf("writing %s: %w", name, err)
	}
	// From here on the old files are not needed. If one cannot be removed the next start removes
	// it.
	old := was.sealed
	if was.snapshot != nil {
		old = append([]entry{*was.snapshot}, old...)
	}
	d.archive.retire(old)
	return folded{snapshot: &entry{name, h}, size: w.size, content: w.live, drift: live - w.live}, nil
}

// A snapshotWriter writes frames of a snapshot.
type snapshotWriter struct {
	file     *os.File
	reseal   func(key string, data []byte) []byte // nil: data are copied
	salt     uint32
	seq      uint64
	buf      []byte // the frame that is being filled
	size     int64
	live     int64 // sizes of the entries
	unsynced int64
}

const (
	snapshotFrame = 64 << 10
	// snapshotSync bounds what a sync of the log may have to wait for on file
	// systems that write all dirty data at once.
	snapshotSync = 4 << 20
)

func (w *snapshotWriter) add(r raw) error {
	e := r.entry()
	if w.reseal != nil {
		e.Data = w.reseal(e.Key, e.Data)
	}
	return w.addEntry(e)
}

func (w *snapshotWriter) addEntry(e store.Entry) error {
	if len(w.buf) == 0 {
		w.buf = beginFrame(w.buf, payloadBatch)
	}
	w.live += int64(e.Size())
	w.buf = appendEntry(w.buf, plainVersion, e)
	if len(w.buf) < snapshotFrame {
		return nil
	}
	return w.flush()
}

func (w *snapshotWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	w.seq++
	endFrame(w.buf, 0, w.salt, w.seq)
	n, err := w.file.Write(w.buf)
	w.size += int64(n)
	w.unsynced += int64(n)
	w.buf = w.buf[:0]
	if err == nil && w.unsynced > snapshotSync {
		w.unsynced = 0
		err = fdatasync(w.file)
	}
	return err
}

// close writes the end of the snapshot.
func (w *snapshotWriter) close(ceiling store.Revision) error {
	if err := w.flush(); err != nil {
		return err
	}
	w.buf = binary.AppendUvarint(beginFrame(w.buf, payloadReserve), uint64(ceiling))
	if err := w.flush(); err != nil {
		return err
	}
	w.buf = beginFrame(w.buf, payloadClosed)
	if err := w.flush(); err != nil {
		return err
	}
	return w.file.Truncate(w.size) // the reserve may be longer
}

// copyLive writes the entries that are the newest of their keys.
func (w *snapshotWriter) copyLive(ctx context.Context, l *liveSet, was folded) error {
	add := func(r raw) error {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return w.add(r)
	}
	if was.snapshot != nil {
		if _, err := readSnapshot(*was.snapshot, func(p []byte) error { return l.older(p, add, nil) }); err != nil {
			return err
		}
	}
	for _, e := range was.sealed {
		if _, err := readSegment(e, false, func(p []byte) error {
			if !hasEntries(p[0]) {
				return nil
			}
			return decodeEntries(p, func(r raw) error {
				if r.deleted || l.newest[string(r.key)].Revision != r.revision {
					return nil
				}
				return add(r)
			})
		}); err != nil {
			return err
		}
	}
	return nil
}
