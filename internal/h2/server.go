//go:build !libraryh2

package h2

import (
	"context"
	"crypto/tls"
	"log"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// What one connection may use if the [http.Server] does not say.
const (
	defaultStreams   = 250
	defaultHeader    = 64 << 10
	defaultUnread    = 256 << 10
	defaultUnreadOne = 128 << 10
	prefaceTimeout   = 10 * time.Second // from the TLS handshake to the client's first frame
	goAwayTimeout    = time.Second      // for the client to read why its connection ends
	lingering        = time.Second      // from an answer to the reset of a request that is not wanted whole
)

// A server is what the connections of one [http.Server] share.
type server struct {
	streams      uint32 // requests of one connection at a time
	header       uint32 // bytes of a request's header fields, as HPACK counts them
	unread       uint32 // bytes of bodies that are received before they are read, of a connection
	unreadOne    uint32 // and of a request
	writeTimeout time.Duration
	idleTimeout  time.Duration
	log          *log.Logger

	date    atomic.Pointer[date]
	buffers sync.Pool // of *[]byte, empty ones for frames

	mu       sync.Mutex
	conns    map[*conn]struct{} // guarded by mu
	stopping bool               // guarded by mu
}

// Configure lets srv serve HTTP/2 with this package on connections with TLS that negotiated "h2". It takes the limits of
// HTTP2, MaxHeaderBytes, WriteTimeout and IdleTimeout from srv, which must not be changed afterwards. The handler gets the context
// that srv made for the connection. [http.Server.Shutdown] announces the end to clients, and each connection ends after its last answer.
//
// An answer's WriteTimeout, and a deadline that its handler sets, end an operation that waits for the client, and nothing else.
func Configure(srv *http.Server) {
	s := &server{
		streams: defaultStreams, header: defaultHeader, unread: defaultUnread, unreadOne: defaultUnreadOne,
		writeTimeout: srv.WriteTimeout, idleTimeout: srv.IdleTimeout, log: srv.ErrorLog, conns: map[*conn]struct{}{},
	}
	if srv.MaxHeaderBytes > 0 {
		s.header = uint32(srv.MaxHeaderBytes)
	}
	if c := srv.HTTP2; c != nil {
		set(&s.streams, c.MaxConcurrentStreams)
		set(&s.unread, c.MaxReceiveBufferPerConnection)
		set(&s.unreadOne, c.MaxReceiveBufferPerStream)
	}
	if s.log == nil {
		s.log = log.Default()
	}
	srv.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){
		http2.NextProtoTLS: func(_ *http.Server, c *tls.Conn, h http.Handler) {
			ctx := context.Background() //nolint:forbidigo // net/http always has one
			if based, ok := h.(interface{ BaseContext() context.Context }); ok {
				ctx = based.BaseContext()
			}
			s.serve(ctx, c, h)
		},
	}
	srv.RegisterOnShutdown(s.shutdown)
}

func set(limit *uint32, configured int) {
	if configured > 0 {
		*limit = uint32(configured)
	}
}

// add notes a connection. It reports false if the server is being shut down.
func (s *server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.conns[c] = struct{}{}
	}
	return !s.stopping
}

func (s *server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// shutdown ends each connection after the requests that it has.
func (s *server) shutdown() {
	s.mu.Lock()
	s.stopping = true
	all := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		c.leave()
	}
}

// A date is the text of the Date field in one second.
type date struct {
	second int64
	text   string
}

// now returns the Date field of an answer.
func (s *server) now() string {
	t := time.Now()
	if d := s.date.Load(); d != nil && d.second == t.Unix() {
		return d.text
	}
	d := &date{t.Unix(), t.UTC().Format(http.TimeFormat)}
	s.date.Store(d)
	return d.text
}
