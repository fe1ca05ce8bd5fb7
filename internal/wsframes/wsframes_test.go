package wsframes_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/internal/wsframes"
)

// A frame is one frame of a client.
type frame struct {
	first   byte // with the bit of the last frame of a message
	content []byte
}

// appendTo appends the frame with a mask.
func (f frame) appendTo(b []byte, key [4]byte) []byte {
	b = append(b, f.first)
	switch n := len(f.content); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	b = append(b, key[:]...)
	for i, c := range f.content {
		b = append(b, c^key[i%4])
	}
	return b
}

// parse returns the frames in b, all of which have to be whole.
func parse(t fataler, b []byte) []frame {
	t.Helper()
	var all []frame
	for len(b) > 0 {
		f := frame{first: b[0]}
		n, at := int(b[1]&0x7f), 2
		switch n {
		case 126:
			n, at = int(binary.BigEndian.Uint16(b[2:])), 4
		case 127:
			n, at = int(binary.BigEndian.Uint64(b[2:])), 10
		}
		key := b[at : at+4]
		for i, c := range b[at+4 : at+4+n] {
			f.content = append(f.content, c^key[i%4])
		}
		all = append(all, f)
		b = b[at+4+n:]
	}
	return all
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

// TestSignalInFramesIsOneMessage divides the signal by which a client ends a stream in v5.channel.k8s.io.
func TestSignalInFramesIsOneMessage(t *testing.T) {
	key := [4]byte{1, 2, 3, 4}
	for _, parts := range [][]string{{"\xff\x00"}, {"\xff", "\x00"}, {"\xff", "", "\x00"}, {"", "\xff", "\x00", ""}, {"\xff\x00", ""}, {"\xff", ""}} {
		var all []byte
		content := ""
		for i, part := range parts {
			f := frame{content: []byte(part)}
			if i == 0 {
				f.first = 2
			}
			if i == len(parts)-1 {
				f.first |= 0x80
			}
			content += part
			all = f.appendTo(all, key)
			all = frame{0x89, nil}.appendTo(all, [4]byte{5, 6, 7, 8})
		}
		read, err := io.ReadAll(wsframes.NewReader(bytes.NewReader(all)))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range parse(t, read) {
			if f.first == 0x82 {
				got = append(got, string(f.content))
			}
		}
		if len(got) != 1 || got[0] != content {
			t.Errorf("%q: messages %q, want %q", parts, got, content)
		}
	}
}

// TestReaderKeepsChannels writes messages in several frames with pings between them, and compares what arrives in each
// channel.
func TestReaderKeepsChannels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []byte
		var pings, gotPings [][]byte
		sent, got := map[byte][]byte{}, map[byte][]byte{}
		drawKey := func() [4]byte { return [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "key")) }
		for range rapid.IntRange(0, 5).Draw(t, "messages") {
			channel := rapid.Byte().Draw(t, "channel")
			size := rapid.SampledFrom([]int{0, 1, 3, 124, 125, 126, 32<<10 - 1, 32 << 10, 32<<10 + 1, 70_000, 1<<20 + 5}).Draw(t, "size")
			data := bytes.Repeat([]byte("abcdefg"), size/7+1)[:size]
			sent[channel] = append(sent[channel], data...)
			rest, opcode := append([]byte{channel}, data...), rapid.SampledFrom([]byte{1, 2}).Draw(t, "type")
			for {
				n := rapid.SampledFrom([]int{len(rest), min(1, len(rest)), len(rest) / 2, 0}).Draw(t, "frame")
				f := frame{opcode, rest[:n]}
				rest, opcode = rest[n:], 0
				if len(rest) == 0 {
					f.first |= 0x80
				}
				all = f.appendTo(all, drawKey())
				if rapid.Bool().Draw(t, "ping") {
					p := rapid.SliceOfN(rapid.Byte(), 0, 125).Draw(t, "of ping")
					pings = append(pings, p)
					all = frame{0x89, p}.appendTo(all, drawKey())
				}
				if len(rest) == 0 {
					break
				}
			}
		}
		for _, from := range []io.Reader{bytes.NewReader(all), iotest.OneByteReader(bytes.NewReader(all)), iotest.DataErrReader(bytes.NewReader(all))} {
			clear(got)
			gotPings = nil
			read, err := io.ReadAll(wsframes.NewReader(from))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range parse(t, read) {
				switch {
				case f.first == 0x89:
					gotPings = append(gotPings, f.content)
				case f.first != 0x82 && f.first != 0x81 || len(f.content) == 0 || f.first == 0x82 && len(f.content) > 32<<10+1 || len(f.content) > 1<<20+1:
					t.Fatalf("a frame of type %x with %d bytes", f.first, len(f.content))
				default:
					got[f.content[0]] = append(got[f.content[0]], f.content[1:]...)
				}
			}
			for channel, data := range sent {
				if !bytes.Equal(got[channel], data) {
					t.Fatalf("channel %d: %d bytes, want %d", channel, len(got[channel]), len(data))
				}
			}
			if len(gotPings) != len(pings) {
				t.Fatalf("%d pings, want %d", len(gotPings), len(pings))
			}
			for i := range pings {
				if !bytes.Equal(gotPings[i], pings[i]) {
					t.Fatalf("ping %d has %x, want %x", i, gotPings[i], pings[i])
				}
			}
		}
	})
}

