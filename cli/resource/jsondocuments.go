package resource

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	configuration "github.com/sampan-io/sampan/internal/document"
)

// A recorder keeps the bytes read until they are let go, and knows where that stands.
type recorder struct {
	r      io.Reader
	buf    []byte
	head   int   // what lies before it was let go
	offset int64 // of buf[head] in the input
	line   int   // of buf[head], from 1
	column int   // of buf[head], from 1
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if len(r.buf)-r.head+n > maxDocument {
		return 0, fmt.Errorf("a document or an item of a List is larger than %d MB", maxDocument>>20)
	}
	if r.head > len(r.buf)/2 {
		r.buf = r.buf[:copy(r.buf, r.buf[r.head:])]
		r.head = 0
		const idle = 1 << 20 // more is given back after a large document
		if cap(r.buf) > idle && cap(r.buf) > 4*len(r.buf) {
			r.buf = slices.Clip(r.buf)
			r.buf = slices.Clone(r.buf)
		}
	}
	r.buf = append(r.buf, p[:n]...)
	return n, err
}

// letGo forgets what lies before an offset, which must have been read.
func (r *recorder) letGo(offset int64) {
	gone := r.buf[r.head : r.head+int(offset-r.offset)]
	if n := bytes.Count(gone, []byte{'\n'}); n > 0 {
		r.line += n
		r.column = len(gone) - bytes.LastIndexByte(gone, '\n')
	} else {
		r.column += len(gone)
	}
	r.head += len(gone)
	r.offset = offset
}

// skip lets blanks, commas and what lies before the offset go, so that the next
// value begins where the recorder stands.
func (r *recorder) skip(offset int64) {
	rest := r.buf[r.head+int(offset-r.offset):]
	r.letGo(offset + int64(len(rest)-len(bytes.TrimLeft(rest, " \t\r\n,"))))
}

// text returns a copy of the bytes that were read up to an offset and not yet dropped.
func (r *recorder) text(offset int64) []byte {
	return bytes.Clone(r.buf[r.head : r.head+int(offset-r.offset)])
}

// mostYAML is how much of an input that looks like JSON may be read before it is tried as YAML, which costs much more.
const mostYAML = 1 << 20

// kept reports whether the recorder still stands where a document begins, because no item of it was let go, and little was read.
func (r *recorder) kept(doc document) bool {
	return r.line == doc.textLine && r.column == doc.textColumn && len(r.buf)-r.head <= mostYAML
}

func isSyntax(err error) bool {
	_, is := errors.AsType[*json.SyntaxError](err)
	return is
}

// rest returns the input from where the recorder stands.
func (r *recorder) rest() *bufio.Reader {
	return bufio.NewReader(io.MultiReader(bytes.NewReader(bytes.Clone(r.buf[r.head:])), r.r))
}

// startsYAML reports whether a value that begins with this byte cannot be JSON: a separator, a comment or a key.
func startsYAML(c byte) bool {
	return c == '-' || c == '#' || c == '.' || c == '%' || c >= 'a' && c <= 'z' && c != 'n' || c >= 'A' && c <= 'Z'
}

// asYAML reads the rest of an input as YAML from the document that begins where the recorder stands, because it is not
// JSON; wrong says why. If its first document is not YAML either, wrong is what the user gets to know: the input looks like JSON.
func asYAML(rec *recorder, doc document, wrong error, yield func(document, error) bool) {
	first := true
	yamlDocuments(rec.rest(), document{number: doc.number, line: doc.line}, func(d document, err error) bool {
		if first && wrong != nil && err == nil {
			_, err = configuration.ToJSON(d.text)
		}
		if first && wrong != nil && err != nil {
			yield(doc, jsonError(wrong))
			return false
		}
		first = false
		return yield(d, err)
	})
}

