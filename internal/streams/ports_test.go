package streams

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	//nolint:staticcheck // client-go returns its types

	"k8s.io/client-go/tools/portforward"
	upstreamforward "k8s.io/cri-streaming/pkg/streaming/portforward"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdy"
)

// A testForward connects streams to ports for the servers of a test.
type testForward func(port int32, stream io.ReadWriteCloser) error

// PortForward implements the interface of upstream's server.
func (do testForward) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	return do(port, stream)
}

// portServers forward ports by this package and by upstream's.
func portServers(do testForward) map[string]http.HandlerFunc {
	var server spdy.Server
	return map[string]http.HandlerFunc{
		"ours": func(w http.ResponseWriter, r *http.Request) {
			_ = servePortsSPDY(w, r, &server, portService{"pod", anyNumber(nil), func(_ context.Context, _ *run.Group, port int32, s io.ReadWriteCloser) error {
				return do(port, s)
			}})
		},
		"upstream": func(w http.ResponseWriter, r *http.Request) {
			upstreamforward.ServePortForward(w, r, do, "pod", "", &upstreamforward.V4Options{}, time.Hour, spdyCreateLimit, upstreamforward.SupportedProtocols)
		},
	}
}

// dialTo connects streams to an address, as the runtime does.
func dialTo(address string) testForward {
	return func(_ int32, stream io.ReadWriteCloser) error {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		up := make(chan error, 1)
		time.AfterFunc(0, func() {
			_, err := io.Copy(struct{ io.Writer }{conn}, stream)
			if err == nil {
				err = conn.(*net.TCPConn).CloseWrite()
			}
			up <- err
		})
		if _, err := io.Copy(stream, struct{ io.Reader }{conn}); err != nil {
			return err
		}
		if err := stream.Close(); err != nil {
			return err
		}
		return <-up
	}
}

// withRelay adds the whole of this package, which copies the bytes itself.
func withRelay(handlers map[string]http.HandlerFunc, address string) map[string]http.HandlerFunc {
	server := &Server{Log: slog.New(slog.DiscardHandler)}
	handlers["with relay"] = func(w http.ResponseWriter, r *http.Request) {
		server.ServePorts(w, r, Ports{Pod: "pod", Dial: dialAddress(address)})
	}
	return handlers
}

// dialAddress returns a function that connects to an address, whatever port is asked for.
func dialAddress(address string) func(context.Context, int32) (*net.TCPConn, error) {
	return func(ctx context.Context, _ int32) (*net.TCPConn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return conn.(*net.TCPConn), nil
	}
}

// listen serves connections until the end of the test, as a pod does.
func listen(t *testing.T, handle func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	t.Cleanup(func() { _ = l.Close(); g.Wait() })
	g.Go(func(context.Context) {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			g.Go(func(context.Context) {
				defer conn.Close()
				handle(conn.(*net.TCPConn))
			})
		}
	})
	return l.Addr().String()
}

// forwarded runs client-go's port forwarder, and returns the address at which it listens.
func forwarded(t *testing.T, handler http.Handler) (address string) {
	t.Helper()
	dialer, _ := start(t, handler)
	stop, ready, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var errs bytes.Buffer
	f, err := portforward.New(dialer, []string{"0:80"}, stop, ready, io.Discard, &errs)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(context.Context) { done <- f.ForwardPorts() })
	t.Cleanup(func() {
		close(stop)
		if err := <-done; err != nil || errs.Len() > 0 {
			t.Errorf("the client ended with %v, errors %q", err, errs.String())
		}
		g.Wait()
	})
	<-ready
	ports, err := f.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0].Local)
}

func connect(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// TestClientGoForwardsPorts has many connections at once, each with its own bytes, half of them in each direction first.
func TestClientGoForwardsPorts(t *testing.T) {
	echo := listen(t, func(c *net.TCPConn) { _, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) })
	for name, handler := range withRelay(portServers(dialTo(echo)), echo) {
		t.Run(name, func(t *testing.T) {
			address := forwarded(t, handler)
			g := run.NewGroup(t.Context(), 0)
			defer g.Wait()
			for i := range 20 {
				want := bytes.Repeat([]byte{byte(i), 1, 2, 3, 4, 5, 6}, 50_000)
				conn := connect(t, address)
				g.Go(func(context.Context) {
					_, _ = conn.Write(want)
					_ = conn.CloseWrite()
				})
				g.Go(func(context.Context) {
					defer conn.Close()
					if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, want) {
						t.Errorf("%d bytes came back, want %d: %v", len(got), len(want), err)
					}
				})
			}
		})
	}
}

// TestForwardingSurvivesEndsOfConnections has connections that either side ends while the other one still could send. The client
// resets streams then, and must not find an error for that, which would end all of its connections.
func TestForwardingSurvivesEndsOfConnections(t *testing.T) {
	pod := listen(t, func(c *net.TCPConn) {
		first := make([]byte, 1)
		if _, err := c.Read(first); err == nil && first[0] == 'e' {
			return // the end of the pod's side
		}
		for piece := make([]byte, 64<<10); ; {
			if _, err := c.Write(piece); err != nil {
				return
			}
		}
	})
	for name, handler := range withRelay(portServers(dialTo(pod)), pod) {
		t.Run(name, func(t *testing.T) {
			address := forwarded(t, handler)
			for range 5 {
				ended := connect(t, address)
				_, _ = io.WriteString(ended, "e")
				if n, err := io.Copy(io.Discard, ended); n > 0 || err != nil {
					t.Errorf("%d bytes: %v", n, err)
				}
				_ = ended.Close()
				flooded := connect(t, address)
				_, _ = io.WriteString(flooded, "f")
				if _, err := io.ReadFull(flooded, make([]byte, 1<<20)); err != nil {
					t.Error(err)
				}
				_ = flooded.Close()
			}
		})
	}
}

