package h2_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A wire is a client that sends frames one by one.
type wire struct {
	*http2.Framer

	t        *testing.T
	conn     *tls.Conn
	block    bytes.Buffer
	compress *hpack.Encoder
}

// connect opens a connection and sends the preface with settings.
func connect(t *testing.T, s *httptest.Server, settings ...http2.Setting) *wire {
	t.Helper()
	w := open(t, s)
	w.greet(settings...)
	return w
}

func open(t *testing.T, s *httptest.Server) *wire {
	t.Helper()
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"h2"}
	c, err := tls.Dial("tcp", s.Listener.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	w := &wire{t: t, conn: c, Framer: http2.NewFramer(c, c)}
	w.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	w.compress = hpack.NewEncoder(&w.block)
	return w
}

func (w *wire) greet(settings ...http2.Setting) {
	_, _ = io.WriteString(w.conn, http2.ClientPreface)
	_ = w.WriteSettings(settings...)
}

// header returns the compressed header of a request with more fields, until the next one.
func (w *wire) header(method, path string, fields ...string) []byte {
	w.block.Reset()
	for all := append([]string{":method", method, ":scheme", "https", ":path", path, ":authority", "x"}, fields...); len(all) > 0; all = all[2:] {
		_ = w.compress.WriteField(hpack.HeaderField{Name: all[0], Value: all[1]})
	}
	return w.block.Bytes()
}

// request sends the header of a request with more fields.
func (w *wire) request(id uint32, method, path string, end bool, fields ...string) {
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.header(method, path, fields...), EndHeaders: true, EndStream: end})
}

// next returns the next frame of the stream.
func (w *wire) next(id uint32) http2.Frame {
	w.t.Helper()
	for {
		f, err := w.ReadFrame()
		if err != nil {
			w.t.Fatal(err)
		}
		if f.Header().StreamID == id {
			return f
		}
	}
}