func TestReaderEndsBeforeWrongFrames(t *testing.T) {
	good := frame{0x82, []byte("0x")}.appendTo(nil, [4]byte{1, 2, 3, 4})
	for name, wrong := range map[string][]byte{
		"without mask":                {0x82, 2, 0, 1},
		"with an extension":           frame{0xc2, []byte("0x")}.appendTo(nil, [4]byte{}),
		"unknown type":                frame{0x83, []byte("0x")}.appendTo(nil, [4]byte{}),
		"continuation of nothing":     frame{0x80, []byte("x")}.appendTo(nil, [4]byte{}),
		"long ping":                   frame{0x89, make([]byte, 126)}.appendTo(nil, [4]byte{}),
		"ping with a long length":     {0x89, 0xfe, 0, 16, 0, 0, 0, 0, 0, 0, 0x82, 0xff},
		"ping with a longer length":   {0x89, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0},
		"ping in parts":               frame{0x09, nil}.appendTo(nil, [4]byte{}),
		"length of more than 63 bits": {0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := wsframes.NewReader(bytes.NewReader(append(append(bytes.Clone(good), wrong...), good...)))
			read, err := io.ReadAll(r)
			if err == nil || !bytes.Equal(read, good) {
				t.Errorf("%x (%v), want %x and an error", read, err, good)
			}
			if _, again := r.Read(make([]byte, 1)); !errors.Is(again, err) {
				t.Errorf("the next error is %v, want %v", again, err)
			}
		})
	}
	within := frame{0x02, []byte("0x")}.appendTo(nil, [4]byte{})
	if _, err := io.ReadAll(wsframes.NewReader(bytes.NewReader(append(within, good...)))); err == nil {
		t.Error("a message within a message has no error")
	}
}

// FuzzReader has frames that are large or wrong: what is returned has small ones only.
func FuzzReader(f *testing.F) {
	f.Add(frame{0x82, make([]byte, 70_000)}.appendTo(nil, [4]byte{1, 2, 3, 4}))
	f.Add(frame{0x02, []byte("0a")}.appendTo(frame{0x89, []byte("p")}.appendTo(nil, [4]byte{}), [4]byte{5}))
	f.Fuzz(func(t *testing.T, b []byte) {
		read, _ := io.ReadAll(wsframes.NewReader(bytes.NewReader(b)))
		for len(read) > 6 {
			n, at := int(read[1]&0x7f), 2
			switch n {
			case 126:
				n, at = int(binary.BigEndian.Uint16(read[2:])), 4
			case 127:
				n, at = int(binary.BigEndian.Uint64(read[2:])), 10
			}
			if n > 1<<20+1 || read[0]&0xf == 2 && n > 32<<10+1 {
				t.Fatalf("a frame of %d bytes", n)
			}
			read = read[min(len(read), at+4+n):]
		}
	})
}
