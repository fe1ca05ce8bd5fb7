package codec

import (
	"bufio"
	"encoding/binary"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Tags of metav1.WatchEvent and of the runtime.RawExtension in it.
const (
	tagEventType   = 1<<3 | 2
	tagEventObject = 2<<3 | 2
	tagRawBytes    = 1<<3 | 2
)

// WriteItemEvent writes a watch event about a stored object: its shared bytes in a
// frame. In JSON a frame is a line; in protobuf it is a length of four bytes, most
// significant first, and a WatchEvent.
func WriteItemEvent(w *bufio.Writer, e Encoding, t watch.EventType, i *Item) error {
	if e != Protobuf {
		b, err := i.JSON()
		if err != nil {
			return err
		}
		return writeJSONEvent(w, t, b)
	}
	size := i.ProtobufSize()
	if err := startProtobufEvent(w, t, size); err != nil {
		return err
	}
	// Into the writer's own buffer if there is room, otherwise through one of
	// its own.
	_, err := w.Write(i.AppendProtobuf(w.AvailableBuffer()))
	return err
}

// WriteEvent writes a watch event about an object that is not stored: a bookmark, an
// error, a table.
func WriteEvent(w *bufio.Writer, m Media, t watch.EventType, obj runtime.Object) error {
	b, err := Encode(m, obj)
	if err != nil {
		return err
	}
	if m.Encoding != Protobuf {
		return writeJSONEvent(w, t, b)
	}
	if err := startProtobufEvent(w, t, len(b)); err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func writeJSONEvent(w *bufio.Writer, t watch.EventType, object []byte) error {
	// A bufio.Writer keeps its first error and gives it back every time.
	_, _ = w.WriteString(`{"type":"`)
	_, _ = w.WriteString(string(t))
	_, _ = w.WriteString(`","object":`)
	_, _ = w.Write(object)
	_, err := w.WriteString("}\n")
	return err
}

// startProtobufEvent writes a frame up to the object, which has size bytes and is all
// that is missing.
func startProtobufEvent(w *bufio.Writer, t watch.EventType, size int) error {
	extension := 1 + uvarintSize(size) + size
	event := 1 + uvarintSize(len(t)) + len(t) + 1 + uvarintSize(extension) + extension
	var room [64]byte
	b := binary.BigEndian.AppendUint32(room[:0], uint32(event))
	b = append(b, tagEventType)
	b = binary.AppendUvarint(b, uint64(len(t)))
	b = append(b, t...)
	b = append(b, tagEventObject)
	b = binary.AppendUvarint(b, uint64(extension))
	b = append(b, tagRawBytes)
	b = binary.AppendUvarint(b, uint64(size))
	_, err := w.Write(b)
	return err
}
