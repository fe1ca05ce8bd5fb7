package codec

import "github.com/sampan-io/sampan/store"

// Saved returns the saved form of a value, as its Bytes method does, without keeping anything for later readers: it is
// for a walk through all values of a store. It reports false if the value is a record that was never readable, whose
// bytes are not kept.
func Saved(v store.Value) ([]byte, bool) {
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
	e := r.proto.Load()
	if e == nil {
		e = r.passing()
	}
	return e.data, true
}

// passing returns the protobuf of an item, made again unless it is there.
func (i *Item) passing() *encoded {
	i.mu.Lock()
	defer i.mu.Unlock()
	if e := i.proto.Load(); e != nil {
		return e
	}
	if e := i.firstProto.Value(); e != nil {
		return e
	}
	return i.mustEncode()
}
