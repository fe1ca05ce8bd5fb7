package records_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sampan-io/sampan/internal/records"
	"github.com/sampan-io/sampan/internal/run"
)

// A log says what was called on a connection, in order.
type log struct {
	mu    sync.Mutex
	calls []string // guarded by mu
	sizes []int    // guarded by mu; of writes
}

func (l *log) add(call string, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, call)
	if size > 0 {
		l.sizes = append(l.sizes, size)
	}
}

func (l *log) take() (calls []string, sizes []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls, sizes = l.calls, l.sizes
	l.calls, l.sizes = nil, nil
	return calls, sizes
}

// logged is a connection below the socket. before, if it is set, is called before each write.
type logged struct {
	net.Conn
	*log
	before func() error
}

func (c *logged) Write(p []byte) (int, error) {
	if c.before != nil {
		if err := c.before(); err != nil {
			return 0, err
		}
	}
	n, err := c.Conn.Write(p)
	c.add("write", n)
	return n, err
}

func (c *logged) SetWriteDeadline(t time.Time) error {
	c.add("deadline", 0)
	return c.Conn.SetWriteDeadline(t)
}

func (c *logged) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// one is a listener for one connection.
type one struct {
	net.Listener
	raw *logged
}

func (l *one) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	l.raw.Conn = c
	return l.raw, err
}

// pair returns both ends of a connection of TLS after the handshake, and what is below the server's.
func pair(t *testing.T) (client, server *tls.Conn, raw *logged) {
	t.Helper()
	certificates := httptest.NewTLSServer(nil)
	t.Cleanup(certificates.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw = &logged{log: &log{}}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := records.NewListener(&one{l, raw}).Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), s.Close() })
	config := certificates.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "example.com"
	client, server = tls.Client(c, config), tls.Server(s, certificates.TLS)
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(context.Context) { _ = server.Handshake() })
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	g.Wait()
	raw.take()
	return client, server, raw
}

// message returns n bytes.
func message(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

func TestRecordsOfOneWriteAreSentTogether(t *testing.T) {
	const record, overhead = 16 << 10, 22 // the head, the type and the tag
	for _, c := range []struct {
		size  int
		wrote []int
	}{
		{0, nil},
		{1, []int{1 + overhead}},
		{record, []int{record + overhead}},
		{record + 1, []int{record + 1 + 2*overhead}},
		{4 * record, []int{4 * (record + overhead)}},
		{9 * record, []int{4 * (record + overhead), 4 * (record + overhead), record + overhead}},
	} {
		client, server, raw := pair(t)
		// TLS begins with small records, and with full ones from the second write or so on.
		for range 200 {
			if _, err := records.Write(server, message(2000)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := io.CopyN(io.Discard, client, 200*2000); err != nil {
			t.Fatal(err)
		}
		raw.take()
		want := message(c.size)
		if n, err := records.Write(server, want); n != c.size || err != nil {
			t.Errorf("%d bytes: %d written, %v", c.size, n, err)
		}
		if _, sizes := raw.take(); !slices.Equal(sizes, c.wrote) {
			t.Errorf("%d bytes: sent %d, want %d", c.size, sizes, c.wrote)
		}
		got := make([]byte, c.size)
		if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %v, or others than what was written", c.size, err)
		}
	}
}

func TestWritersShareAConnection(t *testing.T) {
	client, server, _ := pair(t)
	const writers, writes, step = 8, 20, 5000
	var counts [writers]int
	reading := run.NewGroup(t.Context(), 0)
	reading.Go(func(context.Context) {
		got, err := io.ReadAll(client)
		if err != nil {
			t.Error(err)
		}
		for _, b := range got {
			counts[b]++
		}
	})
	writing := run.NewGroup(t.Context(), 0)
	for i := range writers {
		writing.Go(func(context.Context) {
			for size := range writes {
				write := records.Write
				if size%5 == 0 { // they pass by the writes that wait
					write = func(c net.Conn, p []byte) (int, error) { return c.Write(p) }
				}
				if _, err := write(server, bytes.Repeat([]byte{byte(i)}, size*step)); err != nil {
					t.Errorf("write of %d bytes: %v", size*step, err)
				}
			}
		})
	}
	writing.Wait()
	if err := records.CloseWrite(server); err != nil {
		t.Error(err)
	}
	reading.Wait()
	for i, got := range counts {
		if want := step * writes * (writes - 1) / 2; got != want {
			t.Errorf("writer %d: %d bytes came, want %d", i, got, want)
		}
	}
}

func TestErrorsOfWhatWaitedAreReturned(t *testing.T) {
	_, server, raw := pair(t)
	broken := errors.New("broken")
	raw.before = func() error { return broken }
	if n, err := records.Write(server, message(100_000)); n != 0 || !errors.Is(err, broken) {
		t.Errorf("write to a broken connection: %d, %v; want 0, %v", n, err, broken)
	}
	raw.before = nil
	if n, err := records.Write(server, message(100_000)); n != 0 || err == nil {
		t.Errorf("write after one that failed: %d, %v; want an error", n, err)
	}
}

func TestTheEndWaitsForWhatIsBeingSent(t *testing.T) {
	client, server, raw := pair(t)
	began, goOn := make(chan struct{}), make(chan struct{})
	raw.before = sync.OnceValue(func() error {
		close(began)
		<-goOn
		return nil
	})
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(context.Context) {
		if _, err := records.Write(server, message(60_000)); err != nil {
			t.Error(err)
		}
	})
	<-began
	g.Go(func(context.Context) {
		if err := records.CloseWrite(server); err != nil {
			t.Error(err)
		}
	})
	close(goOn)
	g.Wait()
	if calls, _ := raw.take(); !slices.Equal(calls, []string{"write", "deadline", "write", "deadline"}) {
		t.Errorf("calls %q; want the write, and then those of the alert", calls)
	}
	if got, err := io.ReadAll(client); err != nil || !bytes.Equal(got, message(60_000)) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
}

func TestOtherConnectionsAreWrittenAtOnce(t *testing.T) {
	here, there := net.Pipe()
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(context.Context) { _, _ = io.Copy(io.Discard, there) })
	if n, err := records.Write(here, message(100_000)); n != 100_000 || err != nil {
		t.Errorf("a pipe: %d, %v", n, err)
	}
	if err := records.CloseWrite(here); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("CloseWrite of a pipe: %v; want %v", err, http.ErrNotSupported)
	}
	_ = here.Close()
	g.Wait()
}
