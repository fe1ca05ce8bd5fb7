package changes

import (
	"cmp"
	"container/heap"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
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
	c.compare(withoutIgnored(before), withoutIgnored(after))
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

// A comparison collects changed fields. Once there are as many as are shown, it only counts: it neither sorts names nor
// makes paths.
type comparison struct {
	path   []string // the steps from the object to the values that are compared
	fields []Field
	more   int
}

// full reports whether changed fields are only counted.
func (c *comparison) full() bool { return len(c.fields) == maxFields }

func (c *comparison) add(before, after any) {
	if c.full() {
		c.more++
		return
	}
	path := strings.Join(c.path, "")
	c.fields = append(c.fields, Field{cmp.Or(path, "."), shortened(before), shortened(after)})
}

// at compares two values that are a step below the current path. The step is only computed if it may be shown.
func (c *comparison) at(step func() string, before, after any) {
	if c.full() {
		c.compare(before, after)
		return
	}
	c.path = append(c.path, step())
	c.compare(before, after)
	c.path = c.path[:len(c.path)-1]
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

func (c *comparison) compare(before, after any) {
	switch a := before.(type) {
	case map[string]any:
		if b, ok := after.(map[string]any); ok {
			c.compareMaps(step, a, b)
			return
		}
	case []any:
		if b, ok := after.([]any); ok {
			c.compareLists(a, b)
			return
		}
	}
	if !reflect.DeepEqual(before, after) { // linear: it never looks into two maps or two lists
		c.add(before, after)
	}
}

// compareMaps compares the values with the same name, in the order of the names as long as changes are shown.
func (c *comparison) compareMaps(step func(name string) string, a, b map[string]any) {
	if c.full() {
		for name, before := range a {
			c.compare(before, b[name])
		}
		for name, after := range b {
			if _, ok := a[name]; !ok {
				c.compare(nil, after)
			}
		}
		return
	}
	var differ names
	for name, before := range a {
		if after, ok := b[name]; !ok || !sameScalar(before, after) {
			differ.StringSlice = append(differ.StringSlice, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			differ.StringSlice = append(differ.StringSlice, name)
		}
	}
	heap.Init(&differ) // sorting all names would cost more than the first ones do
	for !c.full() && differ.Len() > 0 {
		name, _ := heap.Pop(&differ).(string)
		c.at(func() string { return step(name) }, a[name], b[name])
	}
	for _, name := range differ.StringSlice {
		c.compare(a[name], b[name])
	}
}

// names is a heap of names, the smallest one first.
type names struct{ sort.StringSlice }

func (n *names) Push(x any) {
	name, _ := x.(string)
	n.StringSlice = append(n.StringSlice, name)
}

func (n *names) Pop() any {
	last := len(n.StringSlice) - 1
	name := n.StringSlice[last]
	n.StringSlice = n.StringSlice[:last]
	return name
}

// sameScalar reports whether two values are equal, and are neither maps nor lists.
func sameScalar(a, b any) bool {
	switch a.(type) {
	case map[string]any, []any:
		return false
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

var (
	plainName  = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	plainValue = regexp.MustCompile(`^[A-Za-z0-9_./:-]+$`)
)

// maxName is how much of a name in a path is shown, in bytes.
const maxName = 500

// step returns the part of a path that is a field.
func step(name string) string {
	if len(name) <= maxName && plainName.MatchString(name) {
		return "." + name
	}
	return "[" + quoted(name) + "]"
}

// quoted returns a name in quotes, without control characters, or the beginning of a long one.
func quoted(name string) string {
	if len(name) > maxName {
		return fmt.Sprintf("%s… (%d bytes)", strconv.Quote(name[:maxName]), len(name))
	}
	return strconv.Quote(name)
}

// listKeys are the fields that identify elements of lists, as most lists of Kubernetes have them.
var listKeys = []string{"name", "type", "containerPort", "ip", "key", "uid"}

// compareLists compares elements with the same key, where all have one, and otherwise those at the same place.
func (c *comparison) compareLists(a, b []any) {
	for _, key := range listKeys {
		before, ok := byKey(a, key)
		if !ok {
			continue
		}
		after, ok := byKey(b, key)
		if !ok || len(a)+len(b) == 0 {
			continue
		}
		changes := len(c.fields) + c.more
		c.compareMaps(func(name string) string {
			if len(name) > maxName || !plainValue.MatchString(name) {
				name = quoted(name)
			}
			return "[" + key + "=" + name + "]"
		}, before, after)
		sameName := func(x, y any) bool {
			name, _ := keyOf(x, key)
			other, _ := keyOf(y, key)
			return name == other
		}
		if len(c.fields)+c.more == changes && !slices.EqualFunc(a, b, sameName) {
			c.add(a, b) // only their order has changed
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
		c.at(func() string { return "[" + strconv.Itoa(i) + "]" }, before, after)
	}
}

// byKey returns elements by a field. It reports false if one does not have it, or two have the same.
func byKey(list []any, key string) (map[string]any, bool) {
	if len(list) > 0 {
		if _, ok := keyOf(list[0], key); !ok {
			return nil, false
		}
	}
	out := make(map[string]any, len(list))
	for _, e := range list {
		name, ok := keyOf(e, key)
		if !ok {
			return nil, false
		}
		if _, double := out[name]; double {
			return nil, false
		}
		out[name] = e
	}
	return out, true
}

// keyOf returns the value of a field of an element, if it is neither a map nor a list.
func keyOf(element any, key string) (string, bool) {
	m, _ := element.(map[string]any)
	switch value := m[key].(type) {
	case nil, map[string]any, []any:
		return "", false
	case string:
		return value, true
	default:
		return fmt.Sprint(value), true
	}
}
