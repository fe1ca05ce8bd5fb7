package channels_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/internal/channels"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/upgrade"
)

var bye = frame{last | websocket.CloseMessage, []byte{3, 232}}

// TestChannelsGetTheirMessages sends messages in several frames with pings between them, and compares what arrives in each channel.
func TestChannelsGetTheirMessages(t *testing.T) {
	handle, result := recorder()
	dial := serving(t, command(v4, v4Base64), handle)
	rapid.Check(t, func(rt *rapid.T) {
		protocol := rapid.SampledFrom([]string{v4, v4Base64}).Draw(rt, "protocol")
		var all []byte
		var want [256][]byte
		var pings []string
		drawKey := func() [4]byte { return [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(rt, "key")) }
		for range rapid.IntRange(0, 5).Draw(rt, "messages") {
			channel := rapid.SampledFrom([]byte{0, 1, 2, 4, 5, 255}).Draw(rt, "channel")
			size := rapid.SampledFrom([]int{0, 1, 3, 124, 125, 126, 32<<10 - 1, 64 << 10, 70_000, 1<<20 + 5}).Draw(rt, "size")
			data := bytes.Repeat([]byte("abcdefg"), size/7+1)[:size]
			want[channel] = append(want[channel], data...)
			rest, opcode := append([]byte{channel}, data...), byte(websocket.BinaryMessage)
			if protocol == v4Base64 {
				rest, opcode = base64.StdEncoding.AppendEncode([]byte{channel + '0'}, data), websocket.TextMessage
			}
			for {
				n := rapid.SampledFrom([]int{len(rest), min(1, len(rest)), len(rest) / 2, 0}).Draw(rt, "frame")
				f := frame{opcode, rest[:n]}
				rest, opcode = rest[n:], 0
				if len(rest) == 0 {
					f.first |= last
				}
				all = f.appendTo(all, drawKey())
				if rapid.Bool().Draw(rt, "ping") {
					p := rapid.SliceOfN(rapid.Byte(), 0, 125).Draw(rt, "of ping")
					pings = append(pings, string(p))
					all = frame{last | websocket.PingMessage, p}.appendTo(all, drawKey())
				}
				if len(rest) == 0 {
					break
				}
			}
		}
		conn := dial(t)
		defer conn.Close()
		early := rapid.IntRange(0, min(len(all), 2000)).Draw(rt, "bytes with the request")
		c := connect(t, conn, protocol, all[:early])
		g := run.NewGroup(t.Context(), 0)
		g.Go(func(context.Context) {
			c.write(all[early:])
			c.send(bye)
		})
		var pongs []string
		for {
			opcode, content, err := c.next()
			if err != nil {
				rt.Fatal(err)
			}
			if opcode == websocket.CloseMessage {
				break
			}
			pongs = append(pongs, content)
		}
		g.Stop()
		if got := <-result; got[0] != string(want[0]) || got[1] != string(want[4]) {
			rt.Errorf("%d and %d bytes came, want %d and %d", len(got[0]), len(got[1]), len(want[0]), len(want[4]))
		}
		if !slices.Equal(pongs, pings) {
			rt.Errorf("pongs %q, want %q", pongs, pings)
		}
	})
}

func TestEmptyMessages(t *testing.T) {
	handle, result := recorder()
	c := connect(t, serving(t, command(v4), handle)(t), v4, nil)
	c.send(message(""), message("\x00"), message("\x00a"), message("\x00"), frame{websocket.BinaryMessage, nil}, frame{last, nil}, message("\x00b"), bye)
	if got := <-result; got != (received{"ab"}) {
		t.Errorf("%q", got)
	}
}

