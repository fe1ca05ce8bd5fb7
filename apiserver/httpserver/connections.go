package httpserver

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/fairness"
	"github.com/sampan-io/sampan/apiserver/priority"
	"github.com/sampan-io/sampan/internal/lingering"
	"github.com/sampan-io/sampan/internal/records"
)

// A connection has no user before its first request. Of these there may be maxNew at a time, each for at
// most firstRequest; one more closes the oldest, so that a client that goes on, as a handshake and a request do
// within milliseconds, gets through however many others there are that don't. The first request makes the
// connection its user's, and counts among the connections that the user may have.
type connections struct {
	limits *fairness.Limits
	maxNew int

	mu    sync.Mutex
	fresh list.List // guarded by mu; of *connection, the oldest first
}

// A connection is one that was accepted.
type connection struct {
	net.Conn
	*records.Held // of writes

	all   *connections
	owner atomic.Pointer[owner]         // nil before the first request
	rules atomic.Pointer[priority.User] // of the user whose request came last; may be nil
	out   pace                          // of writes
	long  pace                          // of writes after it has become a stream of another protocol

	earned   atomic.Int64 // requests, and pieces of bodies and answers, so far
	upgraded atomic.Bool  // it has become a stream of another protocol

	// Of Read, which is called by one goroutine at a time.
	window time.Time // when reads began to be counted
	reads  int       // since then, or since something was earned
	known  int64     // earned at the last read

	mu     sync.Mutex
	closed bool          // guarded by mu
	timer  *time.Timer   // guarded by mu; closes the connection if no request comes
	place  *list.Element // guarded by connections.mu; nil if it is not in the list
	second time.Time     // guarded by mu; when requests began to be counted that were given up
	gaveUp int           // guarded by mu; how many since then
}

// mostGivenUp is how many requests a client may give up within a second on one connection. HTTP/2 lets a client begin
// and reset streams as fast as it can write, without waiting for the server (CVE-2023-44487); net/http bounds only how
// many of these run at a time.
const mostGivenUp = 100

// givenUp counts a request that the client gave up before it was answered, and closes the connection if these are too many.
func (c *connection) givenUp() {
	c.mu.Lock()
	now := time.Now()
	if now.Sub(c.second) > time.Second {
		c.second, c.gaveUp = now, 0
	}
	c.gaveUp++
	tooMany := c.gaveUp > mostGivenUp
	c.mu.Unlock()
	if tooMany {
		_ = c.Close()
	}
}

// An owner is the user whose request came last on a connection.
type owner struct {
	user *auth.User
	flow *fairness.Flow
}

// A countedListener accepts connections for a server.
type countedListener struct {
	net.Listener
	all *connections
}

// Accept implements [net.Listener].
func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.all.add(c), nil
}

func (all *connections) add(raw net.Conn) *connection {
	c := &connection{Conn: raw, all: all}
	c.Held = records.NewHeld(c.send)
	c.out.cut, c.out.patience, c.out.stalls = func() { _ = raw.Close() }, stallTimeout, true
	c.long.cut, c.long.patience, c.long.stalls = c.out.cut, lingering.Limit, true
	c.mu.Lock()
	c.timer = time.AfterFunc(firstRequest, func() { _ = c.Close() })
	c.mu.Unlock()
	all.mu.Lock()
	var oldest *connection
	if all.fresh.Len() >= all.maxNew {
		oldest = all.fresh.Front().Value.(*connection)
		all.forget(oldest)
	}
	c.place = all.fresh.PushBack(c)
	all.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return c
}

// forget takes a connection off the list. The caller holds mu.
func (all *connections) forget(c *connection) {
	if c.place != nil {
		all.fresh.Remove(c.place)
		c.place = nil
	}
}

// Close closes the connection and gives back its user's share.
func (c *connection) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.closed = true
		c.out.stop()
		c.long.stop()
		c.endFirstWait()
		if o := c.owner.Load(); o != nil {
			o.flow.Return(fairness.Connections, 1)
		}
	}
	return c.Conn.Close()
}

