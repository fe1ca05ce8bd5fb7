package custom

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"

	"github.com/sampan-io/sampan/catalog"
)

// columns returns the columns of a version; the age alone if it names none, or one with a path that cannot be read.
func columns(defined []apiextensionsv1.CustomResourceColumnDefinition) []catalog.Column {
	out := make([]catalog.Column, 0, len(defined))
	for _, d := range defined {
		path, err := newPath(d.JSONPath)
		if err != nil {
			return out
		}
		text := d.Description
		if text == "" {
			text = "Custom resource definition column (in JSONPath format): " + d.JSONPath
		}
		out = append(out, catalog.Column{
			TableColumnDefinition: metav1.TableColumnDefinition{Name: d.Name, Type: d.Type, Format: d.Format, Description: text, Priority: d.Priority},
			Cell: func(obj catalog.Object, now time.Time) any {
				u, ok := obj.(*unstructured.Unstructured)
				if !ok {
					return nil
				}
				return cell(path, d.Type, u.Object, now)
			},
		})
	}
	if len(defined) == 0 {
		age := catalog.Age()
		age.Type = "date"
		out = append(out, age)
	}
	return out
}

// cell returns the value of a column of a type. A missing value, or one of another type, is nil.
func cell(path *path, columnType string, content map[string]any, now time.Time) any {
	value, found := path.first(content)
	if !found {
		return nil
	}
	switch columnType {
	case "string":
		return path.text(value)
	case "integer":
		switch n := value.(type) {
		case int64:
			return n
		case float64:
			return int64(n)
		}
	case "number":
		switch n := value.(type) {
		case int64:
			return float64(n)
		case float64:
			return n
		}
	case "boolean":
		if b, ok := value.(bool); ok {
			return b
		}
	case "date":
		text, ok := value.(string)
		if !ok {
			return nil
		}
		var t metav1.Time
		if t.UnmarshalQueryParameter(text) != nil {
			return "<invalid>"
		}
		return catalog.Since(t.Time, now)
	}
	return nil
}

// A path finds a value in an object. It is safe for concurrent use.
type path struct {
	steps   []string // if it only goes from field to field
	general sync.Pool
}

// newPath reads a path like ".spec.ports[0].name".
func newPath(text string) (*path, error) {
	p := &path{}
	if plain := strings.TrimPrefix(text, "."); plain != text && plain != "" && !strings.ContainsAny(plain, `[]{}()*?@'"\ `) && !strings.Contains(plain, "..") && !strings.HasSuffix(plain, ".") {
		p.steps = strings.Split(plain, ".")
		return p, nil
	}
	parse := func() (*jsonpath.JSONPath, error) {
		parsed := jsonpath.New("path").AllowMissingKeys(true)
		return parsed, parsed.Parse("{" + text + "}")
	}
	first, err := parse()
	if err != nil {
		return nil, fmt.Errorf("custom: path %q: %w", text, err)
	}
	p.general.New = func() any {
		parsed, _ := parse() // it has been parsed before
		return parsed
	}
	p.general.Put(first)
	return p, nil
}

// first returns the first value at the path.
func (p *path) first(content map[string]any) (value any, found bool) {
	if p.steps == nil {
		parsed, _ := p.general.Get().(*jsonpath.JSONPath)
		defer p.general.Put(parsed)
		results, err := parsed.FindResults(content)
		if err != nil || len(results) == 0 || len(results[0]) == 0 || !results[0][0].IsValid() || !results[0][0].CanInterface() {
			return nil, false
		}
		return results[0][0].Interface(), true
	}
	value = content
	for _, name := range p.steps {
		m, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		if value, ok = m[name]; !ok {
			return nil, false
		}
	}
	return value, true
}

// text returns a value as jsonpath prints it, or nil if it cannot.
func (p *path) text(value any) any {
	if s, ok := value.(string); ok {
		return s
	}
	var out bytes.Buffer
	if jsonpath.New("path").PrintResults(&out, []reflect.Value{reflect.ValueOf(value)}) != nil {
		return nil
	}
	return out.String()
}

// selectable returns the fields that field selectors can name in a version, of its objects.
func selectable(fields []apiextensionsv1.SelectableField) (map[string]func(content map[string]any) string, error) {
	out := map[string]func(map[string]any) string{}
	for _, f := range fields {
		path, err := newPath(f.JSONPath)
		if err != nil {
			return nil, err
		}
		out[strings.TrimPrefix(f.JSONPath, ".")] = func(content map[string]any) string {
			value, _ := path.first(content)
			if value == nil {
				return ""
			}
			return fmt.Sprint(value)
		}
	}
	return out, nil
}