// TestWrongFramesEndConnections sends a message, a frame that is wrong, and one more message.
func TestWrongFramesEndConnections(t *testing.T) {
	for name, wrong := range map[string][]byte{
		"without mask":                {0x82, 2, 0, 1},
		"with an extension":           frame{0xc2, []byte("\x00x")}.appendTo(nil, [4]byte{}),
		"unknown type":                frame{0x83, []byte("\x00x")}.appendTo(nil, [4]byte{}),
		"unknown control type":        frame{0x8b, nil}.appendTo(nil, [4]byte{}),
		"continuation of nothing":     frame{0x80, []byte("x")}.appendTo(nil, [4]byte{}),
		"message within a message":    message("\x00x").appendTo(frame{0x02, []byte{0}}.appendTo(nil, [4]byte{}), [4]byte{}),
		"long ping":                   frame{0x89, make([]byte, 126)}.appendTo(nil, [4]byte{}),
		"ping with a long length":     {0x89, 0xfe, 0, 16, 0, 0, 0, 0, 0, 0, 0x82, 0xff},
		"ping with a longer length":   {0x89, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0},
		"ping in parts":               frame{0x09, nil}.appendTo(nil, [4]byte{}),
		"length of more than 63 bits": {0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0},
		"wrong close code":            frame{0x88, []byte{0, 1}}.appendTo(nil, [4]byte{}),
	} {
		t.Run(name, func(t *testing.T) {
			handle, result := recorder()
			c := connect(t, serving(t, command(v4), handle)(t), v4, nil)
			good := message("\x00good").appendTo(nil, [4]byte{1, 2, 3, 4})
			c.write(slices.Concat(good, wrong, good))
			c.wantClose(websocket.CloseProtocolError)
			if got := <-result; got != (received{"good"}) {
				t.Errorf("%q came", got)
			}
		})
	}
}

// TestEndSignal has clients that end a channel in v5.channel.k8s.io, and then send input and a size.
func TestEndSignal(t *testing.T) {
	const wrong = "the signal for the end of a channel must have exactly one byte, the number of a channel"
	first := func(s string) frame { return frame{websocket.BinaryMessage, []byte(s)} }
	for name, tt := range map[string]struct {
		signal []frame
		want   received
		code   int
		reason string
	}{
		"input":             {[]frame{message("\xff\x00")}, received{"a", "s"}, websocket.CloseNormalClosure, ""},
		"twice":             {[]frame{message("\xff\x00"), message("\xff\x00")}, received{"a", "s"}, websocket.CloseNormalClosure, ""},
		"output":            {[]frame{message("\xff\x01")}, received{"ab", "s"}, websocket.CloseNormalClosure, ""},
		"unused":            {[]frame{message("\xff\x02")}, received{"ab", "s"}, websocket.CloseNormalClosure, ""},
		"two frames":        {[]frame{first("\xff"), {last, []byte{0}}}, received{"a", "s"}, websocket.CloseNormalClosure, ""},
		"many frames":       {[]frame{first(""), {0, []byte{255}}, {0, nil}, {0, []byte{0}}, {last, nil}}, received{"a", "s"}, websocket.CloseNormalClosure, ""},
		"no channel":        {[]frame{message("\xff")}, received{"a"}, websocket.CloseProtocolError, wrong},
		"none in frames":    {[]frame{first("\xff"), {last, nil}}, received{"a"}, websocket.CloseProtocolError, wrong},
		"two channels":      {[]frame{message("\xff\x00\x04")}, received{"a"}, websocket.CloseProtocolError, wrong},
		"two in frames":     {[]frame{first("\xff\x00"), {0, []byte{4}}}, received{"a"}, websocket.CloseProtocolError, wrong},
		"unknown":           {[]frame{message("\xff\x05")}, received{"a"}, websocket.CloseProtocolError, wrong},
		"unknown in frames": {[]frame{first("\xff"), {last, []byte{255}}}, received{"a"}, websocket.CloseProtocolError, wrong},
	} {
		t.Run(name, func(t *testing.T) {
			handle, result := recorder()
			c := connect(t, serving(t, command(v5), handle)(t), v5, nil)
			c.send(append(append([]frame{message("\x00a")}, tt.signal...), message("\x00b"), message("\x04s"), bye)...)
			if reason := c.wantClose(tt.code); reason != tt.reason {
				t.Errorf("reason %q", reason)
			}
			if got := <-result; got != tt.want {
				t.Errorf("%q came, want %q", got, tt.want)
			}
		})
	}
	t.Run("older protocol", func(t *testing.T) {
		handle, result := recorder()
		c := connect(t, serving(t, command(v4), handle)(t), v4, nil)
		c.send(message("\xff\x00"), message("\xff"), message("\x00b"), bye)
		if got := <-result; got != (received{"b"}) {
			t.Errorf("%q came", got)
		}
	})
}

