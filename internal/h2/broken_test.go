//go:build !libraryh2

package h2_test

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sampan-io/sampan/internal/h2"
)

// A broken is a connection on which writes fail from a time on. It can be read after it was closed, as what a connection
// with TLS has read ahead can.
type broken struct {
	net.Conn
	fails  chan struct{} // closed: writes fail
	closed chan struct{}
	once   sync.Once
}

func (b *broken) Write(p []byte) (int, error) {
	select {
	case <-b.fails:
		return 0, errors.New("broken")
	default:
		return b.Conn.Write(p)
	}
}

func (b *broken) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

type brokenListener struct {
	net.Listener
	conn *broken
}

func (l brokenListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.conn.Conn = c
	return l.conn, nil
}

// What was read before an answer could not be sent is not served: nothing would end such a request.
func TestNothingIsServedOnBrokenConnections(t *testing.T) {
	conn := &broken{fails: make(chan struct{}), closed: make(chan struct{})}
	served := make(chan string, 9)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served <- r.URL.Path
		_, _ = io.WriteString(w, "text")
	}))
	s.Listener = brokenListener{s.Listener, conn}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13}
	ended := make(chan struct{})
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(ended)
		}
	}
	h2.Configure(s.Config)
	s.StartTLS()
	defer s.Close()
	w := connect(t, s, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for acked := false; !acked; {
		settings, ok := w.next(0).(*http2.SettingsFrame)
		acked = ok && settings.IsAck()
	}
	close(conn.fails)
	w.request(1, http.MethodGet, "/before", true)
	<-conn.closed
	w.request(3, http.MethodGet, "/after", true)
	_ = w.conn.CloseWrite()
	<-ended
	if path := <-served; path != "/before" || len(served) > 0 {
		t.Errorf("served %s and %d more requests", path, len(served))
	}
}

// A slow is a connection whose writes last until goOn is closed, once holds is. It notes in which order they end and the
// server limits how long it still reads.
type slow struct {
	net.Conn
	holds, begun, goOn chan struct{}
	once               sync.Once
	events             chan string
}

func (s *slow) Write(p []byte) (int, error) {
	select {
	case <-s.holds:
		s.once.Do(func() { close(s.begun) })
		<-s.goOn
		s.events <- "sent"
	default:
	}
	return s.Conn.Write(p)
}

func (s *slow) SetReadDeadline(t time.Time) error {
	select {
	case <-s.holds:
		s.events <- "limit"
	default:
	}
	return s.Conn.SetReadDeadline(t)
}

type slowListener struct {
	net.Listener
	conn *slow
}

func (l slowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.conn.Conn = c
	return l.conn, nil
}

// A connection that is to end does not before its client has read the last answer.
func TestLastAnswersAreNotCutOff(t *testing.T) {
	conn := &slow{holds: make(chan struct{}), begun: make(chan struct{}), goOn: make(chan struct{}), events: make(chan string, 99)}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(conn.holds)
		w.Header().Set("Connection", "close")
		w.Header().Set("Content-Length", "0")
	}))
	s.Listener = slowListener{s.Listener, conn}
	s.TLS = &tls.Config{NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13}
	h2.Configure(s.Config)
	s.StartTLS()
	defer s.Close()
	w := connect(t, s)
	w.request(1, http.MethodGet, "/", true)
	<-conn.begun
	close(conn.goOn)
	if first := <-conn.events; first != "sent" {
		t.Errorf("the first event is %q, before the answer was sent", first)
	}
	w.next(1)
}
