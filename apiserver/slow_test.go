package apiserver_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// pipes is a listener whose connections hold nothing: a client that does not read makes the other side wait.
type pipes struct {
	conns chan net.Conn
	ended context.Context //nolint:containedctx // the life of the listener, ended by Close
	end   context.CancelFunc
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended.Done():
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.end(); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// A slowServer is run in a bubble, behind pipes and TLS.
type slowServer struct {
	*testing.T
	*apiserver.Server
	pipes *pipes
	roots *x509.CertPool
	ours  []net.Conn // ends of pipes
}

func serveSlow(t *testing.T, change func(*apiserver.Options)) *slowServer {
	t.Helper()
	cert, roots := certificate(t)
	st := memory(t, store.Options{})
	opts := options(t, st)
	s := &slowServer{T: t, pipes: &pipes{conns: make(chan net.Conn)}, roots: roots}
	s.pipes.ended, s.pipes.end = context.WithCancel(context.WithoutCancel(t.Context()))
	opts.Listeners, opts.TLS = []net.Listener{s.pipes}, &tls.Config{Certificates: []tls.Certificate{cert}}
	if change != nil {
		change(&opts)
	}
	var err error
	if s.Server, err = apiserver.New(opts); err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(ctx context.Context) { _ = st.Run(ctx) })
	g.Go(func(ctx context.Context) {
		if err := s.Server.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		for _, c := range s.ours {
			_ = c.Close()
		}
		g.Stop()
		time.Sleep(time.Second) // net/http waits so long before it closes a connection of which not all was read
	})
	<-st.Ready()
	<-s.Ready()
	for _, name := range []string{"big", "bigger"} {
		cm := configMap(name)
		cm.Data["k"] = strings.Repeat("x", 200_000)
		if _, err := s.As(boss).Create(t.Context(), cmGVR, "default", "", cm, metav1.CreateOptions{}, ""); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// pipe connects without saying anything.
func (s *slowServer) pipe() net.Conn {
	mine, theirs := net.Pipe()
	s.pipes.conns <- theirs
	s.ours = append(s.ours, mine)
	return mine
}

func (s *slowServer) dial(protocol string) net.Conn {
	s.Helper()
	c := tls.Client(s.pipe(), &tls.Config{RootCAs: s.roots, ServerName: "127.0.0.1", NextProtos: []string{protocol}})
	if err := c.HandshakeContext(s.Context()); err != nil {
		s.Fatal(err)
	}
	return c
}

// ask sends a request over a connection of its own; more has headers, and what of a body is sent.
func (s *slowServer) ask(method, path, more string) net.Conn {
	s.Helper()
	c := s.dial("http/1.1")
	if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nX-User: boss\r\nContent-Type: application/json\r\n%s", method, path, more); err != nil {
		s.Fatal(err)
	}
	return c
}

// code reads the code of an answer.
func (s *slowServer) code(c net.Conn) string {
	s.Helper()
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		s.Fatal(err)
	}
	return strings.Fields(line)[1]
}

// Clients that do not read their answers do not hold up others, even of the same level.
func TestSlowReadersGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSlow(t, func(o *apiserver.Options) { o.MaxInFlight = 5 }) // one for the level
		idle := s.ask("GET", configMaps, "\r\n")
		synctest.Wait()
		start := time.Now()
		next := s.ask("GET", configMaps+"/big", "\r\n")
		if c := s.code(next); c != "200" || time.Since(start) > 2*time.Second {
			t.Errorf("while another answer waits for its client: %s after %s, want 200 within 2s", c, time.Since(start))
		}
		time.Sleep(time.Minute)
		if n, _ := io.Copy(io.Discard, idle); n > 300_000 {
			t.Errorf("an answer that was not read for a minute went on for %d bytes", n)
		}
	})
}

// A client that reads on in time is given more time, and a watch on the same connection all the time that it wants.
func TestPatientReadersAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSlow(t, nil)
		patient := s.ask("GET", configMaps, "\r\n")
		from := bufio.NewReaderSize(patient, 64)
		resp, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		piece := make([]byte, 1<<16)
		total := 0
		for {
			time.Sleep(4 * time.Second)
			n, err := io.ReadFull(resp.Body, piece)
			if total += n; err != nil {
				break
			}
		}
		if total < 400_000 {
			t.Errorf("a client that reads slowly got %d bytes: %s", total, piece[:min(total, 300)])
		}
		fmt.Fprintf(patient, "GET %s?watch=1 HTTP/1.1\r\nHost: x\r\nX-User: boss\r\n\r\n", pods)
		if resp, err = http.ReadResponse(from, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if _, err := s.As(boss).Create(t.Context(), pdGVR, "default", "", pod("a"), metav1.CreateOptions{}, ""); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.Contains(line, "ADDED") {
			t.Errorf("ten minutes into the watch: %q, %v", line, err)
		}
	})
}

func TestWatchThatIsNotReadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSlow(t, nil)
		c := s.ask("GET", configMaps+"?watch=1", "\r\n")
		synctest.Wait()
		time.Sleep(31 * time.Second)
		if n, _ := io.Copy(io.Discard, c); n > 300_000 {
			t.Errorf("after 31s without reading: %d bytes; want that the connection is cut", n)
		}
	})
}

func TestSlowBodiesAreCutOff(t *testing.T) {
	body := `{"metadata":{"name":"a"},"data":{"k":"` + strings.Repeat("x", 900_000) + `"}}`
	tests := []struct {
		name  string
		more  string
		piece string // sent every second
		times int
		code  string
		after time.Duration // at the most
	}{
		{"nothing comes", "Content-Length: 100\r\n\r\n{", "", 0, "504", 11 * time.Second},
		{"nothing comes of a large one", "Content-Length: 3000000\r\n\r\n{", "", 0, "504", 11 * time.Second},
		{"a byte a second", "Content-Length: 100\r\n\r\n{", " ", 90, "504", 12 * time.Second},
		{"a chunk a second", "Transfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n", 90, "504", 12 * time.Second},
		{"a fair rate", fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body[:len(body)%50_000]), "body", len(body) / 50_000, "201", 20 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serveSlow(t, func(o *apiserver.Options) { o.MaxInFlight = 5 }) // one for the level
				start := time.Now()
				c := s.ask("POST", configMaps, tt.more)
				defer c.Close()
				g := run.NewGroup(t.Context(), 0)
				defer g.Wait()
				g.Go(func(context.Context) {
					for i := range tt.times {
						time.Sleep(time.Second)
						piece := tt.piece
						if piece == "body" {
							piece = body[len(body)%50_000+i*50_000:][:50_000]
						}
						if _, err := io.WriteString(c, piece); err != nil {
							return
						}
					}
				})
				synctest.Wait()
				other := s.ask("GET", configMaps+"/big", "\r\n")
				if code := s.code(other); code != "200" || time.Since(start) > time.Second {
					t.Errorf("while the body comes, another request: %s after %s", code, time.Since(start))
				}
				if code := s.code(c); code != tt.code || time.Since(start) > tt.after {
					t.Errorf("%s after %s, want %s after at most %s", code, time.Since(start), tt.code, tt.after)
				}
				_ = c.Close()
			})
		})
	}
}

// A frames is a connection over HTTP/2.
type frames struct {
	*http2.Framer
	conn net.Conn
}

// h2 connects over HTTP/2, and reads what the server says to done: the last frame of the stream 1, or how the connection ended.
func (s *slowServer) h2(g *run.Group) (f *frames, done chan string) {
	s.Helper()
	c := s.dial("h2")
	f = &frames{http2.NewFramer(c, c), c}
	done = make(chan string, 1)
	g.Go(func(context.Context) {
		for {
			frame, err := f.ReadFrame()
			switch {
			case err != nil:
				done <- "closed"
				return
			case frame.Header().StreamID == 1 && (frame.Header().Flags.Has(http2.FlagDataEndStream) || frame.Header().Type == http2.FrameRSTStream):
				done <- frame.Header().Type.String()
				return
			}
		}
	})
	_, _ = io.WriteString(c, http2.ClientPreface)
	if err := f.WriteSettings(); err != nil {
		s.Fatal(err)
	}
	return f, done
}

func fields(pairs ...string) []byte {
	var b strings.Builder
	e := hpack.NewEncoder(&b)
	for i := 0; i < len(pairs); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return []byte(b.String())
}

func TestHTTP2ClientsAreCutOff(t *testing.T) {
	post := fields(":method", "POST", ":scheme", "https", ":path", configMaps, ":authority", "x", "x-user", "boss", "content-type", "application/json")
	tests := []struct {
		name  string
		send  func(f *frames) error
		ends  string
		after time.Duration
	}{
		{"a body that does not come", func(f *frames) error {
			if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: post, EndHeaders: true}); err != nil {
				return err
			}
			return f.WriteData(1, false, []byte("{"))
		}, "DATA", 11 * time.Second},
		{"a header that does not end", func(f *frames) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: post[:3]})
		}, "closed", 31 * time.Second},
		{"requests that are given up at once", func(f *frames) error {
			// Their bodies do not come, so none of them is answered before it is given up.
			for id := uint32(3); id < 3000; id += 2 {
				if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: post, EndHeaders: true}); err != nil {
					return nil // it is cut off already
				}
				if err := f.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
					return nil
				}
			}
			return nil
		}, "closed", 5 * time.Minute}, // at a pace that depends on how many frames are read together
		{"no request", func(*frames) error { return nil }, "closed", 31 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serveSlow(t, nil)
				g := run.NewGroup(t.Context(), 0)
				defer g.Wait()
				start := time.Now()
				f, done := s.h2(g)
				defer f.conn.Close()
				if err := tt.send(f); err != nil {
					t.Fatal(err)
				}
				if how := <-done; how != tt.ends || time.Since(start) > tt.after {
					t.Errorf("%s after %s, want %s after at most %s", how, time.Since(start), tt.ends, tt.after)
				}
			})
		})
	}
}