// TestOutputFollowsTheEndOfInput has a command that answers when it has all of its input.
func TestOutputFollowsTheEndOfInput(t *testing.T) {
	c := connect(t, serving(t, command(v5), func(c *channels.Conn) {
		in, _ := io.ReadAll(c.Channel(0))
		_, _ = c.Channel(1).Write(bytes.ToUpper(in))
	})(t), v5, nil)
	c.send(message("\x00abc"), message("\xff\x00"))
	if got := c.receive(websocket.BinaryMessage); got != "\x01ABC" {
		t.Errorf("%q came", got)
	}
	c.wantClose(websocket.CloseNormalClosure)
}

// TestLargeMessageNeedsLittleMemory sends messages of up to 256 MiB.
func TestLargeMessageNeedsLittleMemory(t *testing.T) {
	const large, most = 8 << 20, 256 << 20
	for name, tt := range map[string]struct {
		protocol string
		channel  byte
		size     int
		want     int64 // bytes that a reader gets
	}{
		"read": {v4, 0, most, most}, "base64": {v4Base64, '0', large, large / 4 * 3},
		"unknown channel": {v4, 9, large, 0}, "output": {v4, 1, large, 0}, "unknown in base64": {v4Base64, '9', large, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan int64, 1)
			c := connect(t, serving(t, command(v4, v4Base64), func(c *channels.Conn) {
				n, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, c.Channel(0), make([]byte, upgrade.Piece))
				got <- n
			})(t), tt.protocol, nil)
			piece := bytes.Repeat([]byte("QUFB"), 1<<14)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			c.write(append(appendHead(nil, last|websocket.BinaryMessage, tt.size+1), 0, 0, 0, 0, tt.channel)) // a mask that changes nothing
			for range tt.size / len(piece) {
				c.write(piece)
			}
			c.send(bye)
			n := <-got
			runtime.ReadMemStats(&after)
			if n != tt.want {
				t.Errorf("%d bytes came, want %d", n, tt.want)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
				t.Errorf("%d bytes were allocated for a message of %d", used, tt.size)
			}
		})
	}
}

func TestBase64(t *testing.T) {
	const wrong = "invalid base64 after the number of the channel"
	for sent, tt := range map[string]struct {
		want   string
		code   int
		reason string
	}{
		"0YWJj": {"abc.", websocket.CloseNormalClosure, ""}, "0YQ==": {"a.", websocket.CloseNormalClosure, ""}, "0": {".", websocket.CloseNormalClosure, ""},
		"0YW\r\nJj\n": {"abc.", websocket.CloseNormalClosure, ""}, // as upstream takes it
		"0YWJ":        {"", websocket.CloseInvalidFramePayloadData, wrong},
		"0YWJjYQ":     {"abc", websocket.CloseInvalidFramePayloadData, wrong},
		"0Y Jj":       {"", websocket.CloseInvalidFramePayloadData, wrong},
		"0=":          {"", websocket.CloseInvalidFramePayloadData, wrong},
		"1???":        {".", websocket.CloseNormalClosure, ""}, // output is not read
		"\x00YWJj":    {".", websocket.CloseNormalClosure, ""},
	} {
		t.Run(sent, func(t *testing.T) {
			handle, result := recorder()
			c := connect(t, serving(t, command(v4Base64), handle)(t), v4Base64, nil)
			c.send(frame{last | websocket.TextMessage, []byte(sent)}, frame{last | websocket.TextMessage, []byte("0Lg==")}, bye)
			if reason := c.wantClose(tt.code); reason != tt.reason {
				t.Errorf("reason %q", reason)
			}
			if got := <-result; got[0] != tt.want {
				t.Errorf("%q came, want %q", got[0], tt.want)
			}
		})
	}
}

