package streams

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"testing"

	"k8s.io/apimachinery/pkg/util/httpstream" //nolint:staticcheck // client-go returns its types

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdy"
)

// forwarding serves a forwarder, and returns a connection to it.
func forwarding(t *testing.T, f *forwarder) httpstream.Connection {
	t.Helper()
	f.server.Log = slog.New(slog.DiscardHandler)
	var server spdy.Server
	dialer, _ := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = servePortsSPDY(w, r, &server, portService{"pod", anyNumber(f.ports.Open), func(ctx context.Context, g *run.Group, port int32, stream io.ReadWriteCloser) error {
			return f.forward(ctx, g, port, stream, true)
		}})
	}))
	conn, _, err := dialer.Dial(spdyPorts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// openPair opens the streams of a forwarded connection.
func openPair(t *testing.T, conn httpstream.Connection, request string) (errs, data httpstream.Stream) {
	t.Helper()
	var streams []httpstream.Stream
	for _, header := range pairHeaders("80", request) {
		canonical := http.Header{}
		for name, values := range header {
			canonical.Set(name, values[0])
		}
		s, err := conn.CreateStream(canonical)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	return streams[0], streams[1]
}

// TestIdleConnectionsHaveNoTurn has more idle connections than turns, before and after bytes came from the pod.
func TestIdleConnectionsHaveNoTurn(t *testing.T) {
	echo := listen(t, func(c *net.TCPConn) { _, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) })
	f := new(Server).forwarder(Ports{Dial: dialAddress(echo)})
	conn := forwarding(t, f)
	var all []httpstream.Stream
	for i := range 3 * mostTurns {
		_, data := openPair(t, conn, string(rune('a'+i)))
		all = append(all, data)
	}
	for range 2 {
		for i, data := range all {
			got := make([]byte, 1)
			if _, err := data.Write([]byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(data, got); err != nil || got[0] != byte(i) {
				t.Fatalf("connection %d: %d, %v", i, got, err)
			}
		}
	}
}

// TestConnectionsWithoutTurnEnd has a client with more connections than turns, all of which are taken. What the client sends still
// comes to the pod, and the connections end with the client.
func TestConnectionsWithoutTurnEnd(t *testing.T) {
	got := make(chan byte, 1)
	pod := listen(t, func(c *net.TCPConn) {
		_, _ = c.Write([]byte{1})
		for first := make([]byte, 1); ; got <- first[0] {
			if _, err := c.Read(first); err != nil {
				return
			}
		}
	})
	f := new(Server).forwarder(Ports{Dial: dialAddress(pod)})
	for range mostTurns {
		f.turns <- struct{}{}
	}
	conn := forwarding(t, f)
	for i := range byte(2 * mostTurns) {
		_, data := openPair(t, conn, string(rune('a'+i)))
		if _, err := data.Write([]byte{i}); err != nil {
			t.Fatal(err)
		}
		if got := <-got; got != i {
			t.Fatalf("the pod got %d, want %d", got, i)
		}
	}
	_ = conn.Close() // the end of the test waits for the server
}

func TestErrorOfPodIsThatOfItsConnection(t *testing.T) {
	pod := listen(t, func(c *net.TCPConn) {
		if _, err := c.Read(make([]byte, 1)); err == nil {
			_ = c.SetLinger(0)
		}
	})
	errs, data := openPair(t, forwarding(t, new(Server).forwarder(Ports{Dial: dialAddress(pod)})), "1")
	if _, err := data.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(errs) // the stream is reset
	want := `^error forwarding port 80 to pod pod, uid : read tcp 127\.0\.0\.1:\d+->127\.0\.0\.1:\d+: read: connection reset by peer$`
	if !regexp.MustCompile(want).Match(text) {
		t.Errorf("%q, want %s", text, want)
	}
}

func TestBeginRefusesConnections(t *testing.T) {
	echo := listen(t, func(c *net.TCPConn) { _, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) })
	ended := make(chan struct{})
	begun := 0 // guarded by the order of the connections
	f := new(Server).forwarder(Ports{Dial: dialAddress(echo), Begin: func() (func(), error) {
		if begun++; begun == 2 {
			return nil, errors.New("too many")
		}
		return func() { ended <- struct{}{} }, nil
	}})
	conn := forwarding(t, f)
	_, first := openPair(t, conn, "1")
	if _, err := first.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(first, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	errs, _ := openPair(t, conn, "2")
	if text, _ := io.ReadAll(errs); string(text) != "error forwarding port 80 to pod pod, uid : too many" {
		t.Errorf("refused with %q", text)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	<-ended
}

func TestOpenRefusesStreams(t *testing.T) {
	ended := make(chan struct{})
	opened := 0 // guarded by the order of the streams
	f := new(Server).forwarder(Ports{Dial: dialAddress("127.0.0.1:0"), Open: func() (func(), error) {
		if opened++; opened == 2 {
			return nil, errors.New("too many")
		}
		return func() { ended <- struct{}{} }, nil
	}})
	conn := forwarding(t, f)
	create := func(kind, request string) error {
		header := http.Header{}
		header.Set(streamType, kind)
		header.Set(portHeader, "80")
		header.Set(requestHeader, request)
		_, err := conn.CreateStream(header)
		return err
	}
	if err := create(typeError, "1"); err != nil {
		t.Fatal(err)
	}
	if err := create(typeError, "2"); err == nil {
		t.Error("a stream was opened, want that it is refused")
	}
	if err := create(typeData, "1"); err != nil {
		t.Error(err)
	}
	<-ended
	if opened != 2 {
		t.Errorf("%d pairs were opened for 3 streams, want 2", opened)
	}
}

// TestResetEndsConnectionToPod has a client that resets the stream for data of a connection on which the pod sends nothing.
func TestResetEndsConnectionToPod(t *testing.T) {
	got := make(chan error, 2)
	pod := listen(t, func(c *net.TCPConn) {
		for range 2 {
			_, err := c.Read(make([]byte, 1))
			got <- err
		}
	})
	ended := make(chan struct{})
	f := new(Server).forwarder(Ports{Dial: dialAddress(pod), Begin: func() (func(), error) { return func() { close(ended) }, nil }})
	errs, data := openPair(t, forwarding(t, f), "1")
	if _, err := data.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if err := data.Reset(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(errs); err != nil || len(text) > 0 {
		t.Errorf("in the stream for errors: %q, %v; want its end", text, err)
	}
	if err := <-got; err == nil {
		t.Error("the pod can read, want the end of its connection")
	}
	<-ended
}
