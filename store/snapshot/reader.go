package snapshot

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"math"
	"strings"

	"github.com/sampan-io/sampan/store"
)

// maxName is the largest number of bytes of the name of a file.
const maxName = 1024

// A Reader reads a snapshot. It belongs to one goroutine. The contents that it passes on are checked one by one only:
// before [Reader.Read] has returned without an error, the snapshot may turn out to be damaged or incomplete.
type Reader struct {
	Info Info

	in     io.Reader
	sum    hash.Hash
	offset int64
	number uint64 // of the next frame
	buf    bytes.Buffer
	last   string // key
	count  Summary
}

// Begins reports whether the next bytes are the beginning of a snapshot. It takes none of them.
func Begins(in *bufio.Reader) bool {
	head, _ := in.Peek(len(magic)) // shorter at the end of the input
	return string(head) == magic
}

// NewReader reads the beginning of a snapshot. The error is a [*ForeignError] if the data is not a snapshot, or one
// of a newer program, and a [*DamageError] if it is damaged; otherwise that of in.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{in: in, sum: sha256.New()}
	head, err := r.take(preamble)
	if err != nil && !errors.Is(err, errShort) {
		return nil, err
	}
	if len(head) < len(magic) || string(head[:len(magic)]) != magic {
		return nil, &ForeignError{"it is not a snapshot: a snapshot begins with " + magic}
	}
	if err != nil {
		return nil, r.damage("it ends in its first bytes")
	}
	if v := binary.LittleEndian.Uint32(head[len(magic):]); v == 0 || v > maxVersion {
		return nil, r.damage(fmt.Sprintf("its format version is %d", v))
	} else if v > FormatVersion {
		return nil, &ForeignError{fmt.Sprintf("the snapshot has format version %d, and this program reads versions up to %d: it was written by a newer sampan; use that one", v, FormatVersion)}
	}
	n := binary.LittleEndian.Uint32(head[len(magic)+4:])
	if n > maxInfo {
		return nil, r.damage(fmt.Sprintf("its description has %d bytes, at most %d are possible", n, maxInfo))
	}
	check := crc32.Checksum(head, castagnoli)
	text, err := r.take(int(n) + 4)
	if errors.Is(err, errShort) {
		return nil, r.damage("it ends in its description")
	}
	if err != nil {
		return nil, err
	}
	text, stored := text[:n], binary.LittleEndian.Uint32(text[n:])
	if crc32.Update(check, castagnoli, text) != stored {
		return nil, r.damage("the checksum of its description is wrong")
	}
	if err := json.Unmarshal(text, &r.Info); err != nil {
		return nil, r.damage("its description is not valid: " + err.Error())
	}
	if r.Info.Secrets != Encrypted && r.Info.Secrets != Plain {
		return nil, r.damage(fmt.Sprintf("its description has secrets %q, want %s or %s", r.Info.Secrets, Encrypted, Plain))
	}
	if r.Info.Revision >= maxRevision {
		return nil, &ForeignError{fmt.Sprintf("the snapshot has revision %d, want less than %d: a cluster that is made from it uses higher ones", r.Info.Revision, maxRevision)}
	}
	return r, nil
}

// A Sink receives the contents of a snapshot. A nil function ignores them; an error ends the reading. The data are
// good until the function returns.
type Sink struct {
	Record func(store.Entry) error
	File   func(name string, data []byte) error
}

// Read reads everything to the end of the input, which must be the end of the snapshot. It is called once.
func (r *Reader) Read(to Sink) (Summary, error) {
	for {
		at := r.offset
		sum := r.sum.Sum(nil)
		payload, err := r.frame()
		if err != nil {
			return Summary{}, err
		}
		switch payload[0] {
		case kindRecords:
			err = r.records(at, payload[1:], to.Record)
		case kindFile:
			err = r.file(at, payload[1:], to.File)
		case kindSummary:
			return r.finish(at, payload[1:], sum)
		default:
			err = &DamageError{at, fmt.Sprintf("a frame has the unknown kind %d", payload[0])}
		}
		if err != nil {
			return Summary{}, err
		}
	}
}

// frame reads the payload of the next frame, which is not empty.
func (r *Reader) frame() ([]byte, error) {
	at := r.offset
	head, err := r.take(frameHead)
	if errors.Is(err, errShort) {
		return nil, &DamageError{at, "the end of the snapshot is missing"}
	}
	if err != nil {
		return nil, err
	}
	length := [4]byte(head[:4])
	stored := binary.LittleEndian.Uint32(head[4:])
	n := binary.LittleEndian.Uint32(length[:])
	if n == 0 || n > maxFrame {
		return nil, &DamageError{at, fmt.Sprintf("a frame has %d bytes, want 1 to %d", n, maxFrame)}
	}
	payload, err := r.take(int(n))
	if errors.Is(err, errShort) {
		return nil, &DamageError{at, fmt.Sprintf("the snapshot ends in the middle of a frame of %d bytes", n)}
	}
	if err != nil {
		return nil, err
	}
	if checksum(r.number, length, payload) != stored {
		return nil, &DamageError{at, "the checksum of a frame is wrong"}
	}
	r.number++
	return payload, nil
}

