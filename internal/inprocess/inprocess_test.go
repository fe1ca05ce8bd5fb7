package inprocess_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/sampan-io/sampan/internal/inprocess"
	"github.com/sampan-io/sampan/internal/run"
)

func TestListenerServesHTTP(t *testing.T) {
	l := inprocess.New()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })}
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(context.Context) { _ = server.Serve(l) })
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }}
	c := http.Client{Transport: transport}
	for _, path := range []string{"/a", "/b"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://node"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || string(body) != path {
			t.Errorf("%q, %v, want %q", body, err, path)
		}
	}
	transport.CloseIdleConnections()
	_ = server.Close()
	g.Stop()
	if _, err := l.Dial(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dialing a closed listener: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accepting from a closed listener: %v", err)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	cancel(reason)
	if _, err := inprocess.New().Dial(ctx); !errors.Is(err, reason) {
		t.Errorf("%v, want %v", err, reason)
	}
}

// TestReplacedConnIsTheOtherOne has the accepting end answer, and give away another connection.
func TestReplacedConnIsTheOtherOne(t *testing.T) {
	near, far := connect(t)
	defer near.Close()
	with, other := connect(t)
	defer with.Close()
	if _, err := io.WriteString(near, "ask"); err != nil {
		t.Fatal(err)
	}
	if err := expect(far, "ask"); err != nil {
		t.Fatal(err)
	}
	closed := far.Replace(other)
	if _, err := io.WriteString(far, "answer"); err != nil {
		t.Fatal(err)
	}
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(with, " and more"); err != nil {
		t.Fatal(err)
	}
	if err := expect(near, "answer and more"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(near, "back"); err != nil {
		t.Fatal(err)
	}
	if err := near.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(with); err != nil || string(text) != "back" {
		t.Errorf("the other connection got %q, %v", text, err)
	}
	select {
	case <-closed:
		t.Error("the end is reported as closed, and is not")
	default:
	}
	if err := near.Close(); err != nil {
		t.Fatal(err)
	}
	<-closed
	if n, err := with.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the connection that was given away is still open: %d, %v", n, err)
	}
}

// TestReplaceAfterClose gives a connection to an end that has left.
func TestReplaceAfterClose(t *testing.T) {
	near, far := connect(t)
	defer far.Close()
	with, other := connect(t)
	defer with.Close()
	if err := near.Close(); err != nil {
		t.Fatal(err)
	}
	<-far.Replace(other)
	if _, err := with.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want the end of the connection that nobody has", err)
	}
}

// connect returns both ends of a connection.
func connect(t *testing.T) (near, far *inprocess.Conn) {
	t.Helper()
	l := inprocess.New()
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(ctx context.Context) {
		conn, err := l.Dial(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		near = conn.(*inprocess.Conn)
	})
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	g.Wait()
	return near, conn.(*inprocess.Conn)
}

// expect reads a text.
func expect(from io.Reader, want string) error {
	got := make([]byte, len(want))
	if _, err := io.ReadFull(from, got); err != nil {
		return err
	}
	if string(got) != want {
		return errors.New("got " + string(got) + ", want " + want)
	}
	return nil
}
