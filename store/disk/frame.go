package disk

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/sampan-io/sampan/store"
)

// FormatVersion is the newest version of the files that this program writes and reads. It reads older ones as well.
// Version 2 added the deadlines of entries. Version 3 added stamps and purged entries, which only files with history
// have: a log without history is written as plainVersion, which older programs read.
const (
	FormatVersion = 3
	plainVersion  = 2
)

const (
	magic      = "SAMPANST"
	headerSize = 40
	frameSize  = 16 // of a frame's own header

	// maxPayload is the largest believable length field.
	maxPayload = 1 << 30
)

// Kinds of files.
const (
	kindLog      = 1
	kindSnapshot = 2
)

// Kinds of payloads: their first byte.
const (
	payloadBatch   = 1 // entries
	payloadReserve = 2 // a ceiling
	payloadClosed  = 3 // nothing: the log was closed cleanly, or the snapshot is complete
	payloadStamped = 4 // entries with times and authors, see stamp.go; since version 3
)

// hasEntries reports whether a payload of that kind has entries.
func hasEntries(kind byte) bool { return kind == payloadBatch || kind == payloadStamped }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A CorruptError says where a file is damaged. Nothing was changed.
type CorruptError struct {
	File   string
	Offset int64
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged at byte offset %d: %s. Nothing was changed. Restore the data directory from a backup, or move it away to start with an empty cluster", e.File, e.Offset, e.Reason)
}

// A header begins every file.
type header struct {
	version uint32
	kind    uint32
	number  uint64 // of the segment; of a snapshot: the last segment that is in it
	first   uint64 // sequence of the first frame; of a snapshot: of the first frame after it
	salt    uint32 // makes frames of other files unrecognizable, should their bytes turn up in this one
}

func (h header) encode() []byte {
	b := make([]byte, 0, headerSize)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, h.version)
	b = binary.LittleEndian.AppendUint32(b, h.kind)
	b = binary.LittleEndian.AppendUint64(b, h.number)
	b = binary.LittleEndian.AppendUint64(b, h.first)
	b = binary.LittleEndian.AppendUint32(b, h.salt)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeHeader(file string, b []byte) (header, error) {
	if len(b) < headerSize || string(b[:8]) != magic {
		return header{}, &CorruptError{file, 0, "it does not begin as a file of a sampan store"}
	}
	h := header{
		version: binary.LittleEndian.Uint32(b[8:]),
		kind:    binary.LittleEndian.Uint32(b[12:]),
		number:  binary.LittleEndian.Uint64(b[16:]),
		first:   binary.LittleEndian.Uint64(b[24:]),
		salt:    binary.LittleEndian.Uint32(b[32:]),
	}
	if crc32.Checksum(b[:headerSize-4], castagnoli) != binary.LittleEndian.Uint32(b[36:]) {
		return header{}, &CorruptError{file, 0, "the checksum of the header is wrong"}
	}
	if h.version > FormatVersion {
		return header{}, fmt.Errorf("%s has format version %d and this program knows versions up to %d: it was written by a newer sampan. Use that one, or another data directory", file, h.version, FormatVersion)
	}
	return h, nil
}

// beginFrame makes room for a frame's header at the end of b.
func beginFrame(b []byte, payload byte) []byte {
	return append(append(b, make([]byte, frameSize)...), payload)
}

// endFrame completes the frame that begins at start and goes to the end of b.
func endFrame(b []byte, start int, salt uint32, seq uint64) {
	f := b[start:]
	binary.LittleEndian.PutUint32(f, uint32(len(f)-frameSize))
	binary.LittleEndian.PutUint64(f[8:], seq)
	binary.LittleEndian.PutUint32(f[4:], checksum(f, salt))
}

// checksum is over the whole frame but the checksum itself.
func checksum(frame []byte, salt uint32) uint32 {
	c := crc32.Update(salt, castagnoli, frame[:4])
	return crc32.Update(c, castagnoli, frame[8:])
}

// Flags of an entry.
const (
	flagDeleted = 1
	flagExpires = 2 // since version 2
	flagPurged  = 4 // since version 3, in files of the history: the data was removed
	allFlags    = flagDeleted | flagExpires | flagPurged
)

