package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	kyaml "sigs.k8s.io/yaml"
)

// A Document is the text of a file and where its fields stand.
type Document struct {
	source string
	root   *yaml.Node
	json   []byte
}

// Parse reads a text. The source is what faults call it: the name of its file. An
// empty text and more than one document are faults.
func Parse(source string, text []byte) (*Document, error) {
	in := yaml.NewDecoder(bytes.NewReader(text))
	first, err := begin(source, text, in)
	if err != nil {
		return nil, err
	}
	var second yaml.Node
	if in.Decode(&second) == nil {
		return nil, fmt.Errorf("%s: line %d: a second document; want one", source, second.Line)
	}
	return parsed(source, text, first)
}

// ParseFirst is [Parse] for a text with any number of documents, of which it reads the
// first. Ignored says what follows, and is empty if nothing with any content does.
func ParseFirst(source string, text []byte) (d *Document, ignored string, err error) {
	in := yaml.NewDecoder(bytes.NewReader(text))
	first, err := begin(source, text, in)
	if err != nil {
		return nil, "", err
	}
	if d, err = parsed(source, text, first); err != nil {
		return nil, "", err
	}
	return d, following(source, in), nil
}

// begin reads the first document.
func begin(source string, text []byte, in *yaml.Decoder) (*yaml.Node, error) {
	var first yaml.Node
	if err := in.Decode(&first); err != nil {
		if len(bytes.TrimSpace(text)) == 0 || err.Error() == "EOF" {
			return nil, fmt.Errorf("%s: is empty", source)
		}
		return nil, fmt.Errorf("%s: %w", source, syntax(text, err))
	}
	return &first, nil
}

// parsed returns the first document of a text.
func parsed(source string, text []byte, first *yaml.Node) (*Document, error) {
	data, err := ToJSON(text) // of the first document
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, shortened(err))
	}
	d := &Document{source: source, json: data}
	if len(first.Content) > 0 {
		d.root = first.Content[0]
	}
	if d.root == nil || d.root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s: line 1: want an object with apiVersion and kind", source)
	}
	return d, nil
}

// following says what comes after the first document. It returns "" if nothing with any
// content does.
func following(source string, in *yaml.Decoder) string {
	for {
		var next yaml.Node
		switch err := in.Decode(&next); {
		case errors.Is(err, io.EOF):
			return ""
		case err != nil:
			return fmt.Sprintf("%s: what follows the first document is ignored: %v", source, err)
		case len(next.Content) > 0 && next.Content[0].Tag != "!!null":
			return fmt.Sprintf("%s: line %d: a second document, which is ignored", source, next.Line)
		}
	}
}

// parserFault finds the line in what the parser of YAML, not its scanner, says.
var parserFault = regexp.MustCompile(`^line (\d+): did not find expected `)

// syntax returns a fault of a text that is not YAML. This version of the library has the line at which the text around the fault
// begins; the other one has that of the fault, counted from 0 if its parser finds it.
func syntax(text []byte, err error) error {
	if _, at := kyaml.YAMLToJSON(text); at != nil {
		err = at
	}
	err = shortened(err)
	if m := parserFault.FindStringSubmatch(err.Error()); m != nil {
		line, _ := strconv.Atoi(m[1]) // digits
		last := 1 + bytes.Count(bytes.TrimRight(text, "\n"), []byte("\n"))
		err = fmt.Errorf("line %d%s", min(line+1, last), strings.TrimPrefix(err.Error(), "line "+m[1]))
	}
	return err
}

// shortened drops the names of the libraries from a fault that begins with a line.
func shortened(err error) error {
	text := err.Error()
	if i := strings.Index(text, "line "); i >= 0 {
		return errors.New(strings.Join(strings.Fields(text[i:]), " "))
	}
	return err
}

// strictField finds the path in what the strict decoder says.
var strictField = regexp.MustCompile(`^(unknown|duplicate) field "(.+)"$`)

