package changes

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"
)

// A Field is a changed field of an object.
type Field struct {
	Path   string `json:"path"`             // such as .spec.containers[name=web].image
	Before any    `json:"before,omitempty"` // nil: it was not there
	After  any    `json:"after,omitempty"`  // nil: it is not there any more
}

const (
	// maxFields is how many fields of one write are shown.
	maxFields = 64

	// maxValue is how large a value may be, as JSON, to be shown as it is, in bytes.
	maxValue = 2 << 10

	// shownOf is how much of a larger one is shown.
	shownOf = 200
)

// ignored are the fields that do not count as a change: the server sets them.
var ignored = []string{"managedFields", "resourceVersion", "generation", "selfLink"}

// Fields returns the fields that differ between two states of an object, as JSON decodes it, in the order of their
// paths, and how many more there are. Either state may be nil. Both are left as they are.
func Fields(before, after map[string]any) (fields []Field, more int) {
	c := comparison{}
	c.compare("", withoutIgnored(before), withoutIgnored(after))
	return c.fields, c.more
}

// withoutIgnored returns an object without the fields that do not count.
func withoutIgnored(obj map[string]any) any {
	meta, ok := obj["metadata"].(map[string]any)
	if !ok {
		if obj == nil {
			return nil
		}
		return obj
	}
	obj, meta = maps.Clone(obj), maps.Clone(meta)
	for _, name := range ignored {
		delete(meta, name)
	}
	obj["metadata"] = meta
	return obj
}

// A comparison collects changed fields.
type comparison struct {
	fields []Field
	more   int
}

func (c *comparison) add(path string, before, after any) {
	if len(c.fields) == maxFields {
		c.more++
		return
	}
	if path == "" {
		path = "."
	}
	c.fields = append(c.fields, Field{path, shortened(before), shortened(after)})
}

// shortened returns a value, or the beginning of a large one as text.
func shortened(v any) any {
	if v == nil {
		return nil
	}
	text, err := json.Marshal(v)
	if err != nil || len(text) <= maxValue {
		return v
	}
	if s, ok := v.(string); ok {
		text = []byte(s)
	}
	n := shownOf
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:n], len(text))
}

func (c *comparison) compare(path string, before, after any) {
	switch a := before.(type) {
	case map[string]any:
		if b, ok := after.(map[string]any); ok {
			c.compareMaps(path, a, b)
			return
		}
	case []any:
		if b, ok := after.([]any); ok {
			c.compareLists(path, a, b)
			return
		}
	}
	if !reflect.DeepEqual(before, after) {
		c.add(path, before, after)
	}
}

func (c *comparison) compareMaps(path string, a, b map[string]any) {
	names := slices.Collect(maps.Keys(a))
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		c.compare(path+step(name), a[name], b[name])
	}
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// step returns the part of a path that is a field.
func step(name string) string {
	if plainName.MatchString(name) {
		return "." + name
	}
	return "[" + strconv.Quote(name) + "]"
}

// listKeys are the fields that identify elements of lists, as most lists of Kubernetes have them.
var listKeys = []string{"name", "type", "containerPort", "ip", "key", "uid"}

// compareLists compares elements with the same key, where all have one, and otherwise those at the same place.
func (c *comparison) compareLists(path string, a, b []any) {
	for _, key := range listKeys {
		before, ok := byKey(a, key)
		after, also := byKey(b, key)
		if !ok || !also || len(a)+len(b) == 0 {
			continue
		}
		names := slices.Collect(maps.Keys(before))
		for name := range after {
			if _, ok := before[name]; !ok {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		changes := len(c.fields) + c.more
		for _, name := range names {
			c.compare(path+"["+key+"="+name+"]", before[name], after[name])
		}
		if len(c.fields)+c.more == changes && !reflect.DeepEqual(a, b) {
			c.add(path, a, b) // only their order has changed
		}
		return
	}
	for i := range max(len(a), len(b)) {
		var before, after any
		if i < len(a) {
			before = a[i]
		}
		if i < len(b) {
			after = b[i]
		}
		c.compare(path+"["+strconv.Itoa(i)+"]", before, after)
	}
}

// byKey returns elements by a field. It reports false if one does not have it, or two have the same.
func byKey(list []any, key string) (map[string]any, bool) {
	out := make(map[string]any, len(list))
	for _, e := range list {
		m, _ := e.(map[string]any)
		value, ok := m[key]
		if !ok {
			return nil, false
		}
		name := fmt.Sprint(value)
		if _, double := out[name]; double {
			return nil, false
		}
		out[name] = e
	}
	return out, true
}