// TestReaderMayCloseChannel closes a channel in the middle of a message. The rest is discarded.
func TestReaderMayCloseChannel(t *testing.T) {
	got := make(chan string, 1)
	c := connect(t, serving(t, command(v4), func(c *channels.Conn) {
		in := c.Channel(0)
		begin := make([]byte, 3)
		_, _ = io.ReadFull(in, begin)
		_, _ = in.Close(), in.Close()
		n, err := in.Read(begin)
		if n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("after the end of the channel %d bytes come, %v", n, err)
		}
		size := make([]byte, 4)
		_, _ = io.ReadFull(c.Channel(4), size)
		got <- string(begin) + string(size)
	})(t), v4, nil)
	c.send(frame{websocket.BinaryMessage, []byte("\x00abc" + strings.Repeat("x", 1<<20))}, frame{last, make([]byte, 1<<20)}, message("\x00more"), message("\x04size"))
	if got := <-got; got != "abcsize" {
		t.Errorf("%q came", got)
	}
	c.wantClose(websocket.CloseNormalClosure)
}

// TestWriterMayFail has a writer that fails in the middle of a message. The rest can be read.
func TestWriterMayFail(t *testing.T) {
	full := errors.New("full")
	got := make(chan string, 1)
	c := connect(t, serving(t, command(v4), func(c *channels.Conn) {
		if n, err := c.Channel(0).WriteTo(limitedWriter{3, full}); n != 3 || !errors.Is(err, full) {
			t.Errorf("%d bytes were written: %v", n, err)
		}
		rest := make([]byte, 2)
		_, _ = io.ReadFull(c.Channel(0), rest)
		got <- string(rest)
	})(t), v4, nil)
	c.send(frame{websocket.BinaryMessage, []byte("\x00abc")}, frame{last, []byte("de")})
	if got := <-got; got != "de" {
		t.Errorf("%q is the rest", got)
	}
	c.wantClose(websocket.CloseNormalClosure)
}

// A limitedWriter fails with err after n bytes.
type limitedWriter struct {
	n   int
	err error
}

func (w limitedWriter) Write(p []byte) (int, error) { return min(w.n, len(p)), w.err }

// TestHandlerMayLeaveMessages has a handler that returns while the channel's reader waits for the rest of a message, or does not
// read it at all.
func TestHandlerMayLeaveMessages(t *testing.T) {
	for _, read := range []bool{true, false} {
		readers := run.NewGroup(context.WithoutCancel(t.Context()), 0)
		c := connect(t, serving(t, command(v4), func(c *channels.Conn) {
			if !read {
				_, _ = io.ReadFull(c.Channel(4), make([]byte, 1))
				return
			}
			begun := make(chan struct{})
			readers.Go(func(context.Context) {
				_, _ = io.ReadFull(c.Channel(0), make([]byte, 4))
				close(begun)
				_, _ = io.Copy(io.Discard, c.Channel(0))
			})
			<-begun
		})(t), v4, nil)
		if !read {
			c.send(message("\x04s"))
		}
		c.write(message("\x00message").appendTo(nil, [4]byte{})[:6+5])
		c.wantClose(websocket.CloseNormalClosure)
		if err := c.conn.Close(); err != nil {
			t.Fatal(err)
		}
		readers.Wait()
	}
}