// A connection over HTTP/2 of which nothing is read ends, although every stream of it has room.
func TestConnectionThatIsNotReadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSlow(t, nil)
		c := s.dial("h2")
		f := http2.NewFramer(c, nil)
		list := fields(":method", "GET", ":scheme", "https", ":path", configMaps+"?watch=1", ":authority", "x", "x-user", "boss")
		_, _ = io.WriteString(c, http2.ClientPreface)
		if err := f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}); err != nil {
			t.Fatal(err)
		}
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: list, EndHeaders: true, EndStream: true}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(61 * time.Second)
		start := time.Now()
		if n, _ := io.Copy(io.Discard, c); time.Since(start) > time.Second {
			t.Errorf("a connection that was not read for a minute went on for %d bytes and %s", n, time.Since(start))
		}
	})
}

// A user who sends frames without asking for anything is read slowly; requests are not held up, nor administrators.
func TestFloodsOfFramesAreReadSlowly(t *testing.T) {
	for group, slow := range map[string]bool{"": true, "system:masters": false} {
		synctest.Test(t, func(t *testing.T) {
			s := serveSlow(t, nil)
			g := run.NewGroup(t.Context(), 0)
			defer g.Wait()
			f, done := s.h2(g)
			pairs := []string{":method", "GET", ":scheme", "https", ":path", "/version", ":authority", "x", "x-user", "boss"}
			if group != "" {
				pairs = append(pairs, "x-group", group)
			}
			get := http2.HeadersFrameParam{StreamID: 1, BlockFragment: fields(pairs...), EndHeaders: true, EndStream: true}
			if err := f.WriteHeaders(get); err != nil {
				t.Fatal(err)
			}
			<-done
			g.Go(func(context.Context) { _, _ = io.Copy(io.Discard, f.conn) })
			start := time.Now()
			for range 1000 {
				if err := f.WritePing(false, [8]byte{}); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(start); (took > 3*time.Second) != slow {
				t.Errorf("1000 frames of a user of %q were read in %s", group, took)
			}
			var pings bytes.Buffer // whose replies come in one write, as large as a piece of an answer
			for many := http2.NewFramer(&pings, nil); pings.Len() < 16<<10-17; {
				_ = many.WritePing(false, [8]byte{})
			}
			start = time.Now()
			for range 500 {
				if _, err := f.conn.Write(pings.Bytes()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // the replies have been read: a client that is behind with them is sent away
			}
			if took := time.Since(start); (took > 2*time.Second) != slow {
				t.Errorf("500 times 16 KiB of frames of a user of %q were read in %s", group, took)
			}
			start = time.Now()
			for id := uint32(3); id < 1000; id += 2 {
				get.StreamID = id
				if err := f.WriteHeaders(get); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("500 requests of a user of %q were read in %s", group, took)
			}
			for _, c := range s.ours {
				_ = c.Close()
			}
		})
	}
}

// More connections without a request than there may be cost the oldest of them, and each only waits for so long.
func TestConnectionsWithoutARequestAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSlow(t, func(o *apiserver.Options) { o.MaxConnections = 12 }) // three of them
		var silent []net.Conn
		for range 10 {
			silent = append(silent, s.pipe())
			synctest.Wait()
		}
		for i, c := range silent {
			defer c.Close()
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := c.Read(make([]byte, 1))
			var timeout net.Error
			if open := errors.As(err, &timeout) && timeout.Timeout(); open != (i >= 7) {
				t.Errorf("connection %d of 10: %v", i, err)
			}
		}
		c := s.ask("GET", configMaps+"/big", "X-Group: system:masters\r\n\r\n")
		defer c.Close()
		if code := s.code(c); code != "200" {
			t.Errorf("a client that goes on: %s", code)
		}
		time.Sleep(11 * time.Second) // the time for a handshake
		_ = silent[9].SetReadDeadline(time.Time{})
		if _, err := silent[9].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a connection that says nothing: %v", err)
		}
	})
}

// A user may not have more than its share of connections; administrators may.
func TestConnectionsOfAUserAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveSlow(t, func(o *apiserver.Options) { o.MaxConnections = 30 }) // six for the level, two for the user
		count := func(group string) (served int) {
			for range 8 {
				c := s.ask("GET", pods, group+"\r\n")
				if code := s.code(c); code == "200" {
					served++
				} else if code != "429" {
					t.Errorf("code %s", code)
				}
			}
			return served
		}
		if n := count(""); n != 2 {
			t.Errorf("a user got %d connections, want 2", n)
		}
		if n := count("X-Group: system:masters\r\n"); n != 8 {
			t.Errorf("an administrator got %d connections, want 8", n)
		}
	})
}
