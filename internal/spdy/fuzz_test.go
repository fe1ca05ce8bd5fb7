//go:build !libraryspdy

package spdy_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	framing "github.com/moby/spdystream/spdy"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/spdy"
	"github.com/sampan-io/sampan/internal/spdyframes"
)

// A givenConn is a connection whose client sends given bytes and reads everything.
type givenConn struct {
	net.Conn // nil: other methods are not called
	in       io.Reader
}

func (c *givenConn) Read(p []byte) (int, error) { return c.in.Read(p) }
func (*givenConn) Write(p []byte) (int, error)  { return len(p), nil }
func (*givenConn) Close() error                 { return nil }
func (*givenConn) SetDeadline(time.Time) error  { return nil }

// A content is what comes from a stream, and whether the client has ended it.
type content struct {
	text  string
	ended bool
}

// served returns the content of the streams that a client opens, as the package reads them.
func served(t *testing.T, frames []byte) map[uint32]content {
	var mu sync.Mutex
	all := map[uint32]content{}
	g := run.NewGroup(t.Context(), 0)
	c := open(t, &givenConn{in: bytes.NewReader(frames)}, func(s *spdy.Stream) error {
		g.Go(func(context.Context) {
			got, err := io.ReadAll(s)
			mu.Lock()
			defer mu.Unlock()
			all[s.ID()] = content{string(got), err == nil}
		})
		return nil
	})
	_ = c.Run(t.Context())
	g.Wait()
	return all
}

// decoded returns the same, by a simple decoder.
func decoded(t *testing.T, frames []byte) map[uint32]content {
	control, err := spdyframes.NewControlReader()
	if err != nil {
		t.Fatal(err)
	}
	all, in, last := map[uint32]content{}, map[uint32]bool{}, uint32(0)
	const head = 8
	for len(frames) >= head {
		first, second := binary.BigEndian.Uint32(frames), binary.BigEndian.Uint32(frames[4:])
		length := min(int(second&0xffffff), len(frames)-head)
		whole := length == int(second&0xffffff)
		body := frames[head : head+length]
		switch kind := uint16(first); {
		case first == 0:
			return all
		case first>>31 == 0:
			if in[first] {
				s := all[first]
				s.text += string(body)
				s.ended = whole && second>>24&1 == 1
				in[first], all[first] = !s.ended, s
			}
		case kind == 10: // CREDENTIAL
		default:
			_, frame, err := control.Read(frames[:head], bytes.NewReader(body))
			if err != nil {
				return all
			}
			switch f := frame.(type) {
			case *framing.SynStreamFrame:
				id := uint32(f.StreamId)
				if id%2 == 0 || id <= last || id > 1<<31 {
					break
				}
				last = id
				if size := 0; headerSize(f.Headers, &size) <= 4<<10 && len(all) < 1000 {
					ended := f.CFHeader.Flags&1 == 1
					all[id], in[id] = content{ended: ended}, !ended
				}
			case *framing.RstStreamFrame:
				in[uint32(f.StreamId)] = false
			case *framing.HeadersFrame:
				if id := uint32(f.StreamId); in[id] && f.CFHeader.Flags&1 == 1 {
					s := all[id]
					s.ended, in[id] = true, false
					all[id] = s
				}
			case *framing.GoAwayFrame:
				return all
			}
		}
		frames = frames[head+length:]
	}
	return all
}

func headerSize(h http.Header, size *int) int {
	for name, values := range h {
		*size += len(name)
		for _, v := range values {
			*size += len(v)
		}
	}
	return *size
}

// FuzzStreams has clients that send any bytes.
func FuzzStreams(f *testing.F) {
	var all bytes.Buffer
	framer, err := framing.NewFramer(&all, nil)
	if err != nil {
		f.Fatal(err)
	}
	oneWay := syn(7)
	oneWay.CFHeader.Flags = framing.ControlFlagUnidirectional | framing.ControlFlagFin
	for _, frame := range []framing.Frame{
		syn(1), data(1, "text"), syn(3), data(3, "more"), fin(1), &framing.PingFrame{Id: 1}, syn(5), oneWay,
		&framing.HeadersFrame{StreamId: 3, Headers: http.Header{}, CFHeader: framing.ControlFrameHeader{Flags: framing.ControlFlagFin}},
		&framing.RstStreamFrame{StreamId: 5, Status: framing.Cancel}, data(5, "late"), &framing.SettingsFrame{},
		&framing.DataFrame{StreamId: 1, Data: make([]byte, 300)}, &framing.GoAwayFrame{},
	} {
		if err := framer.WriteFrame(frame); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(all.Bytes())
	f.Add(all.Bytes()[:all.Len()/2])
	f.Add(slices.Concat(all.Bytes()[:60], control(10, 2, 1, 2), make([]byte, 8)))
	f.Fuzz(func(t *testing.T, frames []byte) {
		got, want := served(t, frames), decoded(t, frames)
		if len(got) != len(want) {
			t.Fatalf("%d streams, want %d", len(got), len(want))
		}
		for id, s := range want {
			if got[id] != s {
				t.Errorf("stream %d: %d bytes, ended: %t, want %d, %t", id, len(got[id].text), got[id].ended, len(s.text), s.ended)
			}
		}
	})
}
