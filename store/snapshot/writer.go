package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/sampan-io/sampan/store"
)

// A Writer writes a snapshot. It belongs to one goroutine. Without [Writer.Close] the snapshot is not complete, and
// no reader takes it for one.
type Writer struct {
	out    io.Writer
	sum    hash.Hash
	number uint64 // of the next frame
	buf    []byte // the frame that is being filled; empty if there is none
	last   string // key
	count  Summary
	info   Info
	err    error // of an earlier call; it is final
}

// NewWriter writes the beginning of a snapshot.
func NewWriter(out io.Writer, info Info) (*Writer, error) {
	if info.Secrets != Encrypted && info.Secrets != Plain {
		return nil, fmt.Errorf("snapshot: Info.Secrets must be %s or %s, got %q", Encrypted, Plain, info.Secrets)
	}
	text, err := json.Marshal(info)
	if err != nil {
		return nil, err
	}
	if len(text) > maxInfo {
		return nil, fmt.Errorf("snapshot: the info has %d bytes, want at most %d", len(text), maxInfo)
	}
	b := binary.LittleEndian.AppendUint32([]byte(magic), FormatVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	b = append(b, text...)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	w := &Writer{out: out, sum: sha256.New(), info: info}
	w.write(b)
	return w, w.err
}

// Add adds a record. Keys have to rise.
func (w *Writer) Add(e store.Entry) error {
	if w.err != nil {
		return w.err
	}
	if err := checkEntry(e, w.last, w.info.Revision); err != nil {
		w.err = fmt.Errorf("snapshot: %w", err)
		return w.err
	}
	w.last = e.Key
	w.count.Records++
	w.count.Bytes += int64(len(e.Key) + len(e.Data))
	size := len(e.Key) + len(e.Data) + 5*binary.MaxVarintLen64
	if len(w.buf) > 0 && len(w.buf)+size > usualFrame {
		w.flush()
	}
	if len(w.buf) == 0 {
		w.begin(kindRecords)
	}
	b := binary.AppendUvarint(w.buf, uint64(e.Revision))
	b = binary.AppendUvarint(b, uint64(e.Created))
	b = binary.AppendUvarint(b, uint64(e.Expires))
	b = binary.AppendUvarint(b, uint64(len(e.Key)))
	b = append(b, e.Key...)
	b = binary.AppendUvarint(b, uint64(len(e.Data)))
	w.buf = append(b, e.Data...)
	return w.err
}

// AddFile adds a file of the cluster, such as one with keys. Name is a path with slashes.
func (w *Writer) AddFile(name string, data []byte) error {
	if w.err != nil {
		return w.err
	}
	if name == "" || len(name) > maxName || len(data) > maxValue {
		w.err = fmt.Errorf("snapshot: file %q of %d bytes: want a name and at most %d bytes", name, len(data), maxValue)
		return w.err
	}
	w.flush()
	w.begin(kindFile)
	w.buf = binary.AppendUvarint(w.buf, uint64(len(name)))
	w.buf = append(w.buf, name...)
	w.buf = append(w.buf, data...)
	w.count.Files++
	w.flush()
	return w.err
}

// Close writes the end, with the number of records that were left out because they are unreadable.
func (w *Writer) Close(unreadable int) (Summary, error) {
	w.flush()
	w.count.Unreadable = unreadable
	w.count.SHA256 = hex.EncodeToString(w.sum.Sum(nil))
	text, err := json.Marshal(w.count)
	if err = errors.Join(w.err, err); err != nil {
		return Summary{}, err
	}
	w.begin(kindSummary)
	w.buf = append(w.buf, text...)
	w.flush()
	if w.err != nil {
		return Summary{}, w.err
	}
	w.err = errors.New("snapshot: the snapshot is complete")
	return w.count, nil
}

// begin begins a frame.
func (w *Writer) begin(kind byte) { w.buf = append(w.buf[:0], 0, 0, 0, 0, 0, 0, 0, 0, kind) }

// flush writes the frame that is being filled, if there is one.
func (w *Writer) flush() {
	if len(w.buf) == 0 {
		return
	}
	payload := w.buf[frameHead:]
	length := [4]byte{}
	binary.LittleEndian.PutUint32(length[:], uint32(len(payload)))
	copy(w.buf, length[:])
	binary.LittleEndian.PutUint32(w.buf[4:], checksum(w.number, length, payload))
	w.number++
	w.write(w.buf)
	w.buf = w.buf[:0]
}

func (w *Writer) write(b []byte) {
	if w.err != nil {
		return
	}
	_, _ = w.sum.Write(b) // a hash returns no error
	_, w.err = w.out.Write(b)
}