// Decode reads the document into a pointer. If it returns an error, what it points to
// may have been filled in part.
func (d *Document) Decode(into any) error {
	unknown, err := d.DecodeKnown(into)
	if err != nil {
		return err
	}
	return d.Faults(unknown)
}

// DecodeKnown is [Document.Decode] for a caller who looks at the content even if there are unknown and duplicate
// fields: it returns these as faults, to be given to [Document.Faults] together with the caller's own. After an
// error, which is that of a value of the wrong type, there is no content to look at.
func (d *Document) DecodeKnown(into any) (unknown field.ErrorList, err error) {
	strict, err := kjson.UnmarshalStrict(d.json, into)
	if err != nil {
		return nil, d.Faults(d.mistyped(into, err))
	}
	for _, err := range strict {
		unknown = append(unknown, Fault("", err))
	}
	return unknown, nil
}

// Fault returns an error of a strict decoder as a field error, with the path of the field below base.
func Fault(base string, err error) *field.Error {
	fault := &field.Error{Type: field.ErrorTypeInvalid, Field: base, BadValue: field.OmitValueType{}, Detail: err.Error()}
	if m := strictField.FindStringSubmatch(err.Error()); m != nil {
		fault.Field, fault.Detail = below(base, m[2]), m[1]+" field"
	} else if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		fault.Field, fault.Detail = below(base, t.Field), wrongType(t)
	}
	return fault
}

// below returns the path of a field below base.
func below(base, path string) string {
	if base == "" || path == "" {
		return base + path
	}
	return base + "." + path
}

// wrongType says of which type a value is and of which it should be.
func wrongType(t *json.UnmarshalTypeError) string {
	if number, ok := strings.CutPrefix(t.Value, "number "); ok && t.Type.Kind() >= reflect.Int && t.Type.Kind() <= reflect.Uint64 {
		return fmt.Sprintf("is %s, want an integer of %d bits", number, t.Type.Bits())
	}
	return fmt.Sprintf("is %s, want %s", word(strings.SplitN(t.Value, " ", 2)[0]), word(t.Type.Kind().String()))
}

// mistyped returns the fault of a value that has not the type of its field in into.
func (d *Document) mistyped(into any, err error) field.ErrorList {
	fault := &field.Error{Type: field.ErrorTypeInvalid, BadValue: field.OmitValueType{}, Detail: err.Error()}
	t, isType := errors.AsType[*json.UnmarshalTypeError](err)
	if isType {
		fault.Detail = wrongType(t)
	}
	if at, found := refusedAt(reflect.TypeOf(into), d.json, ""); found { // then an offset is one in the text of that value
		fault.Field = at
	} else if isType {
		fault.Field = pathAt(d.json, t.Offset)
	}
	return field.ErrorList{fault}
}

// word returns what people call a type of JSON or of Go.
func word(kind string) string {
	switch strings.TrimRight(kind, "0123456789") {
	case "string":
		return "a string"
	case "number", "int", "uint", "float":
		return "a number"
	case "bool":
		return "true or false"
	case "array", "slice":
		return "a list"
	default:
		return "an object"
	}
}

// pathAt returns the path of the value of a JSON text at or before which a decoder was
// at offset.
func pathAt(text []byte, offset int64) string {
	type level struct {
		list  bool
		index int
		key   string
		value bool // the next token of an object is a value
	}
	var levels []level
	path := func() string {
		var b strings.Builder
		for _, l := range levels {
			switch {
			case l.list:
				fmt.Fprintf(&b, "[%d]", l.index)
			case b.Len() > 0:
				b.WriteString("." + l.key)
			default:
				b.WriteString(l.key)
			}
		}
		return b.String()
	}
	begin := func() { // a value begins
		if len(levels) > 0 && levels[len(levels)-1].list {
			levels[len(levels)-1].index++
		}
	}
	in := json.NewDecoder(bytes.NewReader(text))
	for {
		tok, err := in.Token()
		if err != nil {
			return path()
		}
		top := len(levels) - 1
		switch delim, isDelim := tok.(json.Delim); {
		case isDelim && (delim == '}' || delim == ']'):
			levels = levels[:top]
			if top > 0 && !levels[top-1].list {
				levels[top-1].value = false
			}
			continue
		case top >= 0 && !levels[top].list && !levels[top].value:
			levels[top].key, _ = tok.(string)
			levels[top].value = true
			continue
		case isDelim:
			begin()
			if in.InputOffset() >= offset {
				return path()
			}
			levels = append(levels, level{list: delim == '[', index: -1})
			continue
		}
		begin()
		if in.InputOffset() >= offset {
			return path()
		}
		if top >= 0 {
			levels[top].value = false
		}
	}
}