// jsonDocuments cuts a sequence of JSON values, and what follows them as YAML, as kubectl does: values may have separators
// between them, and comments. The items of a List are documents
// of their own, unless something that comes behind them (as the kind of a PodList
// does in sorted JSON) would be needed to understand them.
func jsonDocuments(in io.Reader, yield func(document, error) bool) {
	rec := &recorder{r: in, line: 1, column: 1}
	d := json.NewDecoder(rec)
	for doc := (document{number: 1}); ; doc.number++ {
		// The offset is that of the end of the value before; blanks follow.
		more := d.More()
		rec.skip(d.InputOffset())
		doc.line, doc.textLine, doc.textColumn = rec.line, rec.line, rec.column
		if !more {
			if _, err := d.Token(); !errors.Is(err, io.EOF) {
				yield(doc, jsonError(err))
			}
			return
		}
		if startsYAML(rec.buf[rec.head]) {
			asYAML(rec, doc, nil, yield)
			return
		}
		streamed, wanted, err := jsonValue(d, rec, doc, yield)
		switch {
		case !wanted:
			return
		case isSyntax(err) && rec.kept(doc):
			asYAML(rec, doc, err, yield)
			return
		case err != nil:
			yield(doc, jsonError(err))
			return
		case streamed:
			continue
		}
		doc.text = rec.text(d.InputOffset())
		if !yield(doc, nil) {
			return
		}
	}
}

func jsonError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = errors.New("the input ends in the middle of an object; a closing brace is missing")
	}
	return fmt.Errorf("JSON: %w", err)
}

// jsonValue reads the value that begins where the recorder stands. Streamed means
// that it was a List whose items have been yielded; wanted is false if the caller
// is to stop.
func jsonValue(d *json.Decoder, rec *recorder, doc document, yield func(document, error) bool) (streamed, wanted bool, err error) {
	begin, err := d.Token()
	if err != nil {
		return false, true, err
	}
	switch begin {
	case json.Delim('{'):
	case nil: // null
		return false, true, nil
	default:
		return false, true, fmt.Errorf("found %v instead of an object", begin)
	}
	var list header
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return false, true, err
		}
		if key == "items" && (list.kind == "" || strings.HasSuffix(list.kind, "List")) {
			s, wanted, err := jsonItems(d, rec, doc, list, yield)
			if !wanted || err != nil {
				return false, wanted, err
			}
			streamed = streamed || s
			continue
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return false, true, err
		}
		switch key {
		case "kind":
			_ = json.Unmarshal(value, &list.kind) // an error is reported later
		case "apiVersion":
			_ = json.Unmarshal(value, &list.apiVersion)
		}
		if streamed {
			rec.letGo(d.InputOffset())
		}
	}
	_, err = d.Token() // the closing brace
	return streamed, true, err
}

// jsonItems reads the value of items. If it is a list of objects that say what they
// are, or the List has said it for them, it yields each as a document.
func jsonItems(d *json.Decoder, rec *recorder, doc document, list header, yield func(document, error) bool) (streamed, wanted bool, err error) {
	// A decoder stands behind the key and reads the colon with the value.
	begin, err := d.Token()
	if err != nil {
		return false, true, err
	}
	if begin != json.Delim('[') {
		return false, true, skipValue(d, begin)
	}
	doc.list = list
	for n := 1; d.More(); n++ {
		from := d.InputOffset()
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return streamed, true, err
		}
		if n == 1 {
			var self struct{ APIVersion, Kind any }
			_ = json.Unmarshal(raw, &self)
			streamed = list.kind != "" || self.Kind != nil && self.APIVersion != nil
		}
		if !streamed {
			continue
		}
		rec.skip(from)
		doc.text, doc.item = raw, n
		doc.textLine, doc.textColumn = rec.line, rec.column
		wanted := yield(doc, nil)
		rec.letGo(d.InputOffset())
		if !wanted {
			return true, false, nil
		}
	}
	_, err = d.Token() // the closing bracket
	return streamed, true, err
}

// skipValue reads the rest of a value whose first token is given.
func skipValue(d *json.Decoder, begin json.Token) error {
	if _, nested := begin.(json.Delim); !nested {
		return nil
	}
	for d.More() {
		var raw json.RawMessage
		if begin == json.Delim('{') {
			if _, err := d.Token(); err != nil { // the key
				return err
			}
		}
		if err := d.Decode(&raw); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}
