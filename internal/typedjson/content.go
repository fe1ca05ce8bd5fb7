package typedjson

import (
	"encoding/json"
	"slices"
	"strconv"
)

// UnmarshalContent reads a JSON object without a Go type into maps, lists, texts, int64, booleans and nil. It either reports
// false, or has made what sigs.k8s.io/json's UnmarshalStrict makes, which then would have returned neither an error nor a
// strict error (J5).
func UnmarshalContent(data []byte) (map[string]any, bool) {
	r := reader{data: data}
	r.space()
	if r.peek() != '{' {
		return nil, false
	}
	v, ok := r.content()
	if !ok {
		return nil, false
	}
	r.space()
	content, ok := v.(map[string]any)
	return content, ok && r.at == len(data)
}

// content takes a value of any type.
func (r *reader) content() (any, bool) {
	switch c := r.peek(); c {
	case '"':
		return r.text()
	case 't':
		return true, r.word("true")
	case 'f':
		return false, r.word("false")
	case 'n':
		return nil, r.word("null")
	case '{', '[':
		if r.depth++; r.depth > deepest {
			return nil, false
		}
		r.at++
		r.space()
		var v any
		var ok bool
		if c == '{' {
			v, ok = r.contentMap()
		} else {
			v, ok = r.contentList()
		}
		r.depth--
		return v, ok
	}
	n, negative, ok := r.whole()
	return n, ok && !(negative && n == 0) // -0 is a floating point number
}

func (r *reader) contentMap() (map[string]any, bool) {
	m := map[string]any{}
	if r.peek() == '}' {
		r.at++
		return m, true
	}
	for {
		name, ok := r.member()
		if !ok {
			return nil, false
		}
		v, ok := r.content()
		before := len(m)
		if m[name] = v; !ok || len(m) == before {
			return nil, false
		}
		if more, ok := r.more('}'); !more {
			return m, ok
		}
	}
}

func (r *reader) contentList() ([]any, bool) {
	list := []any{}
	if r.peek() == ']' {
		r.at++
		return list, true
	}
	for {
		v, ok := r.content()
		if !ok {
			return nil, false
		}
		list = append(list, v)
		if more, ok := r.more(']'); !more {
			return list, ok
		}
	}
}

// MarshalContent returns the bytes and the errors of encoding/json's Marshal for an object without a Go type (J2).
func MarshalContent(content map[string]any) ([]byte, error) {
	buf := buffers.Get().(*[]byte)
	w := contentWriter{dst: (*buf)[:0]}
	err := w.object(content, 0)
	if cap(w.dst) <= keptBuffer {
		*buf = w.dst
	}
	var out []byte
	if err == nil {
		out = slices.Clone(w.dst)
	}
	buffers.Put(buf)
	if err != nil {
		return json.Marshal(content) // which knows what is wrong
	}
	return out, nil
}

// A contentWriter appends values. It sorts the names of each object at the end of one list.
type contentWriter struct {
	dst   []byte
	names []string
}

func (w *contentWriter) value(v any, depth int) error {
	switch v := v.(type) {
	case nil:
		w.dst = append(w.dst, "null"...)
	case string:
		w.dst = appendText(w.dst, v)
	case bool:
		w.dst = strconv.AppendBool(w.dst, v)
	case int64:
		w.dst = strconv.AppendInt(w.dst, v, 10)
	case float64:
		text, err := json.Marshal(v)
		w.dst = append(w.dst, text...)
		return err
	case map[string]any:
		return w.object(v, depth)
	case []any:
		return w.list(v, depth)
	default:
		return errForeign
	}
	return nil
}

func (w *contentWriter) object(m map[string]any, depth int) error {
	if m == nil {
		w.dst = append(w.dst, "null"...)
		return nil
	}
	if depth++; depth > deepestContent {
		return errForeign
	}
	from := len(w.names)
	for name := range m {
		w.names = append(w.names, name)
	}
	names := w.names[from:]
	slices.Sort(names)
	w.dst = append(w.dst, '{')
	for i, name := range names {
		if i > 0 {
			w.dst = append(w.dst, ',')
		}
		w.dst = append(appendText(w.dst, name), ':')
		if err := w.value(m[name], depth); err != nil {
			return err
		}
	}
	w.names = w.names[:from]
	w.dst = append(w.dst, '}')
	return nil
}

// deepestContent is fewer levels than those after which encoding/json looks for values that contain themselves.
const deepestContent = 900

func (w *contentWriter) list(list []any, depth int) error {
	if list == nil {
		w.dst = append(w.dst, "null"...)
		return nil
	}
	if depth++; depth > deepestContent {
		return errForeign
	}
	w.dst = append(w.dst, '[')
	for i, v := range list {
		if i > 0 {
			w.dst = append(w.dst, ',')
		}
		if err := w.value(v, depth); err != nil {
			return err
		}
	}
	w.dst = append(w.dst, ']')
	return nil
}
