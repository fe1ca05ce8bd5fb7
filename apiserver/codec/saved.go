package codec

import (
	"fmt"
	"reflect"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/store"
)

// A Saver returns the saved forms of values for a walk through all values of a store, without keeping anything for
// later readers, and with next to no garbage. The zero Saver is ready for use, by one goroutine.
type Saver struct {
	buf    []byte
	copies map[reflect.Type]reflect.Value // one object of each type, to encode without a resource version
}

// Saved returns the saved form of a value, as its Bytes method does. It is good until the next call. It reports false
// if the value is a record that was never readable, whose bytes are not kept.
func (s *Saver) Saved(v store.Value) ([]byte, bool) {
	i, ok := v.(*Item)
	if !ok {
		return v.Bytes(), true
	}
	r := i.root()
	if r.untyped != nil {
		return r.untyped.record(), r.untyped.record() != nil
	}
	if r.Fault() != nil {
		return nil, false
	}
	if e := r.present(); e != nil {
		return e.data, true
	}
	obj := s.versionless(r.Object()).(marshaler) // it was encoded when it was stored
	data, _, err := appendSealed(s.buf[:0], r.kind.GroupVersion().String(), r.kind.Kind, obj)
	if err != nil {
		panic(fmt.Sprintf("codec: a stored %s does not encode: %v", r.kind.Kind, err))
	}
	s.buf = data
	return data, true
}

// versionless returns a copy of an object without its resource version. It shares maps, slices and pointers with the
// object, and is good until the next call.
func (s *Saver) versionless(obj catalog.Object) catalog.Object {
	from := reflect.ValueOf(obj).Elem()
	to, ok := s.copies[from.Type()]
	if !ok {
		if s.copies == nil {
			s.copies = map[reflect.Type]reflect.Value{}
		}
		to = reflect.New(from.Type())
		s.copies[from.Type()] = to
	}
	to.Elem().Set(from)
	out := to.Interface().(catalog.Object)
	out.SetResourceVersion("")
	return out
}

// present returns the protobuf of an item if it is there.
func (i *Item) present() *encoded {
	if e := i.proto.Load(); e != nil {
		return e
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if e := i.proto.Load(); e != nil {
		return e
	}
	return i.firstProto.Value()
}
