//go:build !libraryspdy

package spdy

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/spdystream/spdy"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdyframes"
)

// Limits of a connection.
const (
	// mostBuffers is how many streams may have content that was not read.
	mostBuffers = 16

	// mostReplies is how many bytes of answers may wait for a client that does not read: nothing more is read until they are
	// sent. A ping each five seconds needs seven hours for that.
	mostReplies = 64 << 10

	// probeInterval is how often a client gets a ping while nothing is read from its connection, because its end would not be
	// noticed otherwise.
	probeInterval = time.Minute

	// smallBuffer has room for the heads of frames, and for frames of keystrokes. Most of the content of a large frame does not
	// pass it.
	smallBuffer = 4 << 10
)

var (
	errGone = errors.New("the client has ended the connection")
	errIdle = errors.New("no frame came or went within the idle limit")
)

// A Server has the memory that its connections share. The zero value can be used. It must not be copied.
type Server struct{ buffers, frames sync.Pool }

// A Conn is a connection to a client.
type Conn struct {
	server   *Server
	conn     net.Conn
	o        Options
	begun    time.Time
	used     atomic.Int64  // when the last frame passed, since begun
	ended    chan struct{} // closed when err is set
	finished chan struct{} // closed when conn is closed

	// Used by Run only.
	in      *bufio.Reader
	head    [headSize]byte
	control *spdyframes.ControlReader
	last    uint32     // the highest number of a stream so far
	replied bool       // SYN_REPLY was sent for a stream
	senders *run.Group // send answers
	probe   *time.Timer

	writing sync.Mutex // held while bytes are written to conn
	sent    []byte     // guarded by writing; what replies were before

	mu      sync.Mutex
	room    sync.Cond // Run waits for it
	streams map[uint32]*Stream
	buffers int    // that streams have
	replies []byte // answers, and the ends of streams, that have not been sent
	sending bool   // a goroutine sends replies
	waiting bool   // Run waits for room
	err     error  // why the connection has ended; nil before that
}

// New returns a connection to a client, whose bytes come from in. The methods of conn are called concurrently.
func (s *Server) New(conn net.Conn, in io.Reader, o Options) (*Conn, error) {
	control, err := spdyframes.NewControlReader()
	if err != nil {
		return nil, err
	}
	c := &Conn{
		server: s, conn: conn, o: o, begun: time.Now(), ended: make(chan struct{}), finished: make(chan struct{}),
		in: bufio.NewReaderSize(endReader{in}, smallBuffer), control: control, streams: map[uint32]*Stream{},
	}
	c.room.L = &c.mu
	return c, nil
}

// Done returns a channel that is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.ended }

// Run serves the connection until it ends: its client ends it, sends a wrong frame or does nothing for too long, or ctx is cancelled,
// or [Conn.Close] is called. Then the connection is closed. The error says why, unless the client has ended it or Close was called.
func (c *Conn) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { c.abort(context.Cause(ctx)) })()
	defer c.watchIdle()()
	c.senders = run.NewGroup(context.WithoutCancel(ctx), 0)
	c.probe = time.AfterFunc(probeInterval, c.sendProbe)
	c.probe.Stop()
	if err := c.readFrames(); err != nil {
		c.abort(err)
	}
	c.senders.Wait()
	<-c.finished
	if err := c.cause(); !errors.Is(err, errGone) && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Close resets all streams that are still written to and closes the connection. The client gets everything that was written before.
func (c *Conn) Close() error {
	if !c.end(net.ErrClosed) {
		<-c.finished
		return nil
	}
	defer close(c.finished)
	if err := c.flush(); err != nil {
		_ = c.conn.Close()
		return err
	}
	return c.conn.Close()
}

// abort closes the connection at once, or stops Close from waiting for the client.
func (c *Conn) abort(err error) {
	if !c.fail(err) {
		_ = c.conn.SetDeadline(time.Unix(1, 0))
	}
}

// fail closes the connection at once. It does nothing, and returns false, if the connection has ended before.
func (c *Conn) fail(err error) bool {
	if !c.end(err) {
		return false
	}
	_ = c.conn.SetDeadline(time.Unix(1, 0)) // ends what writes
	_ = c.conn.Close()
	close(c.finished)
	return true
}

// end ends all streams. It returns false if the connection has ended before.
func (c *Conn) end(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false
	}
	c.err = err
	for _, s := range c.ordered() {
		if errors.Is(err, net.ErrClosed) {
			s.reset(spdy.Cancel)
		}
		s.more.Broadcast()
	}
	if errors.Is(err, net.ErrClosed) {
		c.replies = appendGoAway(c.replies, c.last)
	}
	c.room.Signal()
	close(c.ended)
	return true
}

// ordered returns the streams by their numbers.
func (c *Conn) ordered() []*Stream {
	var all []*Stream
	for _, s := range c.streams {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Stream) int { return cmp.Compare(a.id, b.id) })
	return all
}

func (c *Conn) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// touch records that a frame has passed.
func (c *Conn) touch() { c.used.Store(int64(time.Since(c.begun))) }

// watchIdle ends the connection when it was idle for too long, until the function that it returns is called.
func (c *Conn) watchIdle() (stop func() bool) {
	var timer *time.Timer
	set := make(chan struct{})
	timer = time.AfterFunc(c.o.Idle, func() {
		<-set
		left := c.o.Idle - (time.Since(c.begun) - time.Duration(c.used.Load()))
		if left <= 0 {
			c.abort(errIdle)
			return
		}
		timer.Reset(left)
	})
	close(set)
	return timer.Stop
}
