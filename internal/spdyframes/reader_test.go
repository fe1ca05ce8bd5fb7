package spdyframes_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/moby/spdystream/spdy"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/internal/spdyframes"
)

// TestReaderDividesData reads frames, and compares them with the frames that were written.
func TestReaderDividesData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const piece = 10
		var all, want bytes.Buffer
		framer := framerOf(t, &all, nil)
		pieces := framerOf(t, &want, nil)
		write := func(f *spdy.Framer, frame spdy.Frame) {
			if err := f.WriteFrame(frame); err != nil {
				t.Fatal(err)
			}
		}
		for range rapid.IntRange(0, 8).Draw(t, "frames") {
			if rapid.Bool().Draw(t, "control") {
				id := rapid.Uint32Range(1, 100).Draw(t, "id")
				frame := rapid.SampledFrom([]spdy.Frame{
					&spdy.PingFrame{Id: id},
					&spdy.RstStreamFrame{StreamId: spdy.StreamId(id), Status: spdy.Cancel},
					&spdy.GoAwayFrame{LastGoodStreamId: spdy.StreamId(id)},
					&spdy.SynStreamFrame{StreamId: spdy.StreamId(id), Headers: http.Header{"streamtype": {"stdin"}}},
					&spdy.SynReplyFrame{StreamId: spdy.StreamId(id), Headers: http.Header{}},
					&spdy.SettingsFrame{FlagIdValues: []spdy.SettingsFlagIdValue{{Id: 1, Value: 2}}},
				}).Draw(t, "frame")
				write(framer, frame)
				write(pieces, frame)
				continue
			}
			data := rapid.SliceOfN(rapid.Byte(), 0, 35).Draw(t, "data")
			flags := rapid.SampledFrom([]spdy.DataFlags{0, spdy.DataFlagFin}).Draw(t, "flags")
			write(framer, &spdy.DataFrame{StreamId: 5, Data: data, Flags: flags})
			for len(data) > piece {
				write(pieces, &spdy.DataFrame{StreamId: 5, Data: data[:piece]})
				data = data[piece:]
			}
			write(pieces, &spdy.DataFrame{StreamId: 5, Data: data, Flags: flags})
		}
		cut := rapid.IntRange(0, all.Len()).Draw(t, "cut")
		for _, from := range []io.Reader{iotest.OneByteReader(bytes.NewReader(all.Bytes())), iotest.DataErrReader(bytes.NewReader(all.Bytes()))} {
			got, err := io.ReadAll(readerOf(t, from, piece))
			if err != nil || !bytes.Equal(got, want.Bytes()) {
				t.Fatalf("got %d bytes (%v), want %d:\n%x\n%x", len(got), err, want.Len(), got, want.Bytes())
			}
		}
		got, _ := io.ReadAll(readerOf(t, bytes.NewReader(all.Bytes()[:cut]), piece))
		if !bytes.HasPrefix(want.Bytes(), got) {
			t.Fatalf("read %x, want the beginning of %x", got, want.Bytes())
		}
	})
}

