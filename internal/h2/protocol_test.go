package h2_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A raw client writes frames and reads what comes back.
type raw struct {
	*http2.Framer
	conn *tls.Conn
}

func dial(t *testing.T, handler http.HandlerFunc) *raw {
	t.Helper()
	s, _ := serve(t, handler)
	config := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", s.Listener.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	r := &raw{http2.NewFramer(conn, conn), conn}
	r.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := r.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return r
}

// header returns a compressed header of a request with these fields, which come after the ones that each request has.
func header(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	fields = append([]string{":method", "POST", ":scheme", "https", ":path", "/", ":authority", "x"}, fields...)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return b.Bytes()
}

func (r *raw) request(id uint32, end bool, fields ...string) {
	_ = r.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: header(fields...), EndHeaders: true, EndStream: end})
}

// outcome returns how the connection or one of its streams goes on: the first frame that is an answer, a reset or the end.
func (r *raw) outcome() string {
	for {
		f, err := r.ReadFrame()
		if err != nil {
			return "closed"
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			return fmt.Sprintf("stream %d: %s", f.StreamID, f.PseudoValue("status"))
		case *http2.RSTStreamFrame:
			return fmt.Sprintf("stream %d: %s", f.StreamID, f.ErrCode)
		case *http2.GoAwayFrame:
			return "connection: " + f.ErrCode.String()
		}
	}
}

