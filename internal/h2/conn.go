//go:build !libraryh2

package h2

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sampan-io/sampan/internal/run"
)

const (
	largestWindow = 1<<31 - 1 // RFC 9113, section 6.9.1
	firstWindow   = 1<<16 - 1 // of both sides, before any frame; section 6.9.2
	smallestFrame = 1 << 14   // that every client takes, and that we take; section 4.2
	headerTable   = 4 << 10   // bytes of the table of header compression, each way
	readBuffer    = 4 << 10
	discarded     = 1 << 20 // bytes that are read at most after the code that ends a connection was sent
)

var (
	errClosed = errors.New("the HTTP/2 connection is closed")
	errGone   = errors.New("the client reset the HTTP/2 stream")
)

// A conn is one connection. Its goroutine reads frames; the goroutines of its requests write them.
type conn struct {
	srv     *server
	net     *tls.Conn
	state   tls.ConnectionState
	remote  string
	handler http.Handler
	group   *run.Group // the goroutines of requests

	// Of the goroutine that reads.
	in     *bufio.Reader
	frames *http2.Framer
	last   uint32 // the highest stream that the client has opened; written with mu held, too

	mu      sync.Mutex
	streams map[uint32]*stream // guarded by mu; the ones that are not ended on both sides
	running int                // guarded by mu; requests that are being served
	idle    time.Time          // guarded by mu; since when running is 0
	timer   *time.Timer        // guarded by mu; ends an idle connection
	leaving bool               // guarded by mu; no more streams are served
	ending  bool               // guarded by mu; nothing is left to do, and reads have their last deadline
	err     error              // guarded by mu; why nothing can be sent any more
	receive window             // guarded by mu; what the client may send
	out     out                // guarded by mu
}

// serve serves a connection until it ends. It returns when all its requests have.
func (s *server) serve(ctx context.Context, raw *tls.Conn, h http.Handler) {
	c := &conn{
		srv: s, net: raw, state: raw.ConnectionState(), remote: raw.RemoteAddr().String(), handler: h,
		group: run.NewGroup(ctx, 0), in: bufio.NewReaderSize(raw, readBuffer), streams: map[uint32]*stream{},
		receive: window{left: int64(s.unread), size: int64(s.unread)},
	}
	defer c.group.Stop()
	c.out.init(&s.buffers)
	c.frames = http2.NewFramer(&c.out, c.in)
	c.frames.ReadMetaHeaders = hpack.NewDecoder(headerTable, nil)
	c.frames.MaxHeaderListSize = s.header
	c.frames.SetMaxReadFrameSize(smallestFrame)
	c.frames.SetReuseFrames()
	if !s.add(c) {
		return
	}
	defer s.remove(c)
	defer c.fail(errClosed)
	if err := c.greet(); err != nil {
		c.end(err)
		return
	}
	c.mu.Lock()
	c.idle = time.Now()
	if s.idleTimeout > 0 && c.err == nil { // broken would have stopped it
		c.timer = time.AfterFunc(s.idleTimeout, c.look)
	}
	c.mu.Unlock()
	c.end(c.read())
}

// greet sends our settings and reads the client's preface.
func (c *conn) greet() error {
	c.mu.Lock()
	_ = c.frames.WriteSettings(
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: c.srv.streams},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: c.srv.header},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: c.srv.unreadOne},
	)
	if c.srv.unread > firstWindow {
		_ = c.frames.WriteWindowUpdate(0, c.srv.unread-firstWindow)
	}
	c.sendElsewhere()
	c.mu.Unlock()
	if err := c.net.SetReadDeadline(time.Now().Add(prefaceTimeout)); err != nil {
		return err
	}
	var preface [len(http2.ClientPreface)]byte
	if _, err := io.ReadFull(c.in, preface[:]); err != nil {
		return err
	}
	if !bytes.Equal(preface[:], []byte(http2.ClientPreface)) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	f, err := c.frames.ReadFrame()
	if err != nil {
		return err
	}
	settings, ok := f.(*http2.SettingsFrame)
	if !ok || settings.IsAck() {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if err := c.settings(settings); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending { // the server has begun to shut down
		return nil
	}
	return c.net.SetReadDeadline(time.Time{})
}

// read reads frames until the connection ends, and returns why.
func (c *conn) read() error {
	for {
		if c.in.Buffered() == 0 {
			c.send()
		}
		f, err := c.frames.ReadFrame()
		if err == nil {
			err = c.take(f)
		}
		var one http2.StreamError
		switch {
		case err == nil:
		case errors.As(err, &one):
			c.mu.Lock()
			c.last = max(c.last, one.StreamID) // one whose header is wrong has been opened, too
			c.reset(one.StreamID, one.Code)
			c.mu.Unlock()
		case errors.Is(err, http2.ErrFrameTooLarge):
			return http2.ConnectionError(http2.ErrCodeFrameSize)
		default:
			return err
		}
		if err := c.flooded(); err != nil {
			return err
		}
	}
}

// take acts on a frame. An error is a [http2.StreamError] or ends the connection.
func (c *conn) take(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		return c.headers(f)
	case *http2.DataFrame:
		return c.data(f)
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.WindowUpdateFrame:
		return c.widen(f)
	case *http2.RSTStreamFrame:
		return c.gone(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			c.mu.Lock()
			_ = c.frames.WritePing(true, f.Data)
			c.mu.Unlock()
		}
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	case *http2.GoAwayFrame:
		c.leave()
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil // RFC 9113, section 4.1: frames of other types are ignored
}