// TestClientMayGo has clients that end the connection.
func TestClientMayGo(t *testing.T) {
	part := message("\x00abcdef").appendTo(nil, [4]byte{})[:6+4]
	for name, tt := range map[string]struct {
		sent []byte
		want string
	}{
		"nothing":   {nil, ""},
		"message":   {message("\x00abc").appendTo(nil, [4]byte{}), "abc"},
		"within":    {part, "abc"},
		"head":      {part[:3], ""},
		"first":     {part[:6], ""},
		"fragment":  {frame{websocket.BinaryMessage, []byte("\x00ab")}.appendTo(nil, [4]byte{}), "ab"},
		"good-bye":  {bye.appendTo(message("\x00abc").appendTo(nil, [4]byte{}), [4]byte{}), "abc"},
		"unread":    {frame{websocket.BinaryMessage, []byte("\x09ab")}.appendTo(nil, [4]byte{}), ""},
		"in signal": {frame{websocket.BinaryMessage, []byte("\xff")}.appendTo(nil, [4]byte{}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, ended := make(chan string, 1), make(chan struct{})
			c := connect(t, serving(t, command(v5), func(c *channels.Conn) {
				b, _ := io.ReadAll(c.Channel(0))
				<-c.Done()
				got <- string(b)
				close(ended)
			})(t), v5, nil)
			c.write(tt.sent)
			if name == "good-bye" {
				c.wantClose(websocket.CloseNormalClosure) // the server is the first to end
			} else if err := c.conn.Close(); err != nil {
				t.Fatal(err)
			}
			if got := <-got; got != tt.want {
				t.Errorf("%q came, want %q", got, tt.want)
			}
			<-ended
		})
	}
}

// TestWritesAreDivided writes messages of many sizes, from two goroutines.
func TestWritesAreDivided(t *testing.T) {
	sizes := []int{0, 1, 125, 126, upgrade.Frame - 1, upgrade.Frame, upgrade.Frame + 1, 3*upgrade.Frame + 7, 1 << 20}
	total := 0
	for _, size := range sizes {
		total += size
	}
	for _, protocol := range []string{v4, v4Base64} {
		c := connect(t, serving(t, command(v4, v4Base64), func(c *channels.Conn) {
			g := run.NewGroup(context.Background(), 0)
			for _, number := range []int{1, 3} {
				g.Go(func(context.Context) {
					for _, size := range sizes {
						if n, err := c.Channel(number).Write(bytes.Repeat([]byte{byte('a' + number)}, size)); n != size || err != nil {
							t.Errorf("%d of %d bytes were written: %v", n, size, err)
						}
					}
				})
			}
			g.Wait()
		})(t), protocol, nil)
		messages := map[byte]int{}
		got := map[byte][]byte{}
		for {
			opcode, content, err := c.next()
			if err != nil {
				t.Fatal(err)
			}
			if opcode == websocket.CloseMessage {
				break
			}
			if len(content) > upgrade.Frame+1 {
				t.Errorf("%s: a message of %d bytes", protocol, len(content))
			}
			number, data := content[0], []byte(content[1:])
			if protocol == v4Base64 {
				if data, err = base64.StdEncoding.DecodeString(content[1:]); err != nil || opcode != websocket.TextMessage {
					t.Errorf("a message of type %d: %v", opcode, err)
				}
				number -= '0'
			}
			got[number] = append(got[number], data...)
			messages[number]++
		}
		for _, number := range []byte{1, 3} {
			if want := bytes.Repeat([]byte{'a' + number}, total); !bytes.Equal(got[number], want) {
				t.Errorf("%s: channel %d: %d bytes, want %d", protocol, number, len(got[number]), len(want))
			}
			if want := 6 + 2 + 4 + 1<<20/upgrade.Frame + 1; protocol == v4 && messages[number] != want {
				t.Errorf("%s: channel %d: %d messages, want %d", protocol, number, messages[number], want)
			}
		}
	}
}

