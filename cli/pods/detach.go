package pods

import (
	"bytes"
	"errors"
	"io"
)

// A detachReader reads a terminal until the user presses keys in a row. These are not passed on. The beginning of them is held back
// until the next key shows whether it was meant.
type detachReader struct {
	in     io.Reader
	keys   []byte // at least one
	detach func() // called at the end, if the keys were pressed

	held []byte // a beginning of keys that has been read
	next []byte // read, and passed on next
	end  error  // after that
}

// errDetached is the cause of the end of a call that the user has left.
var errDetached = errors.New("detached")

// Read implements [io.Reader]. It returns io.EOF after the keys.
func (r *detachReader) Read(p []byte) (int, error) {
	for len(p) > 0 && len(r.next) == 0 && r.end == nil {
		n, err := r.in.Read(p)
		r.take(p[:n])
		if r.end == nil && err != nil {
			r.next, r.held, r.end = append(r.next, r.held...), nil, err
		}
	}
	n := copy(p, r.next)
	r.next = r.next[n:]
	if n > 0 || len(p) == 0 {
		return n, nil
	}
	if errors.Is(r.end, errDetached) {
		r.detach() // not before: everything that was pressed earlier has been sent by now
		return 0, io.EOF
	}
	return 0, r.end
}

// take sorts the bytes read.
func (r *detachReader) take(read []byte) {
	for _, b := range read {
		r.held = append(r.held, b)
		for !bytes.HasPrefix(r.keys, r.held) {
			r.next, r.held = append(r.next, r.held[0]), r.held[1:]
		}
		if len(r.held) == len(r.keys) {
			r.end = errDetached
			return
		}
	}
}
