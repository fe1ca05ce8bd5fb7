package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/cli/resource"
)

// A format is how -o wants objects printed.
type format struct {
	kind    string // "" and "wide" are tables
	path    *jsonpath.JSONPath
	columns []column
}

// A column is one of -o custom-columns.
type column struct {
	head string
	path *jsonpath.JSONPath
}

// table reports whether the server's tables are printed.
func (f format) table() bool { return f.kind == "" || f.kind == "wide" }

// formatOf reads the text of -o.
func formatOf(text string) (format, error) {
	kind, arg, has := strings.Cut(text, "=")
	switch kind {
	case "", "wide", "json", "yaml", "name":
		if has {
			return format{}, fmt.Errorf("-o %s takes no value", kind)
		}
		return format{kind: kind}, nil
	case "jsonpath":
		if arg == "" {
			return format{}, fmt.Errorf("-o jsonpath needs a template: -o jsonpath={.metadata.name}")
		}
		if !strings.Contains(arg, "{") {
			arg = "{." + strings.TrimPrefix(arg, ".") + "}"
		}
		p, err := parsePath(arg)
		return format{kind: kind, path: p}, err
	case "custom-columns":
		f := format{kind: kind}
		for spec := range strings.SplitSeq(arg, ",") {
			head, path, ok := strings.Cut(spec, ":")
			if !ok || head == "" || path == "" {
				return format{}, fmt.Errorf("-o custom-columns: %q is not HEADER:PATH", spec)
			}
			p, err := parsePath("{." + strings.TrimPrefix(strings.Trim(path, "{}"), ".") + "}")
			if err != nil {
				return format{}, err
			}
			f.columns = append(f.columns, column{head, p})
		}
		return f, nil
	}
	return format{}, fmt.Errorf("unable to match a printer suitable for the output format %q, allowed formats are: json, yaml, name, wide, jsonpath=…, custom-columns=…", text)
}

func parsePath(text string) (*jsonpath.JSONPath, error) {
	p := jsonpath.New("output").AllowMissingKeys(true)
	if err := p.Parse(text); err != nil {
		return nil, fmt.Errorf("jsonpath %q: %w", text, err)
	}
	return p, nil
}

// print writes one object. It is for the formats that print objects one by one.
func (f format) print(w io.Writer, mapping resource.Mapping, obj *unstructured.Unstructured) error {
	switch f.kind {
	case "json":
		text, err := json.MarshalIndent(obj.Object, "", "    ")
		if err != nil {
			return fmt.Errorf("printing %s: %w", obj.GetName(), err)
		}
		_, err = fmt.Fprintf(w, "%s\n", text)
		return err
	case "yaml":
		text, err := yaml.Marshal(obj.Object)
		if err != nil {
			return fmt.Errorf("printing %s: %w", obj.GetName(), err)
		}
		_, err = w.Write(text)
		return err
	case "name":
		_, err := fmt.Fprintln(w, mapping.Called(obj.GetName()))
		return err
	case "jsonpath":
		return f.path.Execute(w, obj.Object)
	}
	return f.printColumns(w, []*unstructured.Unstructured{obj}, true)
}

func (f format) printColumns(w io.Writer, objs []*unstructured.Unstructured, heads bool) error {
	tw := newTable(w)
	row := make([]string, len(f.columns))
	if heads {
		for i, c := range f.columns {
			row[i] = c.head
		}
		tw.row(row)
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
		tw.row(row)
	}
	return tw.Flush()
}

// printAll writes objects as get does: as they are when one was asked for by its
// name, as a List otherwise.
func (f format) printAll(w io.Writer, mappings []resource.Mapping, objs []*unstructured.Unstructured, single, heads bool) error {
	switch f.kind {
	case "name":
		for i, o := range objs {
			if err := f.print(w, mappings[i], o); err != nil {
				return err
			}
		}
		return nil
	case "custom-columns":
		return f.printColumns(w, objs, heads)
	}
	if single && len(objs) == 1 {
		return f.print(w, mappings[0], objs[0])
	}
	items := make([]any, len(objs))
	for i, o := range objs {
		items[i] = o.Object
	}
	list := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "List", "metadata": map[string]any{"resourceVersion": ""}, "items": items,
	}}
	return f.print(w, resource.Mapping{}, list)
}

// A table aligns columns the way kubectl does. It remembers how wide they were, so
// that rows that come later stand under those before, and writes whole rows.
type table struct {
	w      io.Writer
	widths []int
	rows   [][]string
}

// Kubectl's: the space after a column, and the least width of one with its space.
const (
	columnSpace = 3
	columnWidth = 6
)

func newTable(w io.Writer) *table { return &table{w: w} }

func (t *table) row(cells []string) { t.rows = append(t.rows, slices.Clone(cells)) }

// Flush writes the rows since the last one.
func (t *table) Flush() error {
	for _, cells := range t.rows {
		for i, c := range cells {
			if i == len(t.widths) {
				t.widths = append(t.widths, columnWidth)
			}
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(c)+columnSpace)
		}
	}
	var b strings.Builder
	for _, cells := range t.rows {
		for i, c := range cells {
			b.WriteString(c)
			if i < len(cells)-1 {
				b.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(c)))
			}
		}
		b.WriteByte('\n')
	}
	t.rows = nil
	_, err := io.WriteString(t.w, b.String())
	return err
}
