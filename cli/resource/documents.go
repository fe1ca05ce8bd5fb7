package resource

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// maxDocument bounds one document. A server takes 3 MB; a List may hold many
// objects.
const maxDocument = 256 << 20

// A document is one YAML document or JSON value of an input.
type document struct {
	text   []byte
	number int // from 1
	line   int // of the input, from 1, on which it starts
}

func (d document) place(file string) string {
	return fmt.Sprintf("%s, document %d (line %d)", file, d.number, d.line)
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
		yamlDocuments(in, yield)
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

func yamlDocuments(in *bufio.Reader, yield func(document, error) bool) {
	doc := document{number: 1, line: 1}
	line := 0
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
				doc.text = append(doc.text, rest...) // "--- {a: 1}" begins its document
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

// A lineCounter remembers where the lines of what was read begin.
type lineCounter struct {
	r      io.Reader
	read   int64
	breaks []int64 // offsets of line breaks that have not been counted
	lines  int     // line breaks that have been
}

func (c *lineCounter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	for i, b := range p[:n] {
		if b == '\n' {
			c.breaks = append(c.breaks, c.read+int64(i))
		}
	}
	c.read += int64(n)
	return n, err
}

// at returns the line of an offset. Offsets must not fall.
func (c *lineCounter) at(offset int64) int {
	n := 0
	for n < len(c.breaks) && c.breaks[n] < offset {
		n++
	}
	c.lines += n
	c.breaks = append(c.breaks[:0], c.breaks[n:]...)
	return c.lines + 1
}

func jsonDocuments(in *bufio.Reader, yield func(document, error) bool) {
	counter := &lineCounter{r: io.LimitReader(in, 1<<62)}
	d := json.NewDecoder(counter)
	for doc := (document{number: 1, line: 1}); ; doc.number++ {
		// The offset is that of the end of the value before; blanks follow.
		if !d.More() {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				return
			}
			doc.line = counter.at(d.InputOffset())
			yield(doc, fmt.Errorf("JSON: %w", err))
			return
		}
		doc.line = counter.at(d.InputOffset())
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
				err = errors.New("it ends in the middle of an object; a closing brace is missing")
			}
			yield(doc, fmt.Errorf("JSON: %w", err))
			return
		}
		doc.text = raw
		if !yield(doc, nil) {
			return
		}
	}
}

// object reads a document as one object.
func (d document) object() (*unstructured.Unstructured, error) {
	data := d.text
	if text := bytes.TrimSpace(data); len(text) == 0 || text[0] != '{' || !json.Valid(text) {
		var err error
		if data, err = yaml.YAMLToJSONStrict(d.text); err != nil {
			return nil, d.explain(err)
		}
	}
	switch text := bytes.TrimSpace(data); {
	case len(text) == 0 || text[0] != '{':
		return nil, fmt.Errorf("it is %s, want an object with apiVersion, kind and metadata", describe(text))
	}
	var head struct {
		APIVersion any `json:"apiVersion"`
		Kind       any `json:"kind"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name  string
		value any
	}{{"apiVersion", head.APIVersion}, {"kind", head.Kind}} {
		switch v := f.value.(type) {
		case string:
			if v != "" {
				continue
			}
			return nil, fmt.Errorf("%s is empty", f.name)
		case nil:
			return nil, fmt.Errorf("%s is not set: an object needs apiVersion, kind and metadata", f.name)
		default:
			return nil, fmt.Errorf("%s is %s, want a string", f.name, describeValue(v))
		}
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	if m, found := u.Object["metadata"]; found {
		if _, ok := m.(map[string]any); !ok {
			return nil, fmt.Errorf("metadata is %s, want a map", describeValue(m))
		}
		for _, key := range []string{"name", "namespace", "generateName"} {
			if v, found, _ := unstructured.NestedFieldNoCopy(u.Object, "metadata", key); found && v != nil {
				if _, ok := v.(string); !ok {
					return nil, fmt.Errorf("metadata.%s is %s, want a string: put it in quotes", key, describeValue(v))
				}
			}
		}
	}
	return u, nil
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
	return fmt.Errorf("YAML: %s", strings.Join(strings.Fields(text), " "))
}