// TestManyChannelsInText writes to channels whose numbers are no ASCII characters in base64 protocols.
func TestManyChannelsInText(t *testing.T) {
	o := channels.Options{Protocols: []string{v4Base64}, Kinds: slices.Repeat([]channels.Kind{channels.ReadWrite}, 100), Idle: command().Idle}
	c := connect(t, serving(t, o, func(c *channels.Conn) {
		for _, number := range []int{9, 10, 79, 80, 99} {
			_, _ = c.Channel(number).Write([]byte("x"))
		}
	})(t), v4Base64, nil)
	for _, want := range []string{"9eA==", ":eA==", "\x7feA==", "\u0080eA==", "\u0093eA=="} { // text has to be UTF-8
		if got := c.receive(websocket.TextMessage); got != want {
			t.Errorf("%q came, want %q", got, want)
		}
	}
}

func TestChannelsHaveDirections(t *testing.T) {
	c := connect(t, serving(t, command(v4), func(c *channels.Conn) {
		for _, number := range []int{1, 2} {
			if n, err := c.Channel(number).Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("channel %d: %d bytes were read, %v", number, n, err)
			}
		}
		for _, number := range []int{0, 2, 4} {
			if n, err := c.Channel(number).Write([]byte("abc")); n != 3 || err != nil {
				t.Errorf("channel %d: %d bytes were written, %v", number, n, err)
			}
		}
	})(t), v4, nil)
	if opcode, content, err := c.next(); err != nil || opcode != websocket.CloseMessage {
		t.Errorf("%d %q came, %v", opcode, content, err)
	}
}

func TestProtocolChoice(t *testing.T) {
	got := make(chan string, 1)
	dial := serving(t, command("", v4, v5), func(c *channels.Conn) { got <- c.Protocol() })
	for asked, want := range map[string]string{
		"": "", v4: v4, "v9.channel.k8s.io, " + v5 + "," + v4: v5,
	} {
		c := connect(t, dial(t), asked, nil)
		if c.res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(c.res.Status)
		}
		answered, present := c.res.Header["Sec-Websocket-Protocol"]
		if chosen := <-got; chosen != want || present != (want != "") || present && answered[0] != want {
			t.Errorf("%q: chosen %q, answered %q, want %q", asked, chosen, answered, want)
		}
	}
	for asked, want := range map[string]string{
		"v9.channel.k8s.io, x": "requested protocol(s) are not supported: [\"v9.channel.k8s.io\" \"x\"]; supports [\"v4.channel.k8s.io\"]\n",
		"":                     "requested protocol(s) are not supported: [\"\"]; supports [\"v4.channel.k8s.io\"]\n",
	} {
		c := connect(t, serving(t, command(v4), nil)(t), asked, nil)
		body, err := io.ReadAll(c.res.Body)
		if c.res.StatusCode != http.StatusForbidden || string(body) != want || err != nil {
			t.Errorf("%q: %s %q, %v; want %q", asked, c.res.Status, body, err, want)
		}
	}
}

// TestRefusalIsError has requests that are for no WebSocket.
func TestRefusalIsError(t *testing.T) {
	var sockets channels.Server
	for method, want := range map[string]int{http.MethodGet: http.StatusInternalServerError, http.MethodPost: http.StatusMethodNotAllowed} {
		r := httptest.NewRequest(method, "/", nil)
		for name, value := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-Websocket-Version": "13", "Sec-Websocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
		} {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder() // it can't be taken over
		if err := sockets.Serve(w, r, command(""), nil); err == nil || w.Code != want {
			t.Errorf("%s: %d, %v", method, w.Code, err)
		}
	}
	w := httptest.NewRecorder()
	if err := sockets.Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), command(""), nil); err == nil || w.Code != http.StatusBadRequest {
		t.Errorf("no upgrade: %d, %v", w.Code, err)
	}
}
