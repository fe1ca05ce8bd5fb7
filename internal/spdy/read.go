//go:build !libraryspdy

package spdy

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/moby/spdystream/spdy"
)

const (
	headSize   = 8         // bytes before the content of a frame
	lengthMask = 1<<24 - 1 // of the second half of a head; the flags are above
	controlBit = 1 << 31   // in the first half of the head of a control frame
	flagFIN    = 1         // of data, SYN_STREAM and HEADERS
	flagOneWay = 2         // of SYN_STREAM: the server does not write

	// credential is the kind of a control frame that the library does not know. It is about the client's certificates.
	credential = 10

	// mostHeaderBytes is how many bytes names and values of the headers of a stream have at most. Clients of Kubernetes need less
	// than 100.
	mostHeaderBytes = 4 << 10
)

var errStreamZero = errors.New("a data frame of stream 0")

// An endReader reads what a client sends. After the end of it, it returns errGone: an [io.EOF] would look like that of a frame's content.
type endReader struct{ io.Reader }

func (r endReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = errGone
	}
	return n, err
}

// readFrames reads frames until the connection ends. It returns nil if that has ended otherwise: after [Conn.Close], what the client
// still sends may be read elsewhere, too.
func (c *Conn) readFrames() error {
	for {
		err := c.readFrame()
		if c.cause() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		c.touch()
	}
}

func (c *Conn) readFrame() error {
	if _, err := io.ReadFull(c.in, c.head[:]); err != nil {
		return err
	}
	first, second := binary.BigEndian.Uint32(c.head[:]), binary.BigEndian.Uint32(c.head[headSize/2:])
	length, flags := int(second&lengthMask), byte(second>>24)
	switch {
	case first&controlBit == 0:
		return c.readData(first, length, flags)
	case uint16(first) == credential:
		_, err := c.in.Discard(length)
		return err
	}
	_, frame, err := c.control.Read(c.head[:], c.in)
	if err != nil {
		return err
	}
	return c.handle(frame)
}

// readData reads the content of a data frame. What comes for a stream that is not read any more is discarded.
func (c *Conn) readData(id uint32, length int, flags byte) error {
	if id == 0 {
		return errStreamZero
	}
	s := c.stream(id)
	for length > 0 {
		into := c.waitForRoom(s, length)
		if into == nil {
			if _, err := c.in.Discard(length); err != nil {
				return err
			}
			break
		}
		n, err := io.ReadFull(c.in, into)
		s.filled(n)
		if err != nil {
			return err
		}
		length -= n
		c.touch()
	}
	if flags&flagFIN != 0 && s != nil {
		s.finish(io.EOF)
	}
	return nil
}

// handle handles a control frame. A server does not need the kinds that are not listed, because clients of Kubernetes use no flow
// control.
func (c *Conn) handle(frame spdy.Frame) error {
	switch f := frame.(type) {
	case *spdy.SynStreamFrame:
		c.open(f)
	case *spdy.RstStreamFrame:
		if s := c.stream(uint32(f.StreamId)); s != nil {
			s.finish(ErrReset)
		}
	case *spdy.HeadersFrame:
		if s := c.stream(uint32(f.StreamId)); s != nil && f.CFHeader.Flags&flagFIN != 0 {
			s.finish(io.EOF)
		}
	case *spdy.PingFrame:
		if f.Id%2 == 1 { // others would be answers
			c.reply(appendPing(nil, f.Id))
		}
	case *spdy.GoAwayFrame:
		return errGone
	}
	return nil
}

// open opens a stream for the client, or refuses it.
func (c *Conn) open(f *spdy.SynStreamFrame) {
	id := uint32(f.StreamId)
	if id%2 == 0 || id <= c.last || id >= controlBit {
		c.reply(appendReset(nil, id, spdy.ProtocolError))
		return
	}
	c.last = id
	s := newStream(c, id, f.Headers, f.CFHeader.Flags)
	if headerBytes(f.Headers) > mostHeaderBytes || !c.add(s) {
		c.reply(appendReset(nil, id, spdy.RefusedStream))
		return
	}
	err := c.o.Accept(s)
	s.header = nil
	if err != nil {
		s.end(spdy.Cancel)
		c.send()
		return
	}
	c.mu.Lock()
	if !errors.Is(s.out, net.ErrClosed) { // it was not reset
		c.replies = appendSynReply(c.replies, id, !c.replied)
		c.replied = true
	}
	s.open = true
	s.more.Broadcast()
	c.mu.Unlock()
	c.send()
}

func headerBytes(h http.Header) (n int) {
	for name, values := range h {
		n += len(name)
		for _, v := range values {
			n += len(v)
		}
	}
	return n
}

func (c *Conn) stream(id uint32) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[id]
}

// add adds a stream, unless too many are open, or the connection has ended.
func (c *Conn) add(s *Stream) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || len(c.streams) >= mostStreams {
		return false
	}
	c.streams[s.id] = s
	return true
}

// waitForRoom returns where to read the next bytes of a stream's content, as soon as there is room. It returns nil if they are not
// wanted.
func (c *Conn) waitForRoom(s *Stream, most int) []byte {
	if s == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && s.in == nil {
		if into := s.free(); into != nil {
			s.filling = true
			return into[:min(len(into), most)]
		}
		c.wait()
	}
	return nil
}
