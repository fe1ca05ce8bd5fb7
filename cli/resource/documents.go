package resource

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	configuration "github.com/sampan-io/sampan/internal/document"
)

// maxDocument bounds one document. A server takes 3 MB; a List may hold many
// objects.
const maxDocument = 256 << 20

// A document is one YAML document or JSON value of an input, or an item of a List
// in JSON that is read item by item.
type document struct {
	text   []byte
	number int // from 1
	line   int // of the input, from 1, on which it starts

	// Where text begins, if not at the beginning of line: that of an item.
	textLine, textColumn int

	item int    // its number in its List, from 1; 0 for a whole document
	list header // of its List
}

// A header is the type of a List before its items.
type header struct{ apiVersion, kind string }

func (d document) place(file string) string {
	return fmt.Sprintf("%s, document %d (line %d)", file, d.number, d.line)
}

// start returns where text begins in the input, from 1.
func (d document) start() (line, column int) {
	return cmp.Or(d.textLine, d.line), cmp.Or(d.textColumn, 1)
}

// documents cuts an input into documents. An error ends the stream.
func documents(r io.Reader) iter.Seq2[document, error] {
	return func(yield func(document, error) bool) {
		in := bufio.NewReaderSize(r, 64<<10)
		if bom, _ := in.Peek(3); string(bom) == "\xef\xbb\xbf" {
			_, _ = in.Discard(3)
		}
		if looksLikeJSON(in) {
			jsonDocuments(in, yield)
			return
		}
		yamlDocuments(in, document{number: 1, line: 1}, yield)
	}
}

// looksLikeJSON reports whether the input begins with a brace and then a quote or
// another brace: then it is a sequence of JSON values. Anything else is YAML, which
// has braces, too.
func looksLikeJSON(in *bufio.Reader) bool {
	brace := false
	for n := 1; ; n++ {
		head, err := in.Peek(n)
		if err != nil {
			return brace
		}
		switch c := head[n-1]; {
		case c == ' ', c == '\t', c == '\r', c == '\n':
		case !brace && c == '{':
			brace = true
		default:
			return brace && (c == '"' || c == '}')
		}
	}
}

// yamlDocuments cuts YAML; doc is the first document, without its text.
func yamlDocuments(in *bufio.Reader, doc document, yield func(document, error) bool) {
	line := doc.line - 1
	ended := false
	for !ended {
		text, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			yield(doc, err)
			return
		}
		ended = err != nil
		line++
		rest, separator := bytes.CutPrefix(text, []byte("---"))
		separator = separator && (len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\r\n"))
		if separator {
			if !blank(doc.text) {
				if !yield(doc, nil) {
					return
				}
				doc.number++
			}
			doc.text, doc.line = nil, line
			if c := bytes.TrimSpace(rest); len(c) > 0 && c[0] != '#' {
				doc.text = append(append(doc.text, "   "...), rest...) // "--- {a: 1}" begins its document; columns stay
			} else {
				doc.text = append(doc.text, '\n') // so that lines count from the separator
			}
			continue
		}
		if len(doc.text)+len(text) > maxDocument {
			yield(doc, fmt.Errorf("the document is larger than %d MB", maxDocument>>20))
			return
		}
		doc.text = append(doc.text, text...)
	}
	if !blank(doc.text) {
		yield(doc, nil)
	}
}

// blank reports whether a document has nothing but comments in it.
func blank(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && string(line) != "..." {
			return false
		}
	}
	return true
}

// fields reads a document as one object; nil if the document is null.
func (d document) fields() (map[string]any, error) {
	data := d.text
	if text := bytes.TrimSpace(data); len(text) == 0 || text[0] != '{' || !json.Valid(text) {
		var err error
		if data, err = configuration.ToJSON(d.text); err != nil {
			return nil, d.explain(err)
		}
	}
	switch text := bytes.TrimSpace(data); {
	case string(text) == "null" && d.item == 0:
		return nil, nil
	case len(text) == 0 || text[0] != '{':
		return nil, fmt.Errorf("must be an object with apiVersion, kind and metadata, got %s", describe(text))
	}
	var fields map[string]any
	doubled, err := kjson.UnmarshalStrict(data, &fields)
	if err != nil {
		return nil, err
	}
	return fields, errors.Join(doubled...)
}

// check says whether fields can be those of an object: enough is there, and is what
// it should be, to know where it goes.
func check(fields map[string]any) error {
	for _, name := range []string{"apiVersion", "kind"} {
		switch v := fields[name].(type) {
		case string:
			if v == "" {
				return fmt.Errorf("%s is empty", name)
			}
		case nil:
			return fmt.Errorf("%s is not set: an object needs apiVersion, kind and metadata", name)
		default:
			return fmt.Errorf("%s is %s, want a string", name, describeValue(v))
		}
	}
	apiVersion, _ := fields["apiVersion"].(string)
	if _, err := schema.ParseGroupVersion(apiVersion); err != nil {
		return fmt.Errorf("apiVersion is %q, want VERSION or GROUP/VERSION", apiVersion)
	}
	m, found := fields["metadata"]
	if !found {
		return nil
	}
	metadata, ok := m.(map[string]any)
	if !ok {
		return fmt.Errorf("metadata is %s, want a map", describeValue(m))
	}
	for _, key := range []string{"name", "namespace", "generateName"} {
		if v := metadata[key]; v != nil {
			if _, ok := v.(string); !ok {
				return fmt.Errorf("metadata.%s is %s, want a string: put it in quotes", key, describeValue(v))
			}
		}
	}
	return nil
}

func describe(text []byte) string {
	var v any
	if json.Unmarshal(text, &v) != nil {
		return "not an object"
	}
	return describeValue(v)
}

func describeValue(v any) string {
	switch v := v.(type) {
	case nil:
		return "empty"
	case []any:
		return "a list"
	case map[string]any:
		return "a map"
	case string:
		if len(v) > 40 {
			v = v[:40] + "…"
		}
		return fmt.Sprintf("the text %q", v)
	case bool:
		return fmt.Sprintf("the boolean %v", v)
	default:
		return fmt.Sprintf("the number %v", v)
	}
}

var lineNumber = regexp.MustCompile(`line (\d+)`)

// explain makes the lines in a parser's error those of the file.
func (d document) explain(err error) error {
	text := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors:"} {
		text = strings.TrimPrefix(text, prefix)
	}
	text = lineNumber.ReplaceAllStringFunc(text, func(s string) string {
		n, err := strconv.Atoi(strings.TrimPrefix(s, "line "))
		if err != nil {
			return s
		}
		return "line " + strconv.Itoa(d.line+n-1)
	})
	if wrong := json.Unmarshal(d.text, new(any)); isSyntax(wrong) && bytes.HasPrefix(bytes.TrimSpace(d.text), []byte("{")) {
		return jsonError(wrong) // it looks like JSON
	}
	return fmt.Errorf("YAML: %s", strings.Join(strings.Fields(text), " "))
}
