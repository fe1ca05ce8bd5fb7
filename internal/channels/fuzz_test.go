package channels_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/sampan-io/sampan/internal/run"
)

// FuzzClient has clients that send any bytes. What is read from the channels is compared with the answer of a decoder that has all
// of the bytes at once.
func FuzzClient(f *testing.F) {
	key := [4]byte{1, 2, 3, 4}
	f.Add(byte(0), message("\x00abc").appendTo(frame{websocket.BinaryMessage, []byte("\x04s")}.appendTo(nil, key), key))
	f.Add(byte(0), frame{last, []byte("b")}.appendTo(frame{last | websocket.PingMessage, nil}.appendTo(frame{websocket.BinaryMessage, []byte("\x00a")}.appendTo(nil, key), key), key))
	f.Add(byte(0), message("\x00"+strings.Repeat("x", 1<<16)).appendTo(nil, key))
	f.Add(byte(1), frame{last | websocket.TextMessage, []byte("0YWJj")}.appendTo(frame{last | websocket.TextMessage, []byte("4YQ==")}.appendTo(nil, [4]byte{}), key))
	f.Add(byte(2), message("\x00b").appendTo(message("\xff\x00").appendTo(message("\x00a").appendTo(nil, key), key), key))
	f.Add(byte(2), bye.appendTo(frame{last, []byte{4}}.appendTo(frame{websocket.BinaryMessage, []byte{255}}.appendTo(nil, key), key), key))
	f.Fuzz(func(t *testing.T, choice byte, b []byte) {
		protocol := []string{v4, v4Base64, v5}[choice%3]
		handle, result := recorder()
		g := run.NewGroup(context.Background(), 0)
		c := piped(t, g, command(v4, v4Base64, v5), protocol, handle)
		g.Go(func(context.Context) { _, _ = io.Copy(io.Discard, c.in) })
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = c.conn.Write(b) // the server may end the connection first
		_ = c.conn.Close()
		got := <-result
		g.Wait()
		runtime.ReadMemStats(&after)
		if used, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+16*len(b)); used > most {
			t.Errorf("%d bytes were allocated for %d, want at most %d", used, len(b), most)
		}
		d := decoder{text: protocol == v4Base64, ends: protocol == v5}
		d.decode(b)
		for i, want := range d.got {
			if !strings.HasPrefix(got[i], string(want)) || !d.open && got[i] != string(want) {
				t.Errorf("%q came, want %q; more may come: %t", got[i], want, d.open)
			}
		}
	})
}

// A decoder is a simple server: it has channels 0 and 4 of a command.
type decoder struct {
	text, ends bool

	got   [2][]byte
	ended [2]bool
	open  bool // text was wrong or incomplete: the beginning of that may come
}

// decode decodes frames until the connection ends.
func (d *decoder) decode(b []byte) {
	var message []byte
	begun, total := false, int64(0)
	for len(b) >= 2 {
		first, short := b[0], b[1]&0x7f
		opcode, final := int(first&15), first&last != 0
		wrong := first&0x70 != 0 || b[1]&0x80 == 0
		b = b[2:]
		switch opcode {
		case 0:
			wrong = wrong || !begun
		case websocket.TextMessage, websocket.BinaryMessage:
			wrong = wrong || begun
			total = 0
		case websocket.CloseMessage, websocket.PingMessage, websocket.PongMessage:
			wrong = wrong || !final || short > 125
		default:
			wrong = true
		}
		lengthBytes := map[byte]int{126: 2, 127: 8}[short]
		if wrong || len(b) < lengthBytes+4 {
			break
		}
		length := int64(short)
		if lengthBytes > 0 {
			length = int64(binary.BigEndian.Uint64(append(make([]byte, 8-lengthBytes), b[:lengthBytes]...)))
		}
		key := b[lengthBytes:][:4]
		b = b[lengthBytes+4:]
		if opcode >= websocket.CloseMessage {
			if opcode == websocket.CloseMessage || int(length) > len(b) {
				break
			}
			b = b[length:]
			continue
		}
		total += length
		if length < 0 || total < 0 {
			break
		}
		whole := length <= int64(len(b))
		content := bytes.Clone(b[:min(length, int64(len(b)))])
		b = b[len(content):]
		for i := range content {
			content[i] ^= key[i%4]
		}
		message = append(message, content...)
		begun = !whole || !final
		if begun {
			continue
		}
		if !d.pass(message) {
			return
		}
		message = nil
	}
	if begun {
		d.begin(message)
	}
}

// channel returns which channel that is read a message is for.
func (d *decoder) channel(number byte) (i int, read bool) {
	if d.text {
		number -= '0'
	}
	i = map[byte]int{0: 0, 4: 1}[number]
	return i, number == 0 || number == 4
}

// pass passes a message on to its channel, and reports whether the connection goes on.
func (d *decoder) pass(message []byte) bool {
	if len(message) == 0 {
		return true
	}
	if d.ends && message[0] == 255 {
		if len(message) != 2 || message[1] > 4 {
			return false
		}
		if i, read := d.channel(message[1]); read {
			d.ended[i] = true
		}
		return true
	}
	i, read := d.channel(message[0])
	if !read || d.ended[i] {
		return true
	}
	data := message[1:]
	if d.text {
		var err error
		if data, err = base64.StdEncoding.DecodeString(string(data)); err != nil {
			d.open = true
			return false
		}
	}
	d.got[i] = append(d.got[i], data...)
	return true
}

// begin passes the beginning of the last message on.
func (d *decoder) begin(message []byte) {
	switch {
	case len(message) == 0 || d.ends && message[0] == 255:
	case d.text:
		d.open = true
	default:
		d.pass(message)
	}
}
