package spdyframes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/moby/spdystream/spdy"
)

// Limits of control frames. Those of clients of Kubernetes have four headers at most, and less than 1 KiB. Headers are
// compressed: without limits of their own, those of one frame could become a thousand times as large.
const (
	mostControl     = 64 << 10
	mostHeaders     = 64
	mostHeaderField = 4 << 10 // bytes of a name or a value
)

var errShort = errors.New("a control frame that ends too early")

// A ControlReader reads control frames of one connection, with the framer of moby/spdystream, within limits. The library does not
// compare the length of a frame with what it has read; the reader does.
type ControlReader struct {
	framer  *spdy.Framer
	content bytes.Buffer // what framer reads
}

// NewControlReader returns a reader for a connection. It must get all control frames of that, because their headers are compressed
// together.
func NewControlReader() (*ControlReader, error) {
	r := &ControlReader{}
	var err error
	r.framer, err = spdy.NewFramerWithOptions(io.Discard, &r.content,
		spdy.WithMaxHeaderCount(mostHeaders), spdy.WithMaxHeaderFieldSize(mostHeaderField))
	return r, err
}

// Read reads the rest of a frame whose head has been read. It returns the bytes of the whole frame, too. After an error the
// connection cannot be used.
func (r *ControlReader) Read(head []byte, from io.Reader) (whole []byte, frame spdy.Frame, err error) {
	length := int(binary.BigEndian.Uint32(head[headSize/2:]) & lengthMask)
	if length > mostControl {
		return nil, nil, fmt.Errorf("a control frame of %d bytes, want at most %d", length, mostControl)
	}
	whole = make([]byte, headSize+length)
	copy(whole, head)
	if _, err := io.ReadFull(from, whole[headSize:]); err != nil {
		return nil, nil, err
	}
	r.content.Write(whole)
	frame, err = r.framer.ReadFrame()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errShort // the end is not that of the connection
	}
	if err == nil && r.content.Len() > 0 {
		err = fmt.Errorf("a control frame of %d bytes, want %d", length, length-r.content.Len())
	}
	if err != nil {
		return nil, nil, err
	}
	return whole, frame, nil
}