// TestReaderEndsBeforeWrongFrames has frames that the library refuses, or of which it reads another number of bytes
// than it says.
func TestReaderEndsBeforeWrongFrames(t *testing.T) {
	control := func(kind byte, length int, content ...byte) []byte {
		head := binary.BigEndian.AppendUint32([]byte{0x80, 3, 0, kind}, uint32(length))
		return append(head, content...)
	}
	var large bytes.Buffer
	if err := framerOf(t, &large, nil).WriteFrame(&spdy.SynStreamFrame{StreamId: 1, Headers: http.Header{"a": {strings.Repeat("x", 1<<20)}}}); err != nil {
		t.Fatal(err)
	}
	for name, wrong := range map[string][]byte{
		"a header of 1 MiB":     large.Bytes(),
		"data of stream 0":      make([]byte, 8),
		"unknown control frame": control(42, 4, 1, 2, 3, 4),
		"long control frame":    control(byte(spdy.TypePing), 1<<24-1, make([]byte, 1<<20)...),
		"ping with more":        control(byte(spdy.TypePing), 8, 0, 0, 0, 1, 0, 0, 0, 1),
		"stream with nothing":   control(byte(spdy.TypeSynStream), 0),
		"ping with less":        control(byte(spdy.TypePing), 3, 0, 0, 0),
		"ping 0":                control(byte(spdy.TypePing), 4, 0, 0, 0, 0),
		"headers not in zlib":   control(byte(spdy.TypeSynStream), 20, append([]byte{0, 0, 0, 1}, make([]byte, 16)...)...),
		"no headers":            control(byte(spdy.TypeSynStream), 10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			var good bytes.Buffer
			if err := framerOf(t, &good, nil).WriteFrame(&spdy.PingFrame{Id: 1}); err != nil {
				t.Fatal(err)
			}
			r := readerOf(t, bytes.NewReader(slices.Concat(good.Bytes(), wrong, good.Bytes())), 10)
			got, err := io.ReadAll(r)
			if err == nil || !bytes.Equal(got, good.Bytes()) {
				t.Errorf("%x (%v), want %x and an error", got, err, good.Bytes())
			}
			if _, again := r.Read(make([]byte, 1)); !errors.Is(again, err) {
				t.Errorf("the next error is %v, want %v", again, err)
			}
		})
	}
}

// TestReaderWaitsForAdmission has pieces admitted until there were enough.
func TestReaderWaitsForAdmission(t *testing.T) {
	var all bytes.Buffer
	framer := framerOf(t, &all, nil)
	for _, frame := range []spdy.Frame{&spdy.DataFrame{StreamId: 5, Data: make([]byte, 25)}, &spdy.PingFrame{Id: 1}, &spdy.DataFrame{StreamId: 5}} {
		if err := framer.WriteFrame(frame); err != nil {
			t.Fatal(err)
		}
	}
	enough := errors.New("enough")
	var sizes []int
	r := readerOf(t, &all, 10)
	r.Admit = func(_ uint32, bytes int) error {
		if sizes = append(sizes, bytes); len(sizes) == 4 {
			return enough
		}
		return nil
	}
	got, err := io.ReadAll(r)
	const pieces, ping = 8 + 10 + 8 + 10 + 8 + 5, 8 + 4
	if !errors.Is(err, enough) || len(got) != pieces+ping || !slices.Equal(sizes, []int{10, 10, 5, 0}) {
		t.Errorf("read %d bytes (%v), and asked for %v", len(got), err, sizes)
	}
}

// FuzzReaderAgreesWithLibrary has the library read what the reader returns: it refuses nothing but what ends early.
func FuzzReaderAgreesWithLibrary(f *testing.F) {
	f.Add([]byte{0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 2, 7, 7})
	f.Fuzz(func(t *testing.T, frames []byte) {
		good, _ := io.ReadAll(readerOf(t, bytes.NewReader(frames), 10))
		framer := framerOf(t, io.Discard, bytes.NewReader(good))
		for {
			frame, err := framer.ReadFrame()
			if wrong := (*spdy.Error)(nil); errors.As(err, &wrong) {
				t.Fatalf("the library refuses %x: %v", frames, err)
			}
			if err != nil {
				return
			}
			if data, ok := frame.(*spdy.DataFrame); ok && len(data.Data) > 10 {
				t.Fatalf("a frame has %d bytes", len(data.Data))
			}
		}
	})
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

func framerOf(t fataler, w io.Writer, r io.Reader) *spdy.Framer {
	t.Helper()
	framer, err := spdy.NewFramer(w, r)
	if err != nil {
		t.Fatal(err)
	}
	return framer
}

func readerOf(t fataler, from io.Reader, piece int) *spdyframes.Reader {
	t.Helper()
	r, err := spdyframes.NewReader(from, piece)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
