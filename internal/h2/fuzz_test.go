package h2_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sampan-io/sampan/internal/h2"
)

// lines keeps what a server logs.
type lines struct {
	mu  sync.Mutex
	all strings.Builder // guarded by mu
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// Whatever a client sends, its connection ends when it does, and the server goes on.
func FuzzFrames(f *testing.F) {
	seed := func(write func(*http2.Framer)) {
		var b bytes.Buffer
		write(http2.NewFramer(&b, nil))
		f.Add(b.Bytes())
	}
	header := func(pairs ...string) []byte {
		var b bytes.Buffer
		e := hpack.NewEncoder(&b)
		for i := 0; i < len(pairs); i += 2 {
			_ = e.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
		}
		return b.Bytes()
	}
	post := header(":method", "POST", ":scheme", "https", ":path", "/", ":authority", "x", "content-length", "4", "trailer", "x-after")
	seed(func(f *http2.Framer) {
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1})
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: post, EndHeaders: true})
		_ = f.WriteDataPadded(1, false, []byte("te"), make([]byte, 9))
		_ = f.WriteData(1, false, []byte("xt"))
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header("x-after", "1"), EndHeaders: true, EndStream: true})
		_ = f.WriteWindowUpdate(1, 1<<30)
		_ = f.WriteWindowUpdate(0, 1<<30)
		_ = f.WritePing(false, [8]byte{})
		_ = f.WriteRSTStream(1, http2.ErrCodeCancel)
	})
	seed(func(f *http2.Framer) {
		_ = f.WriteSettings()
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: post[:5]})
		_ = f.WriteContinuation(1, true, post[5:])
		_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
		_ = f.WriteData(1, true, []byte("text"))
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: post, EndHeaders: true, Priority: http2.PriorityParam{StreamDep: 3}})
	})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(append(body, make([]byte, 10_000)...))
	}))
	var logged lines
	s.Config.ErrorLog = log.New(&logged, "", 0)
	s.TLS = &tls.Config{NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13}
	h2.Configure(s.Config)
	s.StartTLS()
	f.Cleanup(s.Close)
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"h2"}
	f.Fuzz(func(t *testing.T, frames []byte) {
		c, err := tls.Dial("tcp", s.Listener.Addr().String(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, http2.ClientPreface)
		_, _ = c.Write(frames)
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		if strings.Contains(logged.String(), "panic") {
			t.Fatal(logged.String())
		}
	})
}