// appendEntry appends an entry as files of that format version have it, without a stamp.
func appendEntry(b []byte, version uint32, e store.Entry) []byte {
	flag := byte(0)
	if e.Data == nil {
		flag = flagDeleted
	} else if e.Expires > 0 && version >= 2 {
		flag = flagExpires
	}
	b = append(b, flag)
	b = binary.AppendUvarint(b, uint64(e.Revision))
	b = binary.AppendUvarint(b, uint64(e.Created))
	b = binary.AppendUvarint(b, uint64(len(e.Key)))
	b = append(b, e.Key...)
	if flag&flagExpires != 0 {
		b = binary.AppendUvarint(b, uint64(e.Expires))
	}
	if flag&flagDeleted == 0 {
		b = binary.AppendUvarint(b, uint64(len(e.Data)))
		b = append(b, e.Data...)
	}
	return b
}

// A raw is an entry in the buffer that it was read into.
type raw struct {
	key, data         []byte
	deleted, purged   bool
	created, revision store.Revision
	expires           int64

	at          int64 // when it was accepted, in Unix milliseconds; 0 if it has no stamp
	user, agent []byte

	// Where it is in its payload: it begins at begin, its flags are at flags, the length of its data at length if it has
	// data, and it ends at end.
	begin, flags, length, end int
}

func (r *raw) entry() store.Entry {
	return store.Entry{Key: string(r.key), Data: r.data, Created: r.created, Revision: r.revision, Expires: r.expires}
}

var errMalformed = errors.New("its checksum is right, but it does not decode")

// decodeEntries calls each for the entries of a payload that has entries.
func decodeEntries(payload []byte, each func(raw) error) error {
	c := cursor{b: payload, at: 1}
	var stamps stamps
	if payload[0] == payloadStamped && !stamps.decode(&c) {
		return errMalformed
	}
	for c.at < len(payload) {
		e := raw{begin: c.at}
		if payload[0] == payloadStamped {
			stamps.next(&c, &e)
		}
		e.flags = c.at
		flag := c.byte()
		e.deleted, e.purged = flag&flagDeleted != 0, flag&flagPurged != 0
		if flag&^allFlags != 0 || e.deleted && flag != flagDeleted {
			return errMalformed
		}
		e.revision, e.created = store.Revision(c.number()), store.Revision(c.number())
		if e.key = c.piece(); len(e.key) == 0 {
			return errMalformed
		}
		if flag&flagExpires != 0 {
			if e.expires = int64(c.number()); e.expires <= 0 {
				return errMalformed
			}
		}
		e.length = c.at
		if !e.deleted && !e.purged {
			e.data = c.piece()
		}
		if e.end = c.at; c.bad {
			return errMalformed
		}
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}

// A cursor reads a payload. Reads past the end return zeros and make it bad.
type cursor struct {
	b   []byte
	at  int
	bad bool
}

func (c *cursor) fail() {
	c.at, c.bad = len(c.b), true
}

func (c *cursor) byte() byte {
	if c.at >= len(c.b) {
		c.fail()
		return 0
	}
	c.at++
	return c.b[c.at-1]
}

func (c *cursor) number() uint64 {
	n, size := binary.Uvarint(c.b[c.at:])
	if size <= 0 {
		c.fail()
		return 0
	}
	c.at += size
	return n
}

func (c *cursor) signed() int64 {
	n, size := binary.Varint(c.b[c.at:])
	if size <= 0 {
		c.fail()
		return 0
	}
	c.at += size
	return n
}

// piece reads bytes with their length before them. It is not nil unless it is bad.
func (c *cursor) piece() []byte {
	n := c.number()
	if c.bad || n > uint64(len(c.b)-c.at) {
		c.fail()
		return nil
	}
	p := c.b[c.at : c.at+int(n) : c.at+int(n)]
	c.at += int(n)
	return p
}

// A reader goes through the frames of a file.
type reader struct {
	file string
	in   *bufio.Reader
	salt uint32
	seq  uint64 // that the next frame must have
	off  int64  // where it begins
	size int64
	buf  []byte
}

// badFrame says why there is no frame at the reader's offset.
type badFrame string

func (b badFrame) Error() string { return string(b) }

// next returns the payload of the next frame, which is good until the call after
// that. At the end of the file the error is io.EOF, and a badFrame where there
// is something else; then the reader still stands before it.
func (r *reader) next() ([]byte, error) {
	left := r.size - r.off
	if left == 0 {
		return nil, io.EOF
	}
	if left < frameSize {
		return nil, badFrame("the file ends in the middle of a record")
	}
	head, err := r.in.Peek(frameSize)
	if err != nil {
		return nil, fmt.Errorf("reading %s at byte offset %d: %w", r.file, r.off, err)
	}
	n := int64(binary.LittleEndian.Uint32(head))
	switch {
	case n == 0:
		return nil, badFrame("there is no record")
	case n > maxPayload || n > left-frameSize:
		return nil, badFrame("a record is longer than the file")
	case binary.LittleEndian.Uint64(head[8:]) != r.seq:
		return nil, badFrame(fmt.Sprintf("a record has number %d, expected %d", binary.LittleEndian.Uint64(head[8:]), r.seq))
	}
	total := int(frameSize + n)
	if cap(r.buf) < total {
		r.buf = make([]byte, max(total, 2*cap(r.buf)))
	}
	frame := r.buf[:total]
	if _, err := io.ReadFull(r.in, frame); err != nil {
		return nil, fmt.Errorf("reading %s at byte offset %d: %w", r.file, r.off, err)
	}
	if checksum(frame, r.salt) != binary.LittleEndian.Uint32(frame[4:]) {
		return nil, badFrame("the checksum of a record is wrong")
	}
	r.off += int64(total)
	r.seq++
	return frame[frameSize:], nil
}

// readHeader reads the header of a file and returns a reader of its frames.
func readHeader(file string, in io.Reader, size int64) (*reader, header, error) {
	b := make([]byte, headerSize)
	if n, err := io.ReadFull(in, b); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, header{}, fmt.Errorf("reading %s: %w", file, err)
	} else if n < headerSize {
		return nil, header{}, &CorruptError{file, 0, fmt.Sprintf("it has %d bytes, which is less than a header", n)}
	}
	h, err := decodeHeader(file, b)
	if err != nil {
		return nil, header{}, err
	}
	return &reader{file: file, in: bufio.NewReaderSize(in, 1<<17), salt: h.salt, seq: h.first, off: headerSize, size: size}, h, nil
}

