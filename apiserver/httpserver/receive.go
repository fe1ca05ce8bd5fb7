package httpserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/apiserver/fairness"
)

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }} // as listBuffers

const (
	discarded = 16 << 20  // bytes that are read of a body that is refused, so that its client reads the answer
	keptBody  = 256 << 10 // the size up to which a body's buffer is used again
	bodyShare = 32 << 10  // the first charge for a body of unknown size, and the least for any: its request needs memory, too
)

// An incoming is the body of a request.
type incoming struct {
	buf      *bytes.Buffer // nil if there is none
	held     int           // bytes that it counts for
	complete bool          // nothing more of it is read
}

// receiveBody reads the request's body, before the request takes a seat: a client that sends slowly holds nothing but a part
// of its user's share of memory for bodies. [exchange.dropBody] gives that back.
func (x *exchange) receiveBody() error {
	size := x.r.ContentLength
	switch {
	case size == 0:
		return nil
	case size > maxBody:
		x.discardBody()
		return tooLargeBody()
	}
	if err := x.holdBytes(max(int(size), bodyShare)); err != nil {
		return err
	}
	x.in.buf = bodies.Get().(*bytes.Buffer)
	if size > 0 {
		x.in.buf.Grow(min(int(size), keptBody) + bytes.MinRead)
	}
	in := x.intake(maxBody + 1)
	in.pace.begin()
	err := x.fillBody(&in.limited)
	in.pace.stop()
	if err == nil {
		if x.in.buf.Len() > maxBody {
			x.discardBody()
			return tooLargeBody()
		}
		x.in.complete = true
		return nil
	}
	if refused := (*fairness.RefusedError)(nil); errors.As(err, &refused) {
		return err
	}
	x.in.complete = true // as far as it will
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return apierrors.NewTimeoutError(fmt.Sprintf("the request body did not arrive in time: %d bytes in %s, want at least %d bytes per second after that",
			in.pace.moved.Load(), bodyPatience, clientRate), 0)
	}
	return apierrors.NewBadRequest(fmt.Sprintf("reading the body: %v", err))
}

// An intake reads a body, in one piece of memory.
type intake struct {
	pace    pace
	reader  pacedReader
	limited io.LimitedReader // of reader
}

// intake returns an intake of so many bytes of the body at most.
func (x *exchange) intake(limit int64) *intake {
	in := &intake{pace: pace{cut: x.cutRead, patience: bodyPatience}}
	in.reader = pacedReader{x.r.Body, &in.pace, x.conn}
	in.limited = io.LimitedReader{R: &in.reader, N: limit}
	return in
}

// discardBody reads the rest of a body that is too large, if that is no more than discarded bytes, over HTTP/1.1: many clients
// send all of a body before they read the answer, and would see a broken connection instead. A client that waits for the
// server before it sends the body (Expect: 100-continue) gets the answer at once.
func (x *exchange) discardBody() {
	if x.r.ProtoMajor != 1 || x.r.ContentLength > discarded || x.r.Header.Get("Expect") != "" {
		return
	}
	in := x.intake(discarded)
	in.pace.begin()
	n, err := io.Copy(io.Discard, &in.limited)
	in.pace.stop()
	x.in.complete = err == nil && n < discarded
}

// fillBody reads into the buffer. A body of unknown size counts for more as it grows.
func (x *exchange) fillBody(from io.Reader) error {
	if x.r.ContentLength > 0 {
		_, err := x.in.buf.ReadFrom(from)
		return err
	}
	for {
		n, err := x.in.buf.ReadFrom(io.LimitReader(from, int64(x.in.held-x.in.buf.Len()+1)))
		if err != nil || n == 0 || x.in.buf.Len() <= x.in.held {
			return err
		}
		if err := x.holdBytes(x.in.held); err != nil { // twice as much
			return err
		}
	}
}

// holdBytes counts bytes for the body.
func (x *exchange) holdBytes(n int) error {
	if err := x.flow.Take(fairness.Bytes, n); err != nil {
		return err
	}
	x.in.held += n
	return nil
}

// dropBody forgets the body.
func (x *exchange) dropBody() {
	if x.in.buf != nil && x.in.buf.Cap() <= keptBody {
		x.in.buf.Reset()
		bodies.Put(x.in.buf)
	}
	if x.in.held > 0 {
		x.flow.Return(fairness.Bytes, x.in.held)
	}
	x.in.buf, x.in.held = nil, 0
}

// body gives the received body to use, whose argument is only good while it runs.
func (x *exchange) body(use func([]byte) error) error {
	if x.in.buf == nil {
		return use(nil)
	}
	return use(x.in.buf.Bytes())
}

func tooLargeBody() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
}

// unread reports whether there is a body, over HTTP/1.1, of which something was not read.
func (x *exchange) unread() bool {
	return x.r.ProtoMajor == 1 && x.r.ContentLength != 0 && !x.in.complete
}

// leaveBody ends a request over HTTP/1.1 whose body was not read: net/http reads the rest of it, without a
// deadline of its own.
func (x *exchange) leaveBody() {
	if x.unread() {
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Now().Add(unreadTimeout))
	}
}