// The numbers are sections of RFC 9113.
func TestWrongFramesEndWhatTheyAreAbout(t *testing.T) {
	tests := map[string]struct {
		send func(r *raw)
		want string
	}{
		"a good request":                    {func(r *raw) { r.request(1, true) }, "stream 1: 200"},
		"5.1.1: an even stream":             {func(r *raw) { r.request(2, true) }, "connection: PROTOCOL_ERROR"},
		"5.1.1: a lower stream":             {func(r *raw) { r.request(5, false); r.request(3, false) }, "connection: PROTOCOL_ERROR"},
		"5.1: DATA of an idle stream":       {func(r *raw) { _ = r.WriteData(1, true, nil) }, "connection: PROTOCOL_ERROR"},
		"5.1: WINDOW_UPDATE of an idle one": {func(r *raw) { _ = r.WriteWindowUpdate(1, 1) }, "connection: PROTOCOL_ERROR"},
		"5.1: RST_STREAM of an idle one":    {func(r *raw) { _ = r.WriteRSTStream(1, http2.ErrCodeCancel) }, "connection: PROTOCOL_ERROR"},
		"5.1: DATA after the end":           {func(r *raw) { r.request(1, true, "wait", "1"); _ = r.WriteData(1, true, nil) }, "stream 1: STREAM_CLOSED"},
		"5.3.1: a stream that depends on itself": {func(r *raw) {
			_ = r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header(), EndHeaders: true, Priority: http2.PriorityParam{StreamDep: 1}})
		}, "stream 1: PROTOCOL_ERROR"},
		"6.5.2: a window that is too large": {func(r *raw) { _ = r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}) }, "connection: FLOW_CONTROL_ERROR"},
		"6.5.2: a frame that is too small":  {func(r *raw) { _ = r.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1}) }, "connection: PROTOCOL_ERROR"},
		"6.6: PUSH_PROMISE": {func(r *raw) {
			_ = r.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: header(), EndHeaders: true})
		}, "connection: PROTOCOL_ERROR"},
		"4.2: a frame that is too large":           {func(r *raw) { r.request(1, false); _ = r.WriteData(1, false, make([]byte, 1<<20)) }, "connection: FRAME_SIZE_ERROR"},
		"6.9.1: the connection's window overflows": {func(r *raw) { _ = r.WriteWindowUpdate(0, 1<<31-1); _ = r.WriteWindowUpdate(0, 1<<31-1) }, "connection: FLOW_CONTROL_ERROR"},
		"6.9.1: a stream's window overflows":       {func(r *raw) { r.request(1, false); _ = r.WriteWindowUpdate(1, 1<<31-1) }, "stream 1: FLOW_CONTROL_ERROR"},
		"6.9: more than a stream's window": {func(r *raw) {
			r.request(1, false, "wait", "1")
			for range 9 {
				_ = r.WriteData(1, false, make([]byte, 16<<10))
			}
		}, "stream 1: FLOW_CONTROL_ERROR"},
		"6.10: HEADERS amid a header": {func(r *raw) {
			_ = r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header()})
			r.request(3, true)
		}, "connection: PROTOCOL_ERROR"},
		"8.1: trailers that do not end":      {func(r *raw) { r.request(1, false); r.request(1, false) }, "stream 1: PROTOCOL_ERROR"},
		"8.1.1: a body that is too long":     {func(r *raw) { r.request(1, false, "content-length", "1"); _ = r.WriteData(1, true, []byte("no")) }, "stream 1: PROTOCOL_ERROR"},
		"8.1.1: a body that is too short":    {func(r *raw) { r.request(1, false, "content-length", "3"); _ = r.WriteData(1, true, []byte("no")) }, "stream 1: PROTOCOL_ERROR"},
		"8.1.1: no body where there is one":  {func(r *raw) { r.request(1, true, "content-length", "3") }, "stream 1: PROTOCOL_ERROR"},
		"8.1.1: two lengths":                 {func(r *raw) { r.request(1, false, "content-length", "1", "content-length", "2") }, "stream 1: PROTOCOL_ERROR"},
		"8.2.1: an upper-case name":          {func(r *raw) { r.request(1, true, "Upper", "1") }, "stream 1: PROTOCOL_ERROR"},
		"8.2.1: a line break in a value":     {func(r *raw) { r.request(1, true, "a", "b\r\nc: d") }, "stream 1: PROTOCOL_ERROR"},
		"8.2.2: a field of a connection":     {func(r *raw) { r.request(1, true, "transfer-encoding", "chunked") }, "stream 1: PROTOCOL_ERROR"},
		"8.2.2: te":                          {func(r *raw) { r.request(1, true, "te", "gzip") }, "stream 1: PROTOCOL_ERROR"},
		"8.3: a second path":                 {func(r *raw) { r.request(1, true, ":path", "/other") }, "stream 1: PROTOCOL_ERROR"},
		"8.3: a late pseudo field":           {func(r *raw) { r.request(1, true, "a", "b", ":path", "/other") }, "stream 1: PROTOCOL_ERROR"},
		"8.4: an extended CONNECT":           {func(r *raw) { r.request(1, true, ":protocol", "websocket") }, "stream 1: PROTOCOL_ERROR"},
		"10.5.1: a header that is too large": {func(r *raw) { r.request(1, true, "a", strings.Repeat("x", 12<<10), "b", strings.Repeat("x", 60<<10)) }, "connection: FRAME_SIZE_ERROR"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := dial(t, func(_ http.ResponseWriter, req *http.Request) {
				if req.Header.Get("wait") != "" {
					<-req.Context().Done()
				}
				_, _ = io.Copy(io.Discard, req.Body)
			})
			tt.send(r)
			if got := r.outcome(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A client that asks for replies and does not read them loses its connection, and little memory is held for it.
func TestFloodsEndTheConnection(t *testing.T) {
	r := dial(t, func(http.ResponseWriter, *http.Request) {})
	for {
		if err := r.WritePing(false, [8]byte{}); err != nil {
			return
		}
	}
}

// Requests whose streams were reset count until they have ended.
func TestRapidResetsAreRefused(t *testing.T) {
	goOn := make(chan struct{})
	r := dial(t, func(http.ResponseWriter, *http.Request) { <-goOn })
	defer close(goOn)
	for i := range uint32(1000) {
		r.request(2*i+1, true)
		if i < 500 {
			_ = r.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
		}
	}
	if got, want := r.outcome(), "stream 1001: REFUSED_STREAM"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
