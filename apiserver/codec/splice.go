package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Tags (field number and wire type) of the protobuf messages that we take apart.
const (
	tagMetadata        = 1<<3 | 2 // of every kind: its ObjectMeta
	tagResourceVersion = 6<<3 | 2 // of ObjectMeta
	tagLabels          = 11<<3 | 2
	tagTypeMeta        = 1<<3 | 2 // of runtime.Unknown
	tagRaw             = 2<<3 | 2
	tagContentEncoding = 3<<3 | 2
	tagContentType     = 4<<3 | 2
)

// magic begins every Kubernetes protobuf body.
const magic = "k8s\x00"

// errTruncated is the fault of bytes that end in the middle of a field.
var errTruncated = errors.New("protobuf ends in the middle of a field")

// field reads the field at the start of b: its tag, its payload (for a
// length-delimited field its contents) and the bytes after it.
func field(b []byte) (tag uint64, payload, rest []byte, err error) {
	tag, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, nil, errTruncated
	}
	b = b[n:]
	switch tag & 7 {
	case 0: // varint
		_, n = binary.Uvarint(b)
		if n <= 0 {
			return 0, nil, nil, errTruncated
		}
	case 1: // 64 bits
		n = 8
	case 2: // a length and as many bytes
		l, k := binary.Uvarint(b)
		if k <= 0 || l > uint64(len(b)-k) {
			return 0, nil, nil, errTruncated
		}
		return tag, b[k : k+int(l)], b[k+int(l):], nil
	case 5: // 32 bits
		n = 4
	default:
		return 0, nil, nil, fmt.Errorf("protobuf has an unknown wire type %d", tag&7)
	}
	if n > len(b) {
		return 0, nil, nil, errTruncated
	}
	return tag, b[:n], b[n:], nil
}

// openEnvelope returns the object's bytes in a Kubernetes protobuf envelope.
func openEnvelope(data []byte) (body []byte, err error) {
	if !bytes.HasPrefix(data, []byte(magic)) {
		return nil, errors.New(`not a Kubernetes protobuf: it does not begin with "k8s\x00"`)
	}
	for rest := data[len(magic):]; len(rest) > 0; {
		var tag uint64
		var payload []byte
		if tag, payload, rest, err = field(rest); err != nil {
			return nil, err
		}
		if tag == tagRaw {
			return payload, nil
		}
	}
	return nil, errors.New("the protobuf envelope has no object in it")
}

// splitBody returns the metadata at the start of an object's protobuf bytes and
// what follows it.
func splitBody(body []byte) (meta, rest []byte, err error) {
	tag, meta, rest, err := field(body)
	if err != nil {
		return nil, nil, err
	}
	if tag != tagMetadata {
		return nil, nil, fmt.Errorf("the object's protobuf begins with tag %d instead of its metadata", tag)
	}
	return meta, rest, nil
}

// splicedSize returns the length of what appendSpliced appends.
func splicedSize(meta, rest []byte, rv string) int {
	inner := len(meta)
	if rv != "" {
		inner += 2 + len(rv)
	}
	return 1 + uvarintSize(inner) + inner + len(rest)
}

// appendSpliced appends an object's protobuf with rv as its resourceVersion. If a field is
// duplicate the last one counts (protobuf encoding, "last one wins"), so the new one goes to the
// end of the metadata.
func appendSpliced(dst, meta, rest []byte, rv string) []byte {
	return append(appendSplicedMeta(dst, meta, rv), rest...)
}

// appendSplicedMeta appends the part up to rest.
func appendSplicedMeta(dst, meta []byte, rv string) []byte {
	inner := len(meta)
	if rv != "" {
		inner += 2 + len(rv)
	}
	dst = append(dst, tagMetadata)
	dst = binary.AppendUvarint(dst, uint64(inner))
	dst = append(dst, meta...)
	if rv != "" {
		// A revision has at most 20 digits: its length is one byte.
		dst = append(dst, tagResourceVersion, byte(len(rv)))
		dst = append(dst, rv...)
	}
	return dst
}

func uvarintSize(n int) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}

// SpliceJSON returns a copy of the JSON of an object with rv as its
// metadata.resourceVersion, whether it had one or not.
func SpliceJSON(object []byte, rv string) ([]byte, error) {
	from, to, err := jsonMember(object, 0, "metadata")
	if err != nil {
		return nil, err
	}
	if from < 0 || object[from] != '{' {
		return nil, errors.New("the object's JSON has no metadata")
	}
	out := make([]byte, 0, len(object)+len(`"resourceVersion":"",`)+len(rv))
	at, end, err := jsonMember(object[:to], from, "resourceVersion")
	switch {
	case err != nil:
		return nil, err
	case at >= 0:
		out = append(out, object[:at]...)
		out = strconv.AppendQuote(out, rv)
		return append(out, object[end:]...), nil
	}
	out = append(out, object[:from+1]...)
	out = append(out, `"resourceVersion":`...)
	out = strconv.AppendQuote(out, rv)
	if object[skipSpace(object, from+1)] != '}' {
		out = append(out, ',')
	}
	return append(out, object[from+1:]...), nil
}

// jsonMember finds the value of the member called name in the JSON object that
// starts at b[at]: b[from:to]. If there is none, from is -1.
func jsonMember(b []byte, at int, name string) (from, to int, err error) {
	i := skipSpace(b, at)
	if i >= len(b) || b[i] != '{' {
		return -1, -1, errors.New("not a JSON object")
	}
	for i++; ; {
		i = skipSpace(b, i)
		if i < len(b) && b[i] == ',' {
			i = skipSpace(b, i+1)
		}
		if i >= len(b) {
			return -1, -1, errJSON
		}
		if b[i] == '}' {
			return -1, -1, nil
		}
		key := i
		if i = skipValue(b, i); i < 0 || b[key] != '"' {
			return -1, -1, errJSON
		}
		isIt := string(b[key+1:i-1]) == name
		if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
			return -1, -1, errJSON
		}
		from = skipSpace(b, i+1)
		if to = skipValue(b, from); to < 0 {
			return -1, -1, errJSON
		}
		if isIt {
			return from, to, nil
		}
		i = to
	}
}

var errJSON = errors.New("broken JSON")

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns where the JSON value that starts at b[i] ends, or -1.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		for i++; i < len(b); i++ {
			switch b[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
		return -1
	case '{', '[':
		for depth := 0; i < len(b); {
			switch b[i] {
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			case '"':
				if i = skipValue(b, i); i < 0 {
					return -1
				}
				continue
			}
			i++
		}
		return -1
	default:
		start := i
		for i < len(b) && strings.IndexByte(",]} \n\t\r:", b[i]) < 0 {
			i++
		}
		if i == start {
			return -1
		}
		return i
	}
}
