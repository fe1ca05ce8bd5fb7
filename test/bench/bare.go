package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// The bare server is the floor under everything that goes over HTTP: Go's own server
// with TLS and HTTP/2 and nothing behind it. It runs in a process of its own, as the
// API server does, so that both pay the same for the way there.

// bareVerb makes this program the bare server.
const bareVerb = "bare"

// A greeting is what the bare server says about itself on its standard output.
type greeting struct {
	URL         string
	Certificate []byte
}

// serveBare answers until its standard input ends.
//
//	POST, GET         a pod
//	GET ?size=N       N bytes
//	GET ?events=N     N lines as long as an event of that pod, each sent at once, from
//	                  the next POST ?begin on
func serveBare(context.Context) error {
	pod, err := json.Marshal(namedPod("one"))
	if err != nil {
		return err
	}
	var gate gate
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		if r.URL.RawQuery == "begin" {
			gate.open()
			return
		}
		if r.URL.RawQuery == "" {
			_, _ = w.Write(pod)
			return
		}
		if n, err := strconv.Atoi(r.URL.Query().Get("size")); err == nil {
			w.Header().Set("Content-Length", strconv.Itoa(n))
			for piece := make([]byte, 64<<10); n > 0; n -= len(piece) {
				_, _ = w.Write(piece[:min(n, len(piece))])
			}
		}
		if n, err := strconv.Atoi(r.URL.Query().Get("events")); err == nil {
			// Data sent before the client starts the clock would already be in its window.
			// Sending the headers reports that we wait.
			begun := gate.next()
			w.(http.Flusher).Flush()
			select {
			case <-begun:
			case <-r.Context().Done():
				return
			}
			for range n {
				_, _ = w.Write(append(pod, '\n'))
				w.(http.Flusher).Flush()
			}
		}
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	s.StartTLS()
	defer s.Close()
	if err := json.NewEncoder(os.Stdout).Encode(greeting{s.URL, s.Certificate().Raw}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// A gate holds streams back until it is opened, which lets all go that wait then.
type gate struct {
	mu    sync.Mutex
	begun chan struct{} // guarded by mu; nil: no waiter
}

// next returns what the next opening closes.
func (g *gate) next() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.begun == nil {
		g.begun = make(chan struct{})
	}
	return g.begun
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.begun != nil {
		close(g.begun)
		g.begun = nil
	}
}

// A bareServer is that process, seen from outside.
type bareServer struct {
	server
	stop func()
}

func startBare(ctx context.Context) (*bareServer, error) {
	var g greeting
	pid, stop, err := startVerb(ctx, &g, bareVerb)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(g.Certificate)
	if err != nil {
		stop()
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	transport := func() http.RoundTripper {
		return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}, ForceAttemptHTTP2: true}
	}
	return &bareServer{server{pid: pid, url: g.URL, client: &http.Client{Transport: transport()}, transport: transport}, stop}, nil
}

// A server is an API server and how to reach it.
type server struct {
	pid       int
	url       string
	client    *http.Client
	transport func() http.RoundTripper // a new one, that has no connection yet
}

// ask sends a request, a GET if it has no body. The caller closes the answer.
func (s *server) ask(ctx context.Context, c *http.Client, path, accept string, body []byte) (*http.Response, error) {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	return s.do(ctx, c, method, path, accept, "application/json", body)
}

// put sends an object and returns the status of the answer, of which it drops the rest.
func (s *server) put(ctx context.Context, c *http.Client, path string, body []byte) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, s.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, errors.Join(err, resp.Body.Close())
}

func (s *server) do(ctx context.Context, c *http.Client, method, path, accept, contentType string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	resp, err := c.Do(req)
	if err != nil || resp.StatusCode < 300 {
		return resp, err
	}
	text, err := io.ReadAll(resp.Body)
	err = errors.Join(fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, strings.TrimSpace(string(text))), err)
	return nil, errors.Join(err, resp.Body.Close())
}

// send sends a request and reads the answer, whose length it returns.
func (s *server) send(ctx context.Context, path, accept string, body []byte) (int64, error) {
	resp, err := s.ask(ctx, s.client, path, accept, body)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, resp.Body)
	return n, errors.Join(err, resp.Body.Close())
}

// startVerb runs this program with one of the verbs and reads its greeting.
func startVerb(ctx context.Context, greeting any, args ...string) (pid int, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	stop = func() {
		_ = in.Close()
		_ = cmd.Wait()
	}
	if err := json.NewDecoder(out).Decode(greeting); err != nil {
		stop()
		return 0, nil, fmt.Errorf("%s did not start: %w", args[0], err)
	}
	return cmd.Process.Pid, stop, nil
}