// mostFaults is how many faults of a text are named: with a million of them, the rest
// would take longer to compare and to print than anyone reads.
const mostFaults = 100

// Faults returns an error that names the place of every fault in the order of the
// text, up to a hundred, or nil if there is none. It sorts list.
func (d *Document) Faults(list field.ErrorList) error {
	type place struct{ line, column int }
	places := map[*field.Error]place{}
	for _, e := range list {
		line, column, _ := Find(d.root, e.Field)
		places[e] = place{line, column}
	}
	slices.SortStableFunc(list, func(a, b *field.Error) int { return places[a].line - places[b].line })
	var lines []string
	for _, e := range list {
		at := fmt.Sprintf("%s: line %d column %d", d.source, places[e].line, places[e].column)
		if e.Field != "" {
			at += ": " + e.Field
		}
		said := strings.TrimPrefix(e.ErrorBody(), "Invalid value: ")
		if _, bare := e.BadValue.(field.OmitValueType); bare {
			said = e.Detail
		}
		text := at + ": " + said
		if slices.Contains(lines, text) {
			continue
		}
		if len(lines) == mostFaults {
			lines = append(lines, d.source+": there are more faults")
			break
		}
		lines = append(lines, text)
	}
	if len(lines) == 0 {
		return nil
	}
	return errors.New(strings.Join(lines, "\n"))
}

// Find follows a path such as spec.containers[0].image or metadata.labels[a.b/c] from
// a node as far as it goes, and returns the line and column, from 1, of where it got
// to. Of a field in a map that is the place of the key, which is where a person looks.
// Exact means that it went to the end.
func Find(n *yaml.Node, path string) (line, column int, exact bool) {
	line, column = n.Line, n.Column
	for path != "" {
		if n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		var key, value *yaml.Node
		key, value, path = step(n, path)
		if value == nil {
			return line, column, false
		}
		line, column = key.Line, key.Column
		n = value
	}
	return line, column, true
}

// step goes one step along a path. The key is the value itself in a list. A nil value
// means that there is no such step.
func step(n *yaml.Node, path string) (key, value *yaml.Node, rest string) {
	switch n.Kind {
	case yaml.SequenceNode:
		inner, rest, ok := bracket(path)
		index, err := strconv.Atoi(inner)
		if !ok || err != nil || index < 0 || index >= len(n.Content) {
			return nil, nil, ""
		}
		return n.Content[index], n.Content[index], rest
	case yaml.MappingNode:
		if inner, rest, ok := bracket(path); ok {
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == strings.Trim(inner, `"'`) {
					return n.Content[i], n.Content[i+1], rest
				}
			}
			return nil, nil, ""
		}
		// A key may have dots in it: the longest one that fits is meant.
		longest := -1
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i].Value
			after, fits := strings.CutPrefix(path, k)
			if fits && (after == "" || after[0] == '.' || after[0] == '[') && len(k) > longest {
				longest, key, value, rest = len(k), n.Content[i], n.Content[i+1], strings.TrimPrefix(after, ".")
			}
		}
		return key, value, rest
	default: // nothing is inside of a scalar
	}
	return nil, nil, ""
}

// bracket reads [inner] from the front of a path.
func bracket(path string) (inner, rest string, ok bool) {
	path, ok = strings.CutPrefix(path, "[")
	if !ok {
		return "", "", false
	}
	inner, rest, ok = strings.Cut(path, "]")
	return inner, strings.TrimPrefix(rest, "."), ok
}
