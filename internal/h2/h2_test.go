package h2_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sampan-io/sampan/internal/h2"
)

// serve starts a server and returns its address and a client of it.
func serve(t *testing.T, handler http.HandlerFunc, configure ...func(*http.Server)) (*httptest.Server, *http.Client) {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.TLS = &tls.Config{NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS13}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	for _, c := range configure {
		c(s.Config)
	}
	h2.Configure(s.Config)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, newClient(t, s)
}

// newClient returns a client with a connection of its own.
func newClient(t *testing.T, s *httptest.Server) *http.Client {
	t.Helper()
	transport := h2.Client(&http.Transport{TLSClientConfig: s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()})
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func ask(t *testing.T, c *http.Client, method, url string, body io.Reader) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: after %d bytes: %v", method, url, len(text), err)
	}
	if resp.ProtoMajor != 2 {
		t.Fatalf("%s %s was answered with %s", method, url, resp.Proto)
	}
	return resp, string(text)
}

func TestRequestsArriveAsSent(t *testing.T) {
	s, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %s %s %q %d %v %q %v", r.Method, r.RequestURI, r.URL.Path, r.Proto, r.Header["X-Two"], r.ContentLength, r.TLS != nil, body, err)
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+"/a%2fb/c?d=e", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header["X-Two"] = []string{"1", "2"}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if want := `PUT /a%2fb/c?d=e /a/b/c HTTP/2.0 ["1" "2"] 4 true "body" <nil>`; string(got) != want || err != nil {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
}

// Answers have the headers that net/http gives them: clients see no difference.
func TestAnswersAreThoseOfNetHTTP(t *testing.T) {
	handlers := map[string]http.HandlerFunc{
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"text":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "text") },
		"sniffed": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"large":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) },
		"flushed": func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			_, _ = io.WriteString(w, "text")
		},
		"declared": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			_, _ = io.WriteString(w, "text")
		},
		"error":          func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "why", http.StatusConflict) },
		"no content":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"not modified":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) },
		"after the code": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.Header().Set("X-Late", "1") },
		"two codes":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.WriteHeader(202) },
		"of a connection": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Upgrade", "x")
			w.Header().Set("Keep-Alive", "x")
		},
		"early hints": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints); w.WriteHeader(200) },
		"trailers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Announced")
			_, _ = io.WriteString(w, "text")
			w.Header().Set("X-Announced", "1")
			w.Header().Set(http.TrailerPrefix+"X-Other", "2")
		},
	}
	theirs := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handlers[r.URL.Query().Get("name")](w, r) }))
	theirs.EnableHTTP2 = true
	theirs.Config.ErrorLog = log.New(io.Discard, "", 0)
	theirs.StartTLS()
	defer theirs.Close()
	ours, _ := serve(t, theirs.Config.Handler.ServeHTTP)
	for name := range handlers {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			t.Run(method+" "+name, func(t *testing.T) {
				var got [2]string
				for i, s := range []*httptest.Server{theirs, ours} {
					req, _ := http.NewRequestWithContext(t.Context(), method, s.URL+"/?name="+strings.ReplaceAll(name, " ", "+"), http.NoBody)
					resp, err := newClient(t, s).Do(req)
					if err != nil {
						t.Fatal(err)
					}
					body, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					delete(resp.Header, "Date")
					got[i] = fmt.Sprint(resp.Status, resp.Header, resp.ContentLength, len(body), resp.Trailer, err)
				}
				if got[0] != got[1] {
					t.Errorf("net/http answers %s\nwe answer        %s", got[0], got[1])
				}
			})
		}
	}
}

func TestManyRequestsAtOnce(t *testing.T) {
	s, c := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	var g errgroup.Group
	for i := range 64 {
		g.Go(func() error {
			for k := range 6 {
				want := bytes.Repeat([]byte{byte(i)}, (i*k*997)%300_000)
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, bytes.NewReader(want))
				resp, err := c.Do(req)
				if err != nil {
					return err
				}
				got, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || !bytes.Equal(got, want) {
					return fmt.Errorf("request %d of %d: got %d bytes of %d: %w", k, i, len(got), len(want), err)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// A handler that does not read leaves the connection to the others.
func TestUnreadBodiesGiveBackTheirWindow(t *testing.T) {
	s, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/read" {
			n, err := io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprint(w, n, err)
		}
	})
	for range 50 {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/unread", bytes.NewReader(make([]byte, 1<<20)))
		if resp, err := c.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}
	if _, got := ask(t, c, http.MethodPost, s.URL+"/read", bytes.NewReader(make([]byte, 1<<20))); got != "1048576 <nil>" {
		t.Errorf("the next body: %s", got)
	}
}

func TestFlushedBytesArrive(t *testing.T) {
	next := make(chan string)
	s, c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for text := range next {
			_, _ = io.WriteString(w, text)
			w.(http.Flusher).Flush()
		}
	})
	go func() { next <- "1" }() // the header comes with the first bytes
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for _, want := range []string{"1", "2", "3"} {
		if want != "1" {
			next <- want
		}
		var got [1]byte
		if _, err := io.ReadFull(resp.Body, got[:]); err != nil || string(got[:]) != want {
			t.Fatalf("read %q, %v, want %q", got, err, want)
		}
	}
	close(next)
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
		t.Errorf("the end: %q, %v", rest, err)
	}
}

