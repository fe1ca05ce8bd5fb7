package show

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
	"sigs.k8s.io/yaml/kyaml"

	"github.com/sampan-io/sampan/cli/resource"
	"github.com/sampan-io/sampan/internal/terminal"
)

// A Format is how -o wants objects printed. Make it with [Parse].
type Format struct {
	Kind string // "" and "wide" are tables

	// Managers keeps metadata.managedFields, the writers of fields, in JSON and YAML. By default
	// they are left out, because they are longer than the rest.
	Managers bool

	path    *jsonpath.JSONPath
	columns []column
}

// A column is one of -o custom-columns.
type column struct {
	head string
	path *jsonpath.JSONPath
}

// IsTable reports whether the server's tables are printed.
func (f Format) IsTable() bool { return f.Kind == "" || f.Kind == "wide" }

// Parse reads the text of -o; empty is the server's table. An error says which formats there are.
func Parse(text string) (Format, error) {
	kind, arg, has := strings.Cut(text, "=")
	switch kind {
	case "", "wide", "json", "yaml", "kyaml", "name":
		if has {
			return Format{}, fmt.Errorf("-o %s takes no value", kind)
		}
		return Format{Kind: kind}, nil
	case "jsonpath-file", "custom-columns-file":
		text, err := readFile(kind, arg)
		if err != nil {
			return Format{}, err
		}
		return Parse(strings.TrimSuffix(kind, "-file") + "=" + text)
	case "jsonpath", "jsonpath-as-json":
		if arg == "" {
			return Format{}, fmt.Errorf("-o %s needs a template: -o %s={.metadata.name}", kind, kind)
		}
		if !strings.Contains(arg, "{") {
			arg = "{." + strings.TrimPrefix(arg, ".") + "}"
		}
		p, err := Path(arg)
		if err != nil {
			return Format{}, err
		}
		p.EnableJSONOutput(kind == "jsonpath-as-json")
		return Format{Kind: "jsonpath", path: p}, nil
	case "go-template", "go-template-file", "template", "templatefile":
		return Format{}, fmt.Errorf("-o %s: %w", kind, ErrGoTemplate)
	case "custom-columns":
		f := Format{Kind: kind}
		for spec := range strings.SplitSeq(arg, ",") {
			head, path, ok := strings.Cut(spec, ":")
			if !ok || head == "" || path == "" {
				return Format{}, fmt.Errorf("-o custom-columns: must be HEADER:PATH, got %q", spec)
			}
			p, err := Path("{." + strings.TrimPrefix(strings.Trim(path, "{}"), ".") + "}")
			if err != nil {
				return Format{}, err
			}
			f.columns = append(f.columns, column{head, p})
		}
		return f, nil
	}
	return Format{}, fmt.Errorf("unable to match a printer suitable for the output format %q, allowed formats are: json, yaml, kyaml, name, wide, jsonpath=…, jsonpath-as-json=…, jsonpath-file=…, custom-columns=…, custom-columns-file=…", text)
}

// ErrGoTemplate says what to use in place of Go templates. A template may call any method by its name, so the linker would
// keep every method of the program.
var ErrGoTemplate = errors.New("Go templates are not supported: use -o jsonpath=… or custom-columns=…, or 'kubectl get … -o go-template=…', which works with the same kubeconfig")

// readFile reads the file that a format names. One of columns has the headers in its first line and
// their paths in the second, as kubectl wants it; it becomes what -o custom-columns takes.
func readFile(kind, name string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("-o %s needs the name of a file: -o %s=FILE", kind, kind)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("-o %s: %w", kind, err)
	}
	if kind == "jsonpath-file" {
		return strings.TrimSuffix(string(text), "\n"), nil
	}
	heads, rest, _ := strings.Cut(string(text), "\n")
	paths, more, _ := strings.Cut(rest, "\n")
	h, p := strings.Fields(heads), strings.Fields(paths)
	if len(h) == 0 || len(h) != len(p) || strings.TrimSpace(more) != "" {
		return "", fmt.Errorf("-o %s: %s must have two lines, one path for each header, got %d headers and %d paths", kind, name, len(h), len(p))
	}
	for i := range h {
		h[i] += ":" + p[i]
	}
	return strings.Join(h, ","), nil
}

// Path reads a JSONPath template; fields that are missing are no error.
func Path(text string) (*jsonpath.JSONPath, error) {
	p := jsonpath.New("output").AllowMissingKeys(true)
	if err := p.Parse(text); err != nil {
		return nil, fmt.Errorf("jsonpath %q: %w", text, err)
	}
	return p, nil
}

// Print writes one object. It is for the formats that print objects one by one: not for tables.
func (f Format) Print(w io.Writer, mapping resource.Mapping, obj *unstructured.Unstructured) error {
	switch f.Kind {
	case "json", "yaml", "kyaml":
		return f.document(w, obj.GetName(), f.shown(obj.Object))
	case "name":
		_, err := fmt.Fprintln(w, mapping.Called(obj.GetName()))
		return err
	case "jsonpath":
		return f.path.Execute(terminal.Data(w), obj.Object)
	}
	return f.PrintColumns(w, []*unstructured.Unstructured{obj}, true)
}

// A watchEvent is an event of a watch with the fields of meta/v1's WatchEvent, in that order.
type watchEvent struct {
	Type   string         `json:"type"`
	Object map[string]any `json:"object"`
}

