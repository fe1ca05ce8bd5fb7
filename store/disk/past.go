package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/store"
)

// Past implements [store.Historian].
func (d *directory) Past() store.Past {
	if !d.opts.History.keeps() {
		return nil
	}
	return d.archive
}

// A pastFile is an open snapshot or segment. It stays readable when it is moved or removed.
type pastFile struct {
	*os.File
	header
	size  int64  // where its frames end at the latest
	until uint64 // sequence of the first frame of the next segment; 0: it is not known
}

// openRegular opens a file for reading. It does not block, and anything but a regular file is damage.
func openRegular(name string) (*os.File, error) {
	irregular := &CorruptError{name, 0, "it is not a regular file"}
	if info, err := os.Lstat(name); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, pastError(irregular)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may have become a pipe
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = pastError(irregular)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openPast opens a file of which only so many bytes count; 0 means all.
func openPast(name string, size int64) (*pastFile, error) {
	f, err := openRegular(name)
	if err != nil {
		return nil, err
	}
	out := &pastFile{File: f, size: size}
	if err := out.readHeader(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return out, nil
}

// readHeader reads the header, and the size of the file if that is 0.
func (f *pastFile) readHeader() error {
	if f.size == 0 {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		f.size = info.Size()
	}
	var err error
	_, f.header, err = readHeader(f.Name(), io.NewSectionReader(f, 0, f.size), f.size)
	return pastError(err)
}

// pastError returns the error of a reader of the history. Damage of a file that the store needs is not one of the
// history.
func pastError(err error) error {
	if c, ok := errors.AsType[*CorruptError](err); ok && filepath.Base(filepath.Dir(c.File)) == historyDir {
		return &store.PastError{File: c.File, Offset: c.Offset, Reason: c.Reason}
	}
	return err
}

// payloads calls each for the payloads of a file.
func (f *pastFile) payloads(each func(payload []byte) error) error {
	return f.frames(func(payload []byte, _ int64) error { return each(payload) })
}

// frames calls each for the payloads of a file, with their offsets in it.
func (f *pastFile) frames(each func(payload []byte, at int64) error) error {
	r, h, err := readHeader(f.Name(), io.NewSectionReader(f, 0, f.size), f.size)
	if err != nil {
		return pastError(err)
	}
	take := func(payload []byte) error { return each(payload, r.off-int64(len(payload))) }
	if h.kind == kindSnapshot {
		return pastError(scanSnapshot(r, take))
	}
	tail := func(off int64) ([]byte, error) {
		b := make([]byte, f.size-off)
		_, err := f.ReadAt(b, off)
		return b, err
	}
	end, err := scan(r, false, tail, take)
	if err == nil && f.until > 0 && end.seq != f.until {
		err = &CorruptError{f.Name(), end.at, fmt.Sprintf(
			"it ends before record %d, but the segment after it begins with record %d", end.seq, f.until)}
	}
	return pastError(err)
}

// errFound ends a walk through a file.
var errFound = errors.New("found")

// first returns the first entry that is wanted; ok is false if there is none. The entry has no bytes.
func (f *pastFile) first(wanted func(*raw) bool) (out raw, ok bool, err error) {
	err = f.payloads(func(payload []byte) error {
		if !hasEntries(payload[0]) {
			return nil
		}
		return decodeEntries(payload, func(r raw) error {
			if !wanted(&r) {
				return nil
			}
			out, ok = raw{revision: r.revision, at: r.at}, true
			return errFound
		})
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return out, ok, err
}

// A segmentPast is a segment of the history.
type segmentPast struct {
	number uint64
	log    *pastFile
	base   *pastFile // the snapshot below it; nil if there is none
	first  raw       // its first entry; revision 0: it has none
	stamp  raw       // its first entry with a time; at 0: it has none
}

// based reports whether the state before the segment is known.
func (s *segmentPast) based() bool { return s.base != nil || s.number == 1 }

// A chain is the segments without a gap up to the newest one, oldest first. The first one has a base.
type chain []*segmentPast

func (c chain) close() {
	for _, s := range c {
		_ = s.log.Close()
		if s.base != nil {
			_ = s.base.Close()
		}
	}
}

// open opens all files of the history and of the store.
func (a *archive) open(ctx context.Context) (_ chain, err error) {
	c, err := a.openFiles(ctx)
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if err != nil {
		return nil, err
	}
	for i, s := range c {
		if err := s.readHeaders(); err != nil {
			return nil, err
		}
		if i > 0 {
			c[i-1].log.until = s.log.header.first
		}
	}
	for _, s := range c {
		if err := s.readFirst(); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return c, nil
}

// openFiles opens the files of the chain, and reads none, because it locks out their removal. The caller closes the
// chain even if there is an error.
func (a *archive) openFiles(ctx context.Context) (c chain, err error) {
	a.files.RLock()
	defer a.files.RUnlock()
	newest, end := a.reachedTo()
	paths := map[string]string{} // by name
	kept, err := a.entries()
	if err != nil {
		return nil, err
	}
	for _, n := range kept {
		paths[n.Name()] = filepath.Join(a.dir, n.Name())
	}
	names, err := os.ReadDir(a.store)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if isStoreFile(n.Name()) {
			paths[n.Name()] = filepath.Join(a.store, n.Name())
		}
	}
	for number := newest; ; number-- {
		path, ok := paths[fileName(kindLog, number)]
		if !ok || number == 0 {
			break
		}
		f, err := openRegular(path)
		if err != nil {
			return c, err
		}
		s := &segmentPast{number: number, log: &pastFile{File: f}}
		if number == newest {
			s.log.size = end
		}
		c = append(c, s)
		if path, ok := paths[fileName(kindSnapshot, number-1)]; ok {
			f, err := openRegular(path)
			if err != nil {
				return c, err
			}
			s.base = &pastFile{File: f}
		}
		if ctx.Err() != nil {
			return c, context.Cause(ctx)
		}
	}
	slices.Reverse(c)
	for len(c) > 0 && !c[0].based() { // the rest of a generation that was removed
		_ = c[0].log.Close()
		c = c[1:]
	}
	return c, nil
}

// readHeaders reads the headers of the files.
func (s *segmentPast) readHeaders() error {
	if s.base != nil {
		if err := s.base.readHeader(); err != nil {
			return err
		}
	}
	return s.log.readHeader()
}

// readFirst reads the first entries of the segment.
func (s *segmentPast) readFirst() (err error) {
	if s.first, _, err = s.log.first(func(*raw) bool { return true }); err != nil {
		return err
	}
	if s.first.at > 0 {
		s.stamp = s.first
	} else if s.log.version >= FormatVersion {
		s.stamp, _, err = s.log.first(func(r *raw) bool { return r.at > 0 })
	}
	return err
}

// span returns the extent of the chain.
func (c chain) span() store.PastSpan {
	var out store.PastSpan
	for _, s := range c {
		if s.stamp.at > 0 { // earlier writes are of a time without history, and have no times
			out.From, out.Since = s.stamp.revision-1, time.UnixMilli(s.stamp.at)
			break
		}
		if out.From == 0 && s.first.revision > 0 && c[0].number > 1 {
			out.From = s.first.revision - 1
		}
	}
	return out
}

// from returns the part of the chain that begins with the newest base whose state is not newer than a revision.
func (c chain) from(at store.Revision) (chain, error) {
	if span := c.span(); at < span.From {
		return nil, &store.ExpiredError{PastSpan: span}
	}
	begin, last, next := 0, -1, len(c)-1 // the segments with the last entry up to the revision, and with the next one
	for i, s := range c {
		if s.first.revision == 0 {
			continue
		}
		if s.first.revision > at {
			next = i
			break
		}
		last = i
	}
	for i, s := range c[:last+1] {
		if s.based() {
			begin = i
		}
	}
	for i := next; i > last; i-- { // between them the state does not change
		if !c[i].based() {
			continue
		}
		if last >= 0 {
			newer := func(r *raw) bool { return r.revision > at }
			if _, found, err := c[last].log.first(newer); found || err != nil {
				return c[begin:], err
			}
		}
		begin = i
		break
	}
	return c[begin:], nil
}

// Span implements [store.Past].
func (a *archive) Span(ctx context.Context) (store.PastSpan, error) {
	c, err := a.open(ctx)
	if err != nil {
		return store.PastSpan{}, err
	}
	defer c.close()
	return c.span(), nil
}

// RevisionAt implements [store.Past].
func (a *archive) RevisionAt(ctx context.Context, at time.Time) (store.Revision, error) {
	c, err := a.open(ctx)
	if err != nil {
		return 0, err
	}
	defer c.close()
	begin, limit := -1, at.UnixMilli()
	for i, s := range c {
		if s.stamp.at > 0 && s.stamp.at <= limit {
			begin = i
		}
	}
	if begin < 0 {
		return 0, &store.ExpiredError{PastSpan: c.span()}
	}
	newest := store.Revision(0)
	for _, s := range c[begin:] {
		err := s.log.payloads(func(payload []byte) error {
			if payload[0] != payloadStamped {
				return context.Cause(ctx)
			}
			return decodeEntries(payload, func(r raw) error {
				if r.at <= limit {
					newest = max(newest, r.revision)
				}
				return nil
			})
		})
		if err != nil {
			return 0, err
		}
	}
	return newest, nil
}

// A spot is where the data of a record is. The file is nil for a deletion and data that were purged.
type spot struct {
	file              *pastFile
	at                int64
	size              int
	created, revision store.Revision
	deleted           bool
}

// at returns the spot of an entry of a payload that is at an offset of a file.
func (r *raw) spot(f *pastFile, payload int64) spot {
	s := spot{created: r.created, revision: r.revision, deleted: r.deleted}
	if r.data != nil {
		s.file, s.size = f, len(r.data)
		s.at = payload + int64(r.end-len(r.data))
	}
	return s
}

// entry reads the record at a spot.
func (s spot) entry(key string, buf []byte) (store.Entry, []byte, error) {
	e := store.Entry{Key: key, Created: s.created, Revision: s.revision}
	if s.file == nil {
		return e, buf, nil
	}
	buf = slices.Grow(buf[:0], s.size)[:s.size]
	_, err := s.file.ReadAt(buf, s.at)
	e.Data = buf
	return e, buf, err
}

// walk calls each for the matching entries of the chain up to a revision: first those of its base, if state is true,
// and then the writes.
func (c chain) walk(ctx context.Context, to store.Revision, match func(key []byte) bool, each func(r *raw, s spot, written bool)) error {
	for i, s := range c {
		files := []*pastFile{s.log}
		if i == 0 && s.base != nil {
			files = []*pastFile{s.base, s.log}
		}
		for _, f := range files {
			err := f.frames(func(payload []byte, at int64) error {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if !hasEntries(payload[0]) {
					return nil
				}
				return decodeEntries(payload, func(r raw) error {
					if r.revision <= to && match(r.key) {
						each(&r, r.spot(f, at), f == s.log)
					}
					return nil
				})
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// State implements [store.Past].
func (a *archive) State(ctx context.Context, at store.Revision, match func(key []byte) bool, each func(store.Entry) error) error {
	c, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	part, err := c.from(at)
	if err != nil {
		return err
	}
	state := map[string]spot{}
	err = part.walk(ctx, at, match, func(r *raw, s spot, _ bool) {
		switch old, ok := state[string(r.key)]; {
		case ok && old.revision > s.revision:
		default:
			state[string(r.key)] = s
		}
	})
	if err != nil {
		return err
	}
	keys := make([]string, 0, len(state))
	for key, s := range state {
		if !s.deleted {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var buf []byte
	for _, key := range keys {
		var e store.Entry
		if e, buf, err = state[key].entry(key, buf); err != nil {
			return err
		}
		if err := each(e); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// A found is a write that is to be shown.
type found struct {
	key    string
	before spot // revision 0: there was no record
	after  spot
	at     int64
	author store.Author
}

// Writes implements [store.Past].
func (a *archive) Writes(ctx context.Context, q store.PastQuery, each func(store.PastWrite) error) (left int, err error) {
	c, err := a.open(ctx)
	if err != nil {
		return 0, err
	}
	defer c.close()
	q.After = max(q.After, c.span().From)
	part, err := c.from(q.After)
	if err != nil {
		return 0, err
	}
	last, names := map[string]spot{}, map[string]string{}
	text := func(b []byte) string { // one string for equal names
		if s, ok := names[string(b)]; ok {
			return s
		}
		s := string(b)
		names[s] = s
		return s
	}
	var writes []found
	err = part.walk(ctx, q.To, q.Match, func(r *raw, s spot, written bool) {
		key := text(r.key)
		before := last[key]
		if before.deleted {
			before = spot{}
		}
		last[key] = s
		if !written || r.revision <= q.After {
			return
		}
		if len(writes) >= 2*q.Limit {
			left += q.Limit
			writes = slices.Delete(writes, 0, q.Limit)
		}
		writes = append(writes, found{key, before, s, r.at, store.Author{User: text(r.user), Agent: text(r.agent)}})
	})
	if err != nil {
		return 0, err
	}
	if more := len(writes) - q.Limit; more > 0 {
		left += more
		writes = writes[more:]
	}
	var old, now []byte
	for _, f := range writes {
		w := store.PastWrite{Deleted: f.after.deleted}
		if w.Entry, now, err = f.after.entry(f.key, now); err != nil {
			return left, err
		}
		w.At, w.Author = f.at, f.author
		if f.before.revision > 0 {
			if w.Before, old, err = f.before.entry(f.key, old); err != nil {
				return left, err
			}
		}
		if err := each(w); err != nil {
			return left, err
		}
		if ctx.Err() != nil {
			return left, context.Cause(ctx)
		}
	}
	return left, nil
}
