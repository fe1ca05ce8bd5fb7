//go:build !libraryh2

package h2_test

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// A length that a client declares takes no memory, and neither does a body that was read.
func TestBodiesTakeMemoryAsTheyCome(t *testing.T) {
	const streams = 200
	begun, over := make(chan struct{}), make(chan struct{})
	defer close(over)
	s, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/read" {
			_, _ = io.ReadFull(r.Body, make([]byte, 60_000))
		}
		begun <- struct{}{}
		<-over
	})
	used := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) // less may be in use afterwards than before
	}
	for _, path := range []string{"/declared", "/read"} {
		w := connect(t, s)
		go func() { _, _ = io.Copy(io.Discard, w.conn) }()
		before := used()
		for i := range uint32(streams) {
			w.request(2*i+1, http.MethodPost, path, false, "content-length", "131072")
			for range 6 {
				if path == "/read" {
					_ = w.WriteData(2*i+1, false, make([]byte, 10_000))
				}
			}
			<-begun
		}
		if more := used() - before; more > streams*40<<10 {
			t.Errorf("%s: %d requests use %d KiB each", path, streams, more/streams>>10)
		}
	}
}

// Each field of a cookie costs no more than the last.
func TestCookiesInManyFields(t *testing.T) {
	got := make(chan []string, 1)
	s, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header["Cookie"] })
	var fields []string
	for range 700 {
		fields = append(fields, "cookie", strings.Repeat("x", 40))
	}
	w := connect(t, s)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w.request(1, http.MethodGet, "/", true, fields...)
	if all := <-got; len(all) != 1 || len(all[0]) != 700*42-2 {
		t.Errorf("%d cookies, the first of %d bytes", len(all), len(all[0]))
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("a header of %d bytes took %d KiB", w.block.Len(), n>>10)
	}
}

// A client is not asked for a body after the answer has begun (RFC 9113, section 8.1).
func TestBodiesAreNotAskedForAfterTheAnswer(t *testing.T) {
	s, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.ReadAll(r.Body)
	})
	w := connect(t, s)
	w.request(1, http.MethodPost, "/", false, "expect", "100-continue")
	first, ok := w.next(1).(*http2.MetaHeadersFrame)
	if !ok || first.PseudoValue("status") != "403" || !first.StreamEnded() {
		t.Fatalf("answered with %v", first)
	}
	_ = w.WriteData(1, true, nil)
	w.request(3, http.MethodGet, "/", true)
	for {
		f, err := w.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if f.Header().StreamID == 3 {
			return
		}
		if f, ok := f.(*http2.MetaHeadersFrame); ok {
			t.Fatalf("after the answer came %v", f)
		}
	}
}

// A client that has not sent its preface when the server begins to shut down does not keep it from that.
func TestShutdownBeforeThePreface(t *testing.T) {
	s, _ := serve(t, func(http.ResponseWriter, *http.Request) {})
	w := open(t, s)
	ended := make(chan error)
	if _, ok := w.next(0).(*http2.SettingsFrame); !ok {
		t.Fatal("no settings")
	}
	go func() { ended <- s.Config.Shutdown(t.Context()) }()
	for {
		if _, ok := w.next(0).(*http2.GoAwayFrame); ok {
			break
		}
	}
	w.greet()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Clients that take large frames get small ones, too: the connection keeps a buffer for one.
func TestFramesAreSmall(t *testing.T) {
	s, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 4<<20)) })
	w := connect(t, s, http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1<<24 - 1}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	w.SetMaxReadFrameSize(1<<24 - 1)
	_ = w.WriteWindowUpdate(0, 1<<30)
	w.request(1, http.MethodGet, "/", true)
	for {
		f := w.next(1)
		if n := f.Header().Length; n > 64<<10 {
			t.Fatalf("a frame of %d bytes", n)
		}
		if data, ok := f.(*http2.DataFrame); ok && data.StreamEnded() {
			return
		}
	}
}