func (c *conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.out.first
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingHeaderTableSize:
			c.out.compress.SetMaxDynamicTableSize(min(s.Val, headerTable))
		case http2.SettingInitialWindowSize:
			first = int64(s.Val)
		case http2.SettingMaxFrameSize:
			c.out.frame = min(int(s.Val), enough) // the framer keeps a buffer for one
		}
		return nil
	})
	if err == nil {
		err = c.resize(first)
	}
	if err != nil {
		return err
	}
	return c.frames.WriteSettingsAck()
}

// resize changes the windows of all streams, to which the client's first window has become size. The caller holds mu.
func (c *conn) resize(size int64) error {
	change := size - c.out.first
	if change == 0 {
		return nil
	}
	c.out.first = size
	for _, s := range c.streams {
		if s.window += change; s.window > largestWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		s.changed.Broadcast()
	}
	return nil
}

// widen takes what else the client lets us send.
func (c *conn) widen(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID == 0 {
		if c.out.window += int64(f.Increment); c.out.window > largestWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		c.out.wake()
		return nil
	}
	if f.StreamID > c.last && !c.leaving {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if s := c.streams[f.StreamID]; s != nil {
		if s.window += int64(f.Increment); s.window > largestWindow {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
		}
		s.changed.Broadcast()
	}
	return nil
}

// gone ends a stream that the client has reset.
func (c *conn) gone(f *http2.RSTStreamFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID > c.last && !c.leaving {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if s := c.streams[f.StreamID]; s != nil {
		c.drop(s, errGone)
	}
	return nil
}

// reset ends a stream on both sides, with a code. The caller holds mu.
func (c *conn) reset(id uint32, code http2.ErrCode) {
	_ = c.frames.WriteRSTStream(id, code)
	if s := c.streams[id]; s != nil {
		c.drop(s, http2.StreamError{StreamID: id, Code: code})
	}
}

// forget takes a stream off the connection. The caller holds mu.
func (c *conn) forget(s *stream) {
	delete(c.streams, s.id)
	c.endIfLast()
}

// credit gives the client back n bytes of the connection's window. The caller holds mu.
func (c *conn) credit(n int) {
	if more := c.receive.give(int64(n)); more > 0 {
		_ = c.frames.WriteWindowUpdate(0, more)
	}
}

// drop ends a stream for its request. The caller holds mu.
func (c *conn) drop(s *stream, err error) {
	s.err = err
	c.forget(s)
	s.empty()
	if s.cancel != nil {
		s.cancel()
	}
	s.changed.Broadcast()
}

// leave lets the connection end after the requests that the client has sent.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.goAway()
	c.sendElsewhere()
}

// goAway is leave, for callers that hold mu. A client sends the requests again that it has sent since.
func (c *conn) goAway() {
	if c.leaving || c.err != nil {
		return
	}
	c.leaving = true
	_ = c.frames.WriteGoAway(c.last, http2.ErrCodeNo, nil)
	c.endIfLast()
}

// endIfLast ends a connection that is leaving when its last stream has ended and its answer was sent. The caller holds mu.
func (c *conn) endIfLast() {
	if c.leaving && !c.ending && len(c.streams) == 0 && c.running == 0 && !c.out.sending && len(c.out.pending) == 0 {
		c.ending = true
		_ = c.net.SetReadDeadline(time.Now().Add(goAwayTimeout))
	}
}

// look ends the connection if it has been idle for long.
func (c *conn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := c.srv.idleTimeout
	if c.running == 0 {
		left -= time.Since(c.idle)
	}
	switch {
	case c.err != nil:
	case left > 0:
		c.timer.Reset(left)
	default:
		c.goAway()
		c.sendElsewhere()
	}
}

// end sends the code of an error of the protocol, and closes the connection.
func (c *conn) end(err error) {
	var code http2.ConnectionError
	if errors.As(err, &code) {
		c.srv.log.Printf("http2: connection of %s: %v", c.remote, err)
		c.mu.Lock()
		_ = c.frames.WriteGoAway(c.last, http2.ErrCode(code), nil)
		_ = c.net.SetWriteDeadline(time.Now().Add(goAwayTimeout))
		c.sendElsewhere()
		for sent := sync.NewCond(&c.mu); c.out.sending && c.err == nil; {
			c.out.wait(sent)
			sent.Wait()
		}
		c.mu.Unlock()
		// Closing with unread bytes would let the kernel drop what has been sent.
		_ = c.net.CloseWrite()
		_ = c.net.SetReadDeadline(time.Now().Add(goAwayTimeout))
		_, _ = io.CopyN(io.Discard, c.in, discarded)
	}
	if err == nil {
		err = errClosed
	}
	c.fail(fmt.Errorf("the HTTP/2 connection has ended: %w", err))
}

// fail closes the connection, and ends its requests.
func (c *conn) fail(err error) {
	_ = c.net.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken(err)
}

// broken ends the requests of a connection on which nothing can be sent any more. The caller holds mu.
func (c *conn) broken(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	_ = c.net.NetConn().Close() // without an alert, which would wait for the client
	if c.timer != nil {
		c.timer.Stop()
	}
	for _, s := range c.streams {
		c.drop(s, err)
	}
	c.out.wake()
}

// A window is what the client may send.
type window struct {
	left, size int64
	read       int64 // bytes that were read and of which the client does not know yet
}

// take takes n bytes from the window. It reports false if the client may not send so many.
func (w *window) take(n int64) bool {
	w.left -= n
	return w.left >= 0
}

// give gives back n bytes that were read, and returns by how much the client's window is to be widened: nothing, until
// half of the window has been read.
func (w *window) give(n int64) uint32 {
	if w.read += n; w.read < w.size/2 {
		return 0
	}
	n, w.read = w.read, 0
	w.left += n
	return uint32(n)
}