// CloseWrite ends the sending direction, without an alert of TLS.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}

// A connection may be read mostReads times within readWindow without a request, and without earnedBytes of a body or an
// answer. PING, SETTINGS and other frames cost the server as much as the client, and keep a processor from the rest.
const (
	readWindow  = 100 * time.Millisecond
	mostReads   = 16
	earnedBytes = 4 << 10
)

// Read implements [net.Conn]. It makes clients wait that send much and ask for little, administrators aside.
func (c *connection) Read(b []byte) (int, error) {
	if o := c.owner.Load(); o != nil && o.flow.Level() == fairness.Exempt || c.upgraded.Load() {
		return c.Conn.Read(b)
	}
	if n := c.earned.Load(); n != c.known {
		c.known, c.reads = n, 0
	}
	if c.reads++; c.reads > mostReads {
		if left := readWindow - time.Since(c.window); left > 0 {
			time.Sleep(left) //nolint:forbidigo // at most readWindow; a connection has no context
		}
		c.reads = 1
	}
	if c.reads == 1 {
		c.window = time.Now()
	}
	return c.Conn.Read(b)
}

// Write implements [net.Conn].
func (c *connection) Write(b []byte) (int, error) { return c.Held.Write(b) }

// send writes to the connection. If nothing of the connection is read it ends: the deadlines of HTTP/2 are those of streams,
// and to end a stream takes a write, too. ([http.HTTP2Config.WriteByteTimeout] would do the same for two changes
// of the deadline with every write, which costs a GET a fiftieth.)
func (c *connection) send(b []byte) (int, error) {
	out := &c.out
	if c.upgraded.Load() { // a person may read a page of output for long
		out = &c.long
	}
	out.begin()
	defer out.end()
	return c.Conn.Write(b)
}

// endFirstWait ends the time that a connection has for its first request. The caller holds mu.
func (c *connection) endFirstWait() {
	c.timer.Stop()
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.forget(c)
}

// flow returns the flow of a user whose request came on the connection, which then counts as the user's. Its error is
// a [*fairness.RefusedError].
func (c *connection) flow(u *auth.User) (*fairness.Flow, error) {
	before := c.owner.Load()
	if before != nil && before.user == u {
		return before.flow, nil
	}
	flow := c.all.limits.Flow(u, host(c.RemoteAddr().String()))
	if before != nil && before.flow == flow {
		return flow, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if before = c.owner.Load(); c.closed || before != nil && before.flow == flow {
		return flow, nil
	}
	if err := flow.Take(fairness.Connections, 1); err != nil {
		return nil, err
	}
	if before != nil {
		before.flow.Return(fairness.Connections, 1)
	}
	c.endFirstWait()
	c.owner.Store(&owner{u, flow})
	return flow, nil
}

// host returns the address without its port.
func host(address string) string {
	if h, _, err := net.SplitHostPort(address); err == nil {
		return h
	}
	return address
}

type connectionKey struct{}

// connContext lets requests find their connection; it is for [http.Server].
func connContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if counted, ok := c.(*connection); ok {
		return context.WithValue(ctx, connectionKey{}, counted)
	}
	return ctx
}

// flowOf returns the flow of the request's user.
func (s *Server) flowOf(x *exchange) (*fairness.Flow, error) {
	if x.conn != nil {
		return x.conn.flow(x.user)
	}
	return s.limits.Flow(x.user, host(x.r.RemoteAddr)), nil
}

// Where file descriptors are plenty, this is how many connections there may be.
const mostConnections = 10_000

// defaultConnections returns how many connections there may be beside those of administrators: at most half of the
// file descriptors that the process may have. The rest is for administrators and for everything else that the process has
// open. (Go raises the soft limit to the hard one when a program starts.)
func defaultConnections() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return mostConnections
	}
	return int(min(r.Cur/2, mostConnections))
}
