package spdyframes

import (
	"encoding/binary"
	"errors"
	"io"
)

// controlBit marks the first half of the head of a control frame.
const controlBit = 1 << 31

var errStreamZero = errors.New("a data frame of stream 0")

// A Reader reads frames for a connection of moby/spdystream. The library allocates as many bytes as the head of a frame
// announces, up to 16 MiB, and holds up to 250 frames that its caller has not read. After an invalid frame it stops
// reading and leaves the connection open, so that nothing notices its end. The reader therefore divides data frames,
// and returns an error before an invalid frame.
//
// It must be called by one goroutine at a time.
type Reader struct {
	// Admit is called before a data frame with its stream and the number of bytes of its content, and may wait. An error
	// ends the reader. nil means that every frame is admitted at once.
	Admit func(stream uint32, bytes int) error

	from  io.Reader
	piece int // bytes of content that a data frame has at most

	ready   []byte // to be returned before anything is read
	left    int    // bytes of the piece that have not been returned
	next    int    // bytes of the frame after the piece
	stream  uint32 // of the frame
	flags   byte   // of the frame; those of its last piece
	control *ControlReader
	err     error // the end
}

// NewReader returns a reader of frames, the data of each of which has at most piece bytes. It reads from with small and
// large buffers, so that should be buffered.
func NewReader(from io.Reader, piece int) (*Reader, error) {
	control, err := NewControlReader()
	return &Reader{from: from, piece: piece, control: control}, err
}

// Read implements [io.Reader].
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if r.err == nil && len(r.ready) == 0 && r.left == 0 {
		r.begin()
	}
	if len(r.ready) > 0 {
		n := copy(p, r.ready)
		r.ready = r.ready[n:]
		return n, nil
	}
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.from.Read(p[:min(len(p), r.left)])
	r.left -= n
	if err != nil {
		r.end(err)
	}
	return n, err
}

// end drops what the reader holds: the library may refer to it until a time limit.
func (r *Reader) end(err error) {
	*r = Reader{err: err}
}

// begin reads the beginning of a frame, or begins the next piece of one.
func (r *Reader) begin() {
	if r.next > 0 {
		r.beginPiece()
		return
	}
	head := make([]byte, headSize)
	if _, err := io.ReadFull(r.from, head); err != nil {
		r.end(err)
		return
	}
	first, second := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[headSize/2:])
	length := int(second & lengthMask)
	switch {
	case first&controlBit != 0:
		r.beginControl(head)
	case first == 0:
		r.end(errStreamZero)
	default:
		r.stream, r.flags, r.next = first, head[headSize/2], length
		r.beginPiece()
	}
}

// beginPiece begins the next piece of a data frame with its head.
func (r *Reader) beginPiece() {
	size := min(r.next, r.piece)
	if r.Admit != nil {
		if err := r.Admit(r.stream, size); err != nil {
			r.end(err)
			return
		}
	}
	r.left = size
	r.next -= size
	second := uint32(size)
	if r.next == 0 {
		second |= uint32(r.flags) << 24
	}
	head := binary.BigEndian.AppendUint32(nil, r.stream)
	r.ready = binary.BigEndian.AppendUint32(head, second)
}

// beginControl reads a control frame as the library will do.
func (r *Reader) beginControl(head []byte) {
	whole, _, err := r.control.Read(head, r.from)
	if err != nil {
		r.end(err)
		return
	}
	r.ready = whole
}