// errShort is returned for an input that ends too early.
var errShort = errors.New("too short")

// take reads n bytes, which are good until the next call. If the input ends before, it returns the bytes until there,
// and errShort.
func (r *Reader) take(n int) ([]byte, error) {
	r.buf.Reset()
	got, err := io.CopyN(&r.buf, r.in, int64(n)) // the buffer grows with what arrives
	_, _ = r.sum.Write(r.buf.Bytes())
	r.offset += got
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return r.buf.Bytes(), errShort
	}
	if err != nil {
		return nil, fmt.Errorf("reading the snapshot at byte offset %d: %w", r.offset, err)
	}
	return r.buf.Bytes(), nil
}

// damage returns an error about the beginning of the snapshot.
func (*Reader) damage(reason string) error { return &DamageError{0, reason} }

var errMalformed = errors.New("the checksum of a frame is right, but it does not decode")

func (r *Reader) records(at int64, b []byte, each func(store.Entry) error) error {
	for len(b) > 0 {
		e, rest, err := decodeEntry(b)
		if err == nil {
			err = checkEntry(e, r.last, r.Info.Revision)
		}
		if err != nil {
			return &DamageError{at, err.Error()}
		}
		b, r.last = rest, e.Key
		r.count.Records++
		r.count.Bytes += int64(len(e.Key) + len(e.Data))
		if each == nil {
			continue
		}
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) file(at int64, b []byte, each func(name string, data []byte) error) error {
	n, size := binary.Uvarint(b)
	if size <= 0 || n == 0 || n > maxName || n > uint64(len(b)-size) {
		return &DamageError{at, errMalformed.Error()}
	}
	r.count.Files++
	if each == nil {
		return nil
	}
	return each(string(b[size:size+int(n)]), b[size+int(n):])
}

// finish compares the summary with the contents.
func (r *Reader) finish(at int64, text, sum []byte) (Summary, error) {
	var s Summary
	if err := json.Unmarshal(text, &s); err != nil {
		return Summary{}, &DamageError{at, "the summary is not valid: " + err.Error()}
	}
	r.count.SHA256, r.count.Unreadable = hex.EncodeToString(sum), s.Unreadable
	if s != r.count {
		return Summary{}, &DamageError{at, fmt.Sprintf("the summary has %d records, %d bytes, %d files and SHA-256 %s, and the snapshot has %d, %d, %d and %s",
			s.Records, s.Bytes, s.Files, s.SHA256, r.count.Records, r.count.Bytes, r.count.Files, r.count.SHA256)}
	}
	end := r.offset
	more, err := r.take(1)
	if err == nil && len(more) > 0 {
		return Summary{}, &DamageError{end, "there is more behind the end of the snapshot"}
	}
	if !errors.Is(err, errShort) {
		return Summary{}, err
	}
	return s, nil
}

// decodeEntry reads the record at the start of b.
func decodeEntry(b []byte) (e store.Entry, rest []byte, err error) {
	var numbers [3]uint64
	for i := range numbers {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			return e, nil, errMalformed
		}
		numbers[i], b = n, b[size:]
	}
	e.Revision, e.Created = store.Revision(numbers[0]), store.Revision(numbers[1])
	if numbers[2] > math.MaxInt64 {
		return e, nil, errMalformed
	}
	e.Expires = int64(numbers[2])
	var pieces [2][]byte
	for i := range pieces {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return e, nil, errMalformed
		}
		end := size + int(n)
		pieces[i], b = b[size:end:end], b[end:]
	}
	e.Key, e.Data = string(pieces[0]), pieces[1]
	return e, b, nil
}

// checkEntry returns an error if a record cannot follow the one with the key last in a snapshot of that revision.
func checkEntry(e store.Entry, last string, revision store.Revision) error {
	switch {
	case e.Data == nil:
		return fmt.Errorf("record %q has no value", e.Key)
	case e.Key == "" || strings.HasPrefix(e.Key, "/") || strings.HasSuffix(e.Key, "/"):
		return fmt.Errorf("bad key %q", e.Key)
	case len(e.Key)+len(e.Data) > maxValue:
		return fmt.Errorf("record %q has %d bytes, want at most %d", e.Key, len(e.Key)+len(e.Data), maxValue)
	case e.Key <= last:
		return fmt.Errorf("record %q comes after %q, want rising keys", e.Key, last)
	case e.Created == 0 || e.Created > e.Revision || e.Revision > revision:
		return fmt.Errorf("record %q has revision %d and was made at %d, want 1 to %d", e.Key, e.Revision, e.Created, revision)
	}
	return nil
}