// PrintEvent writes an event of a watch as kubectl does, with the managed fields of the object: in JSON on a line of its own, in
// YAML and KYAML as a document. JSONPath and custom columns get the event. For the format name it prints the object.
// heads asks for the heads of custom columns.
func (f Format) PrintEvent(w io.Writer, mapping resource.Mapping, event watch.EventType, obj *unstructured.Unstructured, heads bool) error {
	switch f.Kind {
	case "json":
		text, err := json.Marshal(watchEvent{string(event), obj.Object})
		if err != nil {
			return fmt.Errorf("printing %s: %w", obj.GetName(), err)
		}
		_, err = w.Write(append(text, '\n'))
		return err
	case "yaml", "kyaml":
		return f.document(w, obj.GetName(), watchEvent{string(event), obj.Object})
	case "jsonpath", "custom-columns":
		whole := &unstructured.Unstructured{Object: map[string]any{"type": string(event), "object": obj.Object}}
		if f.Kind == "jsonpath" {
			return f.path.Execute(terminal.Data(w), whole.Object)
		}
		return f.PrintColumns(w, []*unstructured.Unstructured{whole}, heads)
	}
	return f.Print(w, mapping, obj)
}

// document writes a value in JSON, YAML or KYAML. Name is for errors.
func (f Format) document(w io.Writer, name string, value any) error {
	var text []byte
	var err error
	switch f.Kind {
	case "json":
		text, err = json.MarshalIndent(value, "", "    ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(value)
	case "kyaml":
		var encoder kyaml.Encoder
		var all bytes.Buffer
		err = encoder.FromObject(value, &all)
		text = all.Bytes()
	}
	if err != nil {
		return fmt.Errorf("printing %s: %w", name, err)
	}
	if f.Kind != "json" { // in a plain scalar of YAML an escape would be another value
		w = terminal.Data(w)
	}
	_, err = w.Write(text)
	return err
}

// shown returns an object, or a list, as it is to be printed. It does not change it.
func (f Format) shown(object map[string]any) map[string]any {
	if f.Managers {
		return object
	}
	if items, ok := object["items"].([]any); ok {
		object = maps.Clone(object)
		shown := slices.Clone(items)
		for i, item := range items {
			if one, ok := item.(map[string]any); ok {
				shown[i] = f.shown(one)
			}
		}
		object["items"] = shown
	}
	meta, ok := object["metadata"].(map[string]any)
	if _, has := meta["managedFields"]; ok && has {
		object, meta = maps.Clone(object), maps.Clone(meta)
		delete(meta, "managedFields")
		object["metadata"] = meta
	}
	return object
}

// PrintColumns writes the columns of -o custom-columns, for no other format.
func (f Format) PrintColumns(w io.Writer, objs []*unstructured.Unstructured, heads bool) error {
	tw := NewTable(w)
	row := make([]string, len(f.columns))
	if heads {
		for i, c := range f.columns {
			row[i] = c.head
		}
		tw.Row(row)
	}
	for _, obj := range objs {
		for i, c := range f.columns {
			var cell bytes.Buffer
			results, err := c.path.FindResults(obj.Object)
			if err != nil || len(results) == 0 || len(results[0]) == 0 {
				row[i] = "<none>"
				continue
			}
			for j, r := range results[0] {
				if j > 0 {
					cell.WriteString(",")
				}
				fmt.Fprint(&cell, r.Interface())
			}
			row[i] = cell.String()
		}
		tw.Row(row)
	}
	return tw.Flush()
}

// PrintAll writes objects as get does: as they are when one was asked for by its
// name, as a List otherwise.
func (f Format) PrintAll(w io.Writer, mappings []resource.Mapping, objs []*unstructured.Unstructured, single, heads bool) error {
	switch f.Kind {
	case "name":
		for i, o := range objs {
			if err := f.Print(w, mappings[i], o); err != nil {
				return err
			}
		}
		return nil
	case "custom-columns":
		return f.PrintColumns(w, objs, heads)
	}
	if single && len(objs) == 1 {
		return f.Print(w, mappings[0], objs[0])
	}
	items := make([]any, len(objs))
	for i, o := range objs {
		items[i] = o.Object
	}
	list := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": items,
	}}
	return f.Print(w, resource.Mapping{}, list)
}

// A Table aligns columns the way kubectl does. It remembers how wide they were, so
// that rows that come later stand under those before, and writes whole rows.
type Table struct {
	w      io.Writer
	widths []int
	rows   [][]string
}

// Kubectl's: the space after a column, and the least width of one with its space.
const (
	columnSpace = 3
	columnWidth = 6
	// No cell makes its column wider than this: a Service with 15,000 external IPs would have each of the other rows padded
	// with 200 KB.
	widest = 1000
)

// NewTable returns a table that is written to w.
func NewTable(w io.Writer) *Table { return &Table{w: w} }

// Row adds a row, which is copied; [Table.Flush] writes it. Control characters in cells are escaped.
func (t *Table) Row(cells []string) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = terminal.Escape(c)
	}
	t.rows = append(t.rows, row)
}

// FirstLine returns the first line of the text of a cell, as kubectl cuts it in tables of servers: at a line end, a carriage
// return or a form feed, with three dots in place of the others.
func FirstLine(cell string) string {
	if end := strings.IndexAny(cell, "\f\n\r"); end >= 0 {
		return cell[:end] + "..."
	}
	return cell
}

// Flush writes the rows since the last one.
func (t *Table) Flush() error {
	for _, cells := range t.rows {
		for i, c := range cells {
			if i == len(t.widths) {
				t.widths = append(t.widths, columnWidth)
			}
			t.widths[i] = max(t.widths[i], min(utf8.RuneCountInString(c), widest)+columnSpace)
		}
	}
	var b strings.Builder
	for _, cells := range t.rows {
		for i, c := range cells {
			b.WriteString(c)
			if i < len(cells)-1 {
				b.WriteString(strings.Repeat(" ", max(t.widths[i]-utf8.RuneCountInString(c), columnSpace)))
			}
		}
		b.WriteByte('\n')
	}
	t.rows = nil
	_, err := io.WriteString(t.w, b.String())
	return err
}
