// Package spdyframes writes whole frames of SPDY/3.1, as many as there are, with one system call, and reads frames, of
// which it divides large ones and refuses wrong ones.
//
// The framer of moby/spdystream writes a frame of data in three parts, two of them with four bytes each, and a
// connection with TLS gives its reader the bytes in records of 16 KiB. Without a buffer, each part is a system call and
// a packet, and often one more part for every program on the way. A reader of frames can use none before it is whole.
package spdyframes

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
)

const (
	headSize   = 8         // bytes before the content of a frame
	lengthMask = 1<<24 - 1 // of the second half of a head; the flags are above

	// mostHeld is how much of a frame is held back. Clients of Kubernetes send frames of 32 KiB.
	mostHeld = 64 << 10
)

// A Writer writes frames. It holds a frame back until that is whole, or until [mostHeld] bytes of it have come. It must
// be called by one goroutine at a time, as the framer does.
type Writer struct {
	to   io.Writer
	held []byte // the beginning of a frame
	at   frame  // after everything that has come
}

// A frame is a place in a frame.
type frame struct {
	head [headSize]byte
	have int // bytes of head
	left int // bytes of the content that have not come; 0 in a head
}

// NewWriter returns a writer. Everything written to it must be frames, from the beginning of one on. With a
// *net.TCPConn or *net.UnixConn it does not copy the content of frames that come as the framer writes them.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// pass moves the place over p, and returns where in p the last whole frame ends: 0 if none does.
func (f *frame) pass(p []byte) (whole int) {
	for done := 0; done < len(p); {
		if f.left == 0 {
			n := copy(f.head[f.have:], p[done:])
			f.have += n
			if done += n; f.have < headSize {
				return whole
			}
			f.have = 0
			f.left = int(binary.BigEndian.Uint32(f.head[headSize/2:]) & lengthMask)
		}
		n := min(f.left, len(p)-done)
		f.left -= n
		if done += n; f.left == 0 {
			whole = done
		}
	}
	return whole
}

// Write implements [io.Writer]. An error may be about bytes that an earlier call has accepted.
func (w *Writer) Write(p []byte) (int, error) {
	whole := w.at.pass(p)
	if whole == 0 && len(w.held)+len(p) > mostHeld {
		whole = len(p)
	}
	if whole > 0 {
		if err := w.send(p[:whole]); err != nil {
			return 0, err
		}
	}
	w.held = append(w.held, p[whole:]...)
	return len(p), nil
}

// ReadFrom implements [io.ReaderFrom]. It writes what whole frames there are each time that it has read something. The
// rest is held back, also at the end.
func (w *Writer) ReadFrom(r io.Reader) (n int64, err error) {
	w.held = slices.Grow(w.held, mostHeld-len(w.held))
	for {
		old := len(w.held)
		got, err := r.Read(w.held[old:cap(w.held)])
		n += int64(got)
		w.held = w.held[:old+got]
		whole := w.at.pass(w.held[old:])
		if whole > 0 {
			whole += old
		} else if len(w.held) == cap(w.held) {
			whole = len(w.held)
		}
		if whole > 0 {
			if _, err := w.to.Write(w.held[:whole]); err != nil {
				return n, err
			}
			w.held = w.held[:copy(w.held, w.held[whole:])]
		}
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// send writes what is held, and p.
func (w *Writer) send(p []byte) error {
	if len(w.held) == 0 {
		_, err := w.to.Write(p)
		return err
	}
	var err error
	switch w.to.(type) {
	case *net.TCPConn, *net.UnixConn:
		_, err = (&net.Buffers{w.held, p}).WriteTo(w.to)
	default:
		w.held = append(w.held, p...)
		_, err = w.to.Write(w.held)
	}
	w.held = w.held[:0]
	return err
}