func TestClientsThatGoAwayCancelTheirRequests(t *testing.T) {
	begun, over := make(chan struct{}), make(chan error)
	s, c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
		over <- context.Cause(r.Context())
	})
	for _, leave := range []string{"the stream", "the connection"} {
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
		done := make(chan error)
		go func() {
			resp, err := c.Do(req)
			if err == nil {
				_ = resp.Body.Close()
			}
			done <- err
		}()
		<-begun
		if leave == "the stream" {
			cancel()
		} else {
			s.CloseClientConnections()
		}
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("without %s: %v", leave, err)
		}
		if err := <-done; err == nil {
			t.Errorf("without %s the client got an answer", leave)
		}
		cancel()
	}
}

func TestDeadlines(t *testing.T) {
	result := make(chan error, 1)
	s, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		var err error
		switch r.URL.Path {
		case "/read":
			_ = control.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			_, err = io.ReadAll(r.Body)
		case "/write":
			_ = control.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
			for err == nil {
				_, err = w.Write(make([]byte, 1<<20))
			}
		case "/cut":
			waiting := make(chan struct{})
			go func() {
				<-waiting
				_ = control.SetWriteDeadline(time.Unix(1, 0))
			}()
			close(waiting)
			for err == nil {
				_, err = w.Write(make([]byte, 1<<20))
			}
		}
		result <- err
	})
	for _, path := range []string{"/read", "/write", "/cut"} {
		body, writer := io.Pipe()
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+path, body)
		go func() {
			if resp, err := c.Do(req); err == nil {
				<-t.Context().Done() // does not read
				_ = resp.Body.Close()
			}
		}()
		if err := <-result; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", path, err)
		}
		_ = writer.Close()
	}
}

func TestPanicsEndOneStream(t *testing.T) {
	s, c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panic":
			panic("no")
		case "/abort":
			panic(http.ErrAbortHandler)
		}
	})
	for _, path := range []string{"/panic", "/abort"} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, http.NoBody)
		resp, err := c.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			t.Errorf("%s: %s", path, resp.Status)
		}
		ask(t, c, http.MethodGet, s.URL, http.NoBody)
	}
}

// What is under way when the server begins to shut down is answered.
func TestShutdown(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	s, c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-goOn
		_, _ = io.WriteString(w, "last words")
	})
	var got string
	var wait sync.WaitGroup
	wait.Go(func() { _, got = ask(t, c, http.MethodGet, s.URL, http.NoBody) })
	<-begun
	ended := make(chan error)
	go func() { ended <- s.Config.Shutdown(t.Context()) }()
	select {
	case err := <-ended:
		t.Errorf("the server ended before the request: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	close(goOn)
	wait.Wait()
	if err := <-ended; err != nil || got != "last words" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestConnectionsThatAreToBeClosed(t *testing.T) {
	var connections atomic.Int32
	s, c := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") }, func(s *http.Server) {
		s.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		}
	})
	for range 3 {
		ask(t, c, http.MethodGet, s.URL, http.NoBody)
	}
	if n := connections.Load(); n != 3 {
		t.Errorf("3 requests came on %d connections", n)
	}
}

func TestIdleConnectionsEnd(t *testing.T) {
	closed := make(chan struct{})
	s, c := serve(t, func(http.ResponseWriter, *http.Request) {}, func(s *http.Server) {
		s.IdleTimeout = 20 * time.Millisecond
		s.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				close(closed)
			}
		}
	})
	ask(t, c, http.MethodGet, s.URL, http.NoBody)
	<-closed
}

func TestHeadersThatAreTooLarge(t *testing.T) {
	s, c := serve(t, func(http.ResponseWriter, *http.Request) {}, func(s *http.Server) { s.MaxHeaderBytes = 8 << 10 })
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
	for i := range 100 {
		req.Header.Set(fmt.Sprint("X-", i), strings.Repeat("x", 90))
	}
	resp, err := c.Do(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if err == nil && resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%s", resp.Status)
	}
	ask(t, c, http.MethodGet, s.URL, http.NoBody)
}

func TestBodiesThatAreAskedFor(t *testing.T) {
	s, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})
	c.Transport.(*http.Transport).ExpectContinueTimeout = time.Hour
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader("text"))
	req.Header.Set("Expect", "100-continue")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); string(got) != "text" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
