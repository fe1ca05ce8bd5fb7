package client

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// maxFrame is the most that one watch event or list item may take: far above
// what servers store (etcd's limit is 1.5 MiB by default), so that a broken
// length cannot ask for all memory.
const maxFrame = 64 << 20

// decodeEvents reads the events of a watch until the body ends.
func (c *REST) decodeEvents(resp *http.Response) iter.Seq2[watch.Event, error] {
	next := c.jsonEvents(resp.Body)
	if mediaType(resp) == mediaProtobuf {
		next = c.protobufEvents(resp.Body)
	}
	return func(yield func(watch.Event, error) bool) {
		for {
			kind, raw, err := next()
			switch {
			case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
				return // the caller says that the watch ended; nothing whole was lost
			case err != nil:
				yield(watch.Event{}, fmt.Errorf("client: read watch: %w", err))
				return
			}
			obj, err := c.decode("", raw, schema.GroupVersionKind{})
			if err != nil {
				yield(watch.Event{}, fmt.Errorf("client: read watch: %w", err))
				return
			}
			if watch.EventType(kind) == watch.Error {
				yield(watch.Event{}, apierrors.FromObject(obj))
				return
			}
			if !yield(watch.Event{Type: watch.EventType(kind), Object: obj}, nil) {
				return
			}
		}
	}
}

// An eventReader returns the next event's type and encoded object, which is valid
// until the next call.
type eventReader func() (kind string, object []byte, err error)

func (c *REST) jsonEvents(body io.Reader) eventReader {
	d := json.NewDecoder(body)
	return func() (string, []byte, error) {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		err := d.Decode(&e)
		return e.Type, e.Object, err
	}
}

// protobufEvents reads frames of four bytes of length and a metav1.WatchEvent.
func (c *REST) protobufEvents(body io.Reader) eventReader {
	r := bufio.NewReader(body)
	var buf []byte
	return func() (string, []byte, error) {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return "", nil, err
		}
		n := binary.BigEndian.Uint32(head[:])
		if n > maxFrame {
			return "", nil, fmt.Errorf("an event of %d bytes, want at most %d", n, maxFrame)
		}
		buf = sized(buf, int(n))
		if _, err := io.ReadFull(r, buf); err != nil {
			return "", nil, err
		}
		var e metav1.WatchEvent
		if err := e.Unmarshal(buf); err != nil {
			return "", nil, err
		}
		return e.Type, e.Object.Raw, nil
	}
}

// Field numbers of runtime.Unknown and of every list message of k8s.io/api.
const (
	unknownTypeMeta = 1
	unknownRaw      = 2
	listMeta        = 1
	listItems       = 2
)

// readProtobufList reads a list in its envelope without holding it whole.
func readProtobufList(body io.Reader) (items []runtime.Object, meta metav1.ListMeta, err error) {
	r := &fieldReader{r: bufio.NewReaderSize(body, 64<<10)}
	head := make([]byte, len(envelope))
	if _, err := io.ReadFull(r.r, head); err != nil {
		return nil, meta, noEOF(err)
	}
	if string(head) != envelope {
		return nil, meta, errors.New("a protobuf body does not begin with k8s\\0")
	}
	var kind schema.GroupVersionKind
	err = r.each(-1, func(field int, n int64) error {
		switch field {
		case unknownTypeMeta:
			raw, err := r.bytes(n)
			if err != nil {
				return err
			}
			var t runtime.TypeMeta
			if err := t.Unmarshal(raw); err != nil {
				return err
			}
			kind = t.GroupVersionKind()
			if !strings.HasSuffix(kind.Kind, "List") {
				return fmt.Errorf("the server answered with a %s, want a list", kind.Kind)
			}
			kind.Kind = strings.TrimSuffix(kind.Kind, "List")
		case unknownRaw:
			if kind.Kind == "" {
				return errors.New("the list comes before its kind")
			}
			return r.each(n, func(field int, n int64) error {
				raw, err := r.bytes(n)
				if err != nil {
					return err
				}
				switch field {
				case listMeta:
					return meta.Unmarshal(raw)
				case listItems:
					obj, err := unmarshal(kind, raw)
					if err != nil {
						return err
					}
					items = append(items, obj)
				}
				return nil
			})
		default:
			_, err := r.bytes(n)
			return err
		}
		return nil
	})
	return items, meta, err
}

// A fieldReader reads the fields of nested protobuf messages from a stream.
type fieldReader struct {
	r    *bufio.Reader
	read int64 // bytes consumed by varint and bytes
	buf  []byte
}

// each calls f for each length-delimited field of a message of size bytes, or of
// one that goes on to the end of the stream if size is negative. f must consume
// the n bytes of the field.
func (r *fieldReader) each(size int64, f func(field int, n int64) error) error {
	end := r.read + size
	for size < 0 || r.read < end {
		tag, err := r.varint()
		if size < 0 && errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return noEOF(err)
		}
		n, err := r.varint()
		if err != nil {
			return noEOF(err)
		}
		switch tag & 7 {
		case 0: // a varint, which no message here needs
		case 2:
			if n > maxFrame && size >= 0 || int64(n) < 0 {
				return fmt.Errorf("a field of %d bytes, want at most %d", n, maxFrame)
			}
			if err := f(int(tag>>3), int64(n)); err != nil {
				return noEOF(err)
			}
		default:
			return fmt.Errorf("unexpected protobuf wire type %d", tag&7)
		}
	}
	if size >= 0 && r.read != end {
		return errors.New("a protobuf message is longer than it says")
	}
	return nil
}

func (r *fieldReader) varint() (uint64, error) {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		b, err := r.r.ReadByte()
		if err != nil {
			if shift > 0 {
				err = noEOF(err)
			}
			return 0, err
		}
		r.read++
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, errors.New("a protobuf number is too long")
}

// bytes returns the next n bytes, which are valid until the next call.
func (r *fieldReader) bytes(n int64) ([]byte, error) {
	if n > maxFrame {
		return nil, fmt.Errorf("a field of %d bytes, want at most %d", n, maxFrame)
	}
	r.buf = sized(r.buf, int(n))
	m, err := io.ReadFull(r.r, r.buf)
	r.read += int64(m)
	return r.buf, noEOF(err)
}

// noEOF says of the end of a stream that it came too early.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// sized returns a slice of n bytes, in buf's memory if there is room.
func sized(buf []byte, n int) []byte {
	if cap(buf) < n {
		return make([]byte, n, n+n/2)
	}
	return buf[:n]
}
