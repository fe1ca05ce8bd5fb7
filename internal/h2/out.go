//go:build !libraryh2

package h2

import (
	"bytes"
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	mostPending = 64 << 10  // bytes that wait to be sent, beside headers and one frame
	mostReplies = 1 << 20   // bytes that wait to be sent, when the client is one that does not read
	enough      = 32 << 10  // bytes that are sent without waiting for more
	kept        = 128 << 10 // bytes of a buffer that is used again
	sends       = 2         // that a request does, before the rest is sent by another goroutine
	names       = 100       // header fields whose names are remembered
)

// An out is what a connection sends. All of it is guarded by the connection's mu.
type out struct {
	pending []byte // frames
	buffers *sync.Pool
	sending bool // a goroutine sends
	waiting []*sync.Cond

	window int64 // bytes of bodies that the client takes, of all streams
	first  int64 // window of a new stream
	frame  int   // the largest payload of a frame

	compress *hpack.Encoder
	block    bytes.Buffer      // a header, compressed
	lower    map[string]string // names of header fields
}

func (o *out) init(buffers *sync.Pool) {
	o.buffers = buffers
	o.window, o.first, o.frame = firstWindow, firstWindow, smallestFrame
	o.compress = hpack.NewEncoder(&o.block)
	o.lower = map[string]string{}
}

// Write adds a frame. It implements [io.Writer] for the framer.
func (o *out) Write(b []byte) (int, error) {
	if o.pending == nil {
		if used, ok := o.buffers.Get().(*[]byte); ok {
			o.pending = *used
		}
	}
	o.pending = append(o.pending, b...)
	return len(b), nil
}

// wait lets c be woken when there is room or the window of the connection has grown.
func (o *out) wait(c *sync.Cond) {
	if !slices.Contains(o.waiting, c) {
		o.waiting = append(o.waiting, c)
	}
}

func (o *out) wake() {
	for _, c := range o.waiting {
		c.Broadcast()
	}
	clear(o.waiting)
	o.waiting = o.waiting[:0]
}

// name returns the name of a header field as HTTP/2 writes it.
func (o *out) name(canonical string) string {
	if name, ok := o.lower[canonical]; ok {
		return name
	}
	name := strings.ToLower(canonical)
	if len(o.lower) < names {
		o.lower[canonical] = name
	}
	return name
}

// field adds a field to the header that writeHeader writes.
func (o *out) field(name, value string) {
	_ = o.compress.WriteField(hpack.HeaderField{Name: name, Value: value})
}

// writeHeader adds the frames of the header whose fields were added. The caller holds mu.
func (c *conn) writeHeader(id uint32, end bool) {
	block := c.out.block.Bytes()
	n := min(len(block), c.out.frame)
	_ = c.frames.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: block[:n], EndStream: end, EndHeaders: n == len(block),
	})
	for block = block[n:]; len(block) > 0; block = block[n:] {
		n = min(len(block), c.out.frame)
		_ = c.frames.WriteContinuation(id, n == len(block), block[:n])
	}
	c.out.block.Reset()
}

// send sends what is pending, on another goroutine: the one that reads must not wait. A client may not read before we have read
// what it sends.
func (c *conn) send() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendElsewhere()
}

// flush sends what is pending, and what is added while it does, up to a limit. If another goroutine sends, that takes all with it.
// The caller holds mu, which is free while flush sends.
func (c *conn) flush() {
	if c.out.sending || len(c.out.pending) == 0 || c.err != nil {
		return
	}
	c.out.sending = true
	for range sends {
		if !c.sendOnce() {
			break
		}
	}
	c.sent()
	c.sendElsewhere() // the request that brought us here has its own work to do
}

// flushTogether is flush, after other requests of the connection could add what they have: events of many watches, and answers that
// are ready together, share what is sent.
func (c *conn) flushTogether() {
	if c.running > 1 && !c.out.sending {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	c.flush()
}

// sent ends what a goroutine sends. The caller holds mu.
func (c *conn) sent() {
	c.out.sending = false
	c.out.wake()
	c.endIfLast()
}

// sendElsewhere is send, for callers that hold mu.
func (c *conn) sendElsewhere() {
	if c.out.sending || len(c.out.pending) == 0 || c.err != nil {
		return
	}
	c.out.sending = c.group.Go(func(context.Context) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for c.sendOnce() {
		}
		c.sent()
	})
}

// sendOnce sends what is pending. It reports false if there is nothing, or nothing can be sent. The caller holds mu,
// which is free while sendOnce sends.
func (c *conn) sendOnce() bool {
	frames := c.out.pending
	if len(frames) == 0 || c.err != nil {
		return false
	}
	c.out.pending = nil
	c.mu.Unlock()
	_, err := c.net.Write(frames)
	c.mu.Lock()
	if frames = frames[:0]; cap(frames) <= kept {
		c.out.buffers.Put(&frames)
	}
	if err != nil {
		c.broken(err)
	}
	c.out.wake()
	return true
}

// flooded returns an error if more is pending than answers can make it: the client sends frames that ask for a reply, and does
// not read the replies (CVE-2019-9512, CVE-2019-9515).
func (c *conn) flooded() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out.pending) > mostReplies {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
}