// portStreams opens streams and reads what comes: of each its text, or the error by which it was refused.
func portStreams(t *testing.T, handler http.Handler, headers ...http.Header) (texts []string) {
	t.Helper()
	dialer, _ := start(t, handler)
	conn, _, err := dialer.Dial(spdyPorts)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	texts = make([]string, len(headers))
	g := run.NewGroup(t.Context(), 0)
	defer g.Wait()
	for i, header := range headers {
		canonical := http.Header{}
		for name, values := range header {
			canonical.Set(name, values[0])
		}
		s, err := conn.CreateStream(canonical)
		if err != nil {
			texts[i] = "refused: " + err.Error()
			continue
		}
		_ = s.Close()
		g.Go(func(context.Context) {
			all, err := io.ReadAll(s)
			texts[i] = fmt.Sprint(string(all), err)
		})
	}
	return texts
}

// portPrinter prints the port to the stream, and fails for port 1.
func portPrinter(port int32, s io.ReadWriteCloser) error {
	if port == 1 {
		return errors.New("connection refused")
	}
	_, err := fmt.Fprint(s, "port ", port)
	return err
}

// pairHeaders returns the headers of the streams of a connection. Old clients have no numbers of requests.
func pairHeaders(port, request string) []http.Header {
	of := func(kind string) http.Header {
		h := http.Header{streamType: {kind}, portHeader: {port}}
		if request != "" {
			h[requestHeader] = []string{request}
		}
		return h
	}
	return []http.Header{of(typeError), of(typeData)}
}

// TestRequestNumberIsUsedAgain is about this server only: upstream's needs time until it forgets a number.
func TestRequestNumberIsUsedAgain(t *testing.T) {
	got := portStreams(t, portServers(portPrinter)["ours"], slices.Concat(pairHeaders("80", "0"), pairHeaders("81", "0"))...)
	if want := []string{"<nil>", "port 80<nil>", "<nil>", "port 81<nil>"}; !slices.Equal(got, want) {
		t.Errorf("the client got %q, want %q", got, want)
	}
}

// TestStreamOfRequestComesOnce has a second stream for errors.
func TestStreamOfRequestComesOnce(t *testing.T) {
	headers := pairHeaders("80", "0")
	got := portStreams(t, portServers(portPrinter)["ours"], headers[0], headers[0], headers[1])
	if !strings.HasPrefix(got[1], "refused") || got[2] != "port 80<nil>" {
		t.Errorf("the client got %q", got)
	}
}

// TestPortStreamsAreUpstreams compares what clients get for streams with and without faults.
func TestPortStreamsAreUpstreams(t *testing.T) {
	for name, headers := range map[string][]http.Header{
		"good":             pairHeaders("80", "0"),
		"several":          slices.Concat(pairHeaders("80", "0"), pairHeaders("81", "1"), pairHeaders("65535", "2")),
		"old client":       slices.Concat(pairHeaders("80", ""), pairHeaders("81", "")),
		"failure":          pairHeaders("1", "0"),
		"no port":          {{streamType: {typeData}}},
		"wrong port":       {{streamType: {typeData}, portHeader: {"x"}}},
		"port 0":           {{streamType: {typeData}, portHeader: {"0"}}},
		"port 65536":       {{streamType: {typeData}, portHeader: {"65536"}}},
		"no type":          {{portHeader: {"80"}}},
		"wrong type":       {{streamType: {"x"}, portHeader: {"80"}}},
		"good after wrong": append([]http.Header{{streamType: {"x"}, portHeader: {"80"}}}, pairHeaders("80", "0")...),
	} {
		t.Run(name, func(t *testing.T) {
			both := portServers(portPrinter)
			ours, theirs := portStreams(t, both["ours"], headers...), portStreams(t, both["upstream"], headers...)
			if !slices.Equal(ours, theirs) {
				t.Errorf("the client got %q, from upstream's server %q", ours, theirs)
			}
		})
	}
}

// TestForwardedConnectionIsNotReadAfterItsEnd has a client that sends more than the server reads, and then opens other streams.
func TestForwardedConnectionIsNotReadAfterItsEnd(t *testing.T) {
	dialer, _ := start(t, portServers(func(_ int32, s io.ReadWriteCloser) error { return s.Close() })["ours"])
	conn, _, err := dialer.Dial(spdyPorts)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for request := range 3 {
		header := http.Header{}
		header.Set(portHeader, "80")
		header.Set(requestHeader, fmt.Sprint(request))
		for _, kind := range []string{typeError, typeData} {
			header.Set(streamType, kind)
			s, err := conn.CreateStream(header)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write(make([]byte, 1<<20)); err != nil {
				t.Error(err)
			}
		}
	}
}
