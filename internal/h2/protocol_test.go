//go:build !libraryh2

package h2_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// outcome returns how the connection or one of its streams goes on: the first frame that is an answer, a reset or the end.
func (w *wire) outcome() string {
	for {
		f, err := w.ReadFrame()
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
		send func(w *wire)
		want string
	}{
		"a good request":                    {func(w *wire) { w.request(1, http.MethodPost, "/", true) }, "stream 1: 200"},
		"5.1.1: an even stream":             {func(w *wire) { w.request(2, http.MethodPost, "/", true) }, "connection: PROTOCOL_ERROR"},
		"5.1.1: a lower stream":             {func(w *wire) { w.request(5, http.MethodPost, "/", false); w.request(3, http.MethodPost, "/", false) }, "connection: PROTOCOL_ERROR"},
		"5.1: DATA of an idle stream":       {func(w *wire) { _ = w.WriteData(1, true, nil) }, "connection: PROTOCOL_ERROR"},
		"5.1: WINDOW_UPDATE of an idle one": {func(w *wire) { _ = w.WriteWindowUpdate(1, 1) }, "connection: PROTOCOL_ERROR"},
		"5.1: RST_STREAM of an idle one":    {func(w *wire) { _ = w.WriteRSTStream(1, http2.ErrCodeCancel) }, "connection: PROTOCOL_ERROR"},
		"5.1: DATA after the end":           {func(w *wire) { w.request(1, http.MethodPost, "/", true, "wait", "1"); _ = w.WriteData(1, true, nil) }, "stream 1: STREAM_CLOSED"},
		"5.3.1: a stream that depends on itself": {func(w *wire) {
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.header(http.MethodPost, "/"), EndHeaders: true, Priority: http2.PriorityParam{StreamDep: 1}})
		}, "stream 1: PROTOCOL_ERROR"},
		"6.5.2: a window that is too large": {func(w *wire) { _ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}) }, "connection: FLOW_CONTROL_ERROR"},
		"6.5.2: a frame that is too small":  {func(w *wire) { _ = w.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1}) }, "connection: PROTOCOL_ERROR"},
		"6.6: PUSH_PROMISE": {func(w *wire) {
			_ = w.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: w.header(http.MethodPost, "/"), EndHeaders: true})
		}, "connection: PROTOCOL_ERROR"},
		"4.2: a frame that is too large": {func(w *wire) {
			w.request(1, http.MethodPost, "/", false)
			_ = w.WriteData(1, false, make([]byte, 1<<20))
		}, "connection: FRAME_SIZE_ERROR"},
		"6.9.1: the connection's window overflows": {func(w *wire) { _ = w.WriteWindowUpdate(0, 1<<31-1); _ = w.WriteWindowUpdate(0, 1<<31-1) }, "connection: FLOW_CONTROL_ERROR"},
		"6.9.1: a stream's window overflows":       {func(w *wire) { w.request(1, http.MethodPost, "/", false); _ = w.WriteWindowUpdate(1, 1<<31-1) }, "stream 1: FLOW_CONTROL_ERROR"},
		"6.9: more than a stream's window": {func(w *wire) {
			w.request(1, http.MethodPost, "/", false, "wait", "1")
			for range 9 {
				_ = w.WriteData(1, false, make([]byte, 16<<10))
			}
		}, "stream 1: FLOW_CONTROL_ERROR"},
		"6.10: HEADERS amid a header": {func(w *wire) {
			_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.header(http.MethodPost, "/")})
			w.request(3, http.MethodPost, "/", true)
		}, "connection: PROTOCOL_ERROR"},
		"8.1: trailers that do not end": {func(w *wire) { w.request(1, http.MethodPost, "/", false); w.request(1, http.MethodPost, "/", false) }, "stream 1: PROTOCOL_ERROR"},
		"8.1.1: a body that is too long": {func(w *wire) {
			w.request(1, http.MethodPost, "/", false, "content-length", "1")
			_ = w.WriteData(1, true, []byte("no"))
		}, "stream 1: PROTOCOL_ERROR"},
		"8.1.1: a body that is too short": {func(w *wire) {
			w.request(1, http.MethodPost, "/", false, "content-length", "3")
			_ = w.WriteData(1, true, []byte("no"))
		}, "stream 1: PROTOCOL_ERROR"},
		"8.1.1: no body where there is one": {func(w *wire) { w.request(1, http.MethodPost, "/", true, "content-length", "3") }, "stream 1: PROTOCOL_ERROR"},
		"8.1.1: two lengths":                {func(w *wire) { w.request(1, http.MethodPost, "/", false, "content-length", "1", "content-length", "2") }, "stream 1: PROTOCOL_ERROR"},
		"8.2.1: an upper-case name":         {func(w *wire) { w.request(1, http.MethodPost, "/", true, "Upper", "1") }, "stream 1: PROTOCOL_ERROR"},
		"8.2.1: a line break in a value":    {func(w *wire) { w.request(1, http.MethodPost, "/", true, "a", "b\r\nc: d") }, "stream 1: PROTOCOL_ERROR"},
		"8.2.2: a field of a connection":    {func(w *wire) { w.request(1, http.MethodPost, "/", true, "transfer-encoding", "chunked") }, "stream 1: PROTOCOL_ERROR"},
		"8.2.2: te":                         {func(w *wire) { w.request(1, http.MethodPost, "/", true, "te", "gzip") }, "stream 1: PROTOCOL_ERROR"},
		"8.3: a second path":                {func(w *wire) { w.request(1, http.MethodPost, "/", true, ":path", "/other") }, "stream 1: PROTOCOL_ERROR"},
		"8.3: a late pseudo field":          {func(w *wire) { w.request(1, http.MethodPost, "/", true, "a", "b", ":path", "/other") }, "stream 1: PROTOCOL_ERROR"},
		"8.4: an extended CONNECT":          {func(w *wire) { w.request(1, http.MethodPost, "/", true, ":protocol", "websocket") }, "stream 1: PROTOCOL_ERROR"},
		"10.5.1: a header that is too large": {func(w *wire) {
			w.request(1, http.MethodPost, "/", true, "a", strings.Repeat("x", 12<<10), "b", strings.Repeat("x", 60<<10))
		}, "connection: FRAME_SIZE_ERROR"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, _ := serve(t, func(_ http.ResponseWriter, req *http.Request) {
				if req.Header.Get("wait") != "" {
					<-req.Context().Done()
				}
				_, _ = io.Copy(io.Discard, req.Body)
			})
			w := connect(t, s)
			tt.send(w)
			if got := w.outcome(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A client that asks for replies and does not read them loses its connection, and little memory is held for it.
func TestFloodsEndTheConnection(t *testing.T) {
	s, _ := serve(t, func(http.ResponseWriter, *http.Request) {})
	w := connect(t, s)
	for {
		if err := w.WritePing(false, [8]byte{}); err != nil {
			return
		}
	}
}

// Requests whose streams were reset count until they have ended.
func TestRapidResetsAreRefused(t *testing.T) {
	goOn := make(chan struct{})
	s, _ := serve(t, func(http.ResponseWriter, *http.Request) { <-goOn })
	w := connect(t, s)
	defer close(goOn)
	for i := range uint32(1000) {
		w.request(2*i+1, http.MethodPost, "/", true)
		if i < 500 {
			_ = w.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
		}
	}
	if got, want := w.outcome(), "stream 1001: REFUSED_STREAM"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
