package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/sampan-io/sampan/store"
)

// ahead is how much of the log is filled with zeros before it is needed, beyond what is kept
// back. Less would mean more syncs that carry metadata, more would mean longer ones.
const ahead = 256 << 10

// begin makes a segment, out of the spare one if there is one, and goes on writing there.
func (d *directory) begin(h header) error {
	h.salt = rand.Uint32()
	name := filepath.Join(d.dir, fileName(kindLog, h.number))
	f, size, err := d.space.takeSpare(h)
	if err != nil {
		return err
	}
	if err := publish(f, name); err != nil {
		err = errors.Join(err, f.Close())
		// An empty segment must not stand behind one that is still written to.
		for _, n := range []string{name, f.Name()} {
			if rerr := os.Remove(n); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
				d.broken = errors.Join(err, rerr)
			}
		}
		return err
	}
	d.rollAt = 0
	d.log, d.name, d.head, d.end, d.allocated, d.seq = f, name, h, headerSize, size, h.first
	d.archive.reached(h.number, d.end)
	return nil
}

// publish syncs a file and gives it its name.
func publish(f *os.File, name string) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// Commit implements [store.Backend].
func (d *directory) Commit(ctx context.Context, batch store.Batch) error {
	if len(batch.Entries) == 0 {
		size := int64(batch.Room)
		return d.try(ctx, false, func() error { return d.ensureSpace(size, d.live+size, false) })
	}
	live := d.live
	for i := range batch.Entries {
		live += int64(batch.Entries[i].Size() - batch.Entries[i].Replaces)
	}
	live = max(live, 0)
	encode := func(version uint32) []byte {
		if version >= 3 && d.opts.History.keeps() {
			return d.stamper.append(beginFrame(d.buf[:0], payloadStamped), version, batch.Entries)
		}
		b := beginFrame(d.buf[:0], payloadBatch)
		for _, e := range batch.Entries {
			b = appendEntry(b, version, e)
		}
		return b
	}
	if err := d.record(ctx, encode, live, batch.Frees); err != nil {
		return err
	}
	d.live = live
	return nil
}

// Reserve implements [store.Backend].
func (d *directory) Reserve(ctx context.Context, ceiling store.Revision) error {
	return d.record(ctx, func(uint32) []byte {
		return binary.AppendUvarint(beginFrame(d.buf[:0], payloadReserve), uint64(ceiling))
	}, d.live, true)
}

// keepBuffer is the largest buffer that is kept for the next batch.
const keepBuffer = 1 << 20

// record writes a frame, which encode makes for a version of the format, and syncs it. live is the
// size of the live records afterwards. A frame that frees space may use the space kept back.
func (d *directory) record(ctx context.Context, encode func(version uint32) []byte, live int64, frees bool) error {
	if err := d.try(ctx, frees, func() error { return d.append(encode, live, frees) }); err != nil {
		return err
	}
	if d.end > max(d.opts.Segment, d.rollAt) && !d.busy.Load() && d.end > d.size {
		d.roll(ctx)
	}
	return nil
}

// try calls what needs space, and once more if it found none and some can be made. An error other
// than ErrFull breaks the backend.
func (d *directory) try(ctx context.Context, frees bool, what func() error) error {
	if d.broken != nil {
		return d.broken
	}
	err := what()
	for errors.Is(err, store.ErrFull) && d.archive.dropOldest() {
		err = what()
	}
	if errors.Is(err, store.ErrFull) && d.makeRoom(ctx, frees) {
		err = what()
	}
	d.space.lookSometimes()
	if err != nil && !errors.Is(err, store.ErrFull) {
		d.broken = err
	}
	return err
}

// append is record without trying to make room.
func (d *directory) append(encode func(version uint32) []byte, live int64, frees bool) error {
	frame := encode(d.head.version)
	if cap(frame) <= keepBuffer {
		d.buf = frame
	}
	if len(frame) > maxPayload {
		return fmt.Errorf("a batch of %d bytes is more than the %d that a record of the log can hold", len(frame), maxPayload)
	}
	if err := d.ensureSpace(int64(len(frame)), live, frees); err != nil {
		return err
	}
	endFrame(frame, 0, d.head.salt, d.seq)
	if err := d.write(frame); err != nil {
		return err
	}
	d.end += int64(len(frame))
	d.archive.reached(d.head.number, d.end)
	d.seq++
	d.dirty = true
	return nil
}

// ensureSpace makes sure that there is space for a frame, and that what is kept back stays so unless
// the frame frees space. ErrFull means that nothing was changed.
func (d *directory) ensureSpace(size, live int64, frees bool) error {
	kept := d.space.slack
	if frees {
		kept = 0
	}
	if err := d.extend(d.end + size + kept); err != nil {
		return err
	}
	if d.busy.Load() || frees && live <= d.live {
		return nil
	}
	d.settleFold()
	return d.space.holdReserve(snapshotSize(live) + kept)
}

// write puts a frame behind the last one and makes it durable. ErrFull means
// that nothing was written.
func (d *directory) write(frame []byte) error {
	if _, err := d.log.WriteAt(frame, d.end); err != nil {
		if !full(err) {
			return fmt.Errorf("writing %s: %w", d.name, err)
		}
		// A file system that copies on write can run full here. Whatever got
		// into the file goes again.
		if err := d.log.Truncate(d.end); err != nil {
			return fmt.Errorf("taking back half a record in %s: %w", d.name, err)
		}
		d.allocated = d.end
		return fmt.Errorf("writing %s: %w", d.name, errors.Join(store.ErrFull, err))
	}
	if err := d.sync(d.log); err != nil {
		// It is unknown what is on disk now, and a second sync would wrongly succeed, because
		// Linux reports the error once. The process has to end; see confirm.
		return fmt.Errorf("syncing %s: %w", d.name, err)
	}
	return nil
}

// extend fills the log with zeros up to need at least, if they do not reach there.
func (d *directory) extend(need int64) error {
	if need <= d.allocated {
		return nil
	}
	const page = 4096
	to, err := zero(d.log, d.allocated, (need+ahead+page-1)/page*page)
	if full(err) {
		to, err = zero(d.log, d.allocated, need)
	}
	if err == nil {
		d.allocated = to
		d.space.checkFree()
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

// zero fills a file with zeros and returns where they end.
func zero(f *os.File, from, to int64) (int64, error) {
	// Asking for the space first fails early and all at once.
	if err := allocate(f, from, to); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return from, err
	}
	for at := from; at < to; {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), to-at)], at)
		if err != nil {
			return from, err
		}
		at += int64(n)
	}
	return to, nil
}