// An end is how a run through a segment ended.
type end struct {
	at   int64 // where the next frame goes
	last int64 // where the last frame begins; 0 if there is none
	torn int64 // bytes behind at which are not zero: a crash left them
	seq  uint64
}

// scan calls each for every payload of a segment. Of the newest one, the last
// frame may be torn; others must be followed by nothing but zeros. What is wrong
// is a *CorruptError.
func scan(r *reader, newest bool, tail func(off int64) ([]byte, error), each func(payload []byte) error) (end, error) {
	last := int64(0)
	for {
		at := r.off
		payload, err := r.next()
		var bad badFrame
		switch {
		case errors.Is(err, io.EOF):
			return end{at: r.off, last: last, seq: r.seq}, nil
		case errors.As(err, &bad):
			e, err := r.judge(bad, newest, tail)
			e.last = last
			return e, err
		case err != nil:
			return end{}, err
		}
		last = at
		if err := each(payload); errors.Is(err, errMalformed) {
			return end{}, &CorruptError{r.file, at, err.Error()}
		} else if err != nil {
			return end{}, err
		}
	}
}

// judge distinguishes the end of the log and a torn frame from damage.
func (r *reader) judge(bad badFrame, newest bool, tail func(off int64) ([]byte, error)) (end, error) {
	rest, err := tail(r.off)
	if err != nil {
		return end{}, fmt.Errorf("reading %s at byte offset %d: %w", r.file, r.off, err)
	}
	used := bytes.TrimRight(rest, "\x00")
	if len(used) == 0 {
		return end{at: r.off, seq: r.seq}, nil
	}
	if !newest {
		return end{}, &CorruptError{r.file, r.off, string(bad)}
	}
	if at, found := intact(rest, r.salt, r.seq); found {
		return end{}, &CorruptError{r.file, r.off, fmt.Sprintf("%s, though an intact one follows at %d", bad, r.off+at)}
	}
	return end{at: r.off, torn: int64(len(used)), seq: r.seq}, nil
}

// intact looks for a frame with a higher sequence than the one that should stand
// at the beginning.
func intact(b []byte, salt uint32, seq uint64) (int64, bool) {
	most := seq + uint64(len(b)/frameSize)
	for i := 1; i+frameSize < len(b); i++ {
		s := binary.LittleEndian.Uint64(b[i+8:])
		if s <= seq || s > most {
			continue
		}
		n := int(binary.LittleEndian.Uint32(b[i:]))
		if n == 0 || n > len(b)-i-frameSize {
			continue
		}
		if f := b[i : i+frameSize+n]; checksum(f, salt) == binary.LittleEndian.Uint32(f[4:]) {
			return int64(i), true
		}
	}
	return 0, false
}
