// Package wsframes reads the frames of a WebSocket that carries channels, and divides large ones.
//
// In the protocols of Kubernetes that have channels, such as v5.channel.k8s.io, each message begins with a byte that
// names one. The library that reads them, golang.org/x/net/websocket, holds each frame whole, up to 32 MiB of it, and
// takes each part of a message that comes in several frames for a message of its own.
package wsframes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Parts of a frame's head (RFC 6455, section 5.2).
const (
	final, reserved, opcodes = 0x80, 0x70, 0x0f // of the first byte
	masked, lengths          = 0x80, 0x7f       // of the second byte
	twoBytes, eightBytes     = 126, 127         // lengths that say how many bytes with the length follow; below is the length

	continuation, text, binaryData = 0, 1, 2
	closing, ping, pong            = 8, 9, 10
)

// How many bytes of a message's data a frame has at most, without that of the channel. Multiples of the key's length leave
// the mask of each piece as it is. Text has base64 in the oldest protocols: pieces of four characters can be decoded, but
// not if there are line breaks, so that most texts stay whole.
const (
	piece     = 32 << 10
	textPiece = 1 << 20
)

// A Reader returns the frames of a client with whole messages of at most 32 KiB, or 1 MiB of text, and a byte for the channel. It ends
// with an error before a frame that is wrong.
//
// It must be called by one goroutine at a time.
type Reader struct {
	from io.Reader

	ready []byte // to be returned before anything is read
	left  int    // bytes of the piece that have not been returned
	next  int64  // bytes of the frame after the piece
	key   mask   // of the frame
	err   error  // the end

	message message
}

// A message is what the frames of a message have in common.
type message struct {
	more    bool // frames will come
	opcode  byte
	begun   bool // channel is known
	channel byte

	returned bool // a part of it
}

type mask [4]byte

// NewReader returns a reader. It reads from with small buffers as well, so that should be buffered.
func NewReader(from io.Reader) *Reader { return &Reader{from: from} }

// Read implements [io.Reader].
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for r.err == nil && len(r.ready) == 0 && r.left == 0 {
		r.err = r.begin()
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
	r.err = err
	return n, err
}

// begin begins the next piece of a frame, or reads the head of one. There is nothing to return after a frame without
// content.
func (r *Reader) begin() error {
	if r.next > 0 {
		r.ready = r.pieceHead()
		return nil
	}
	var first [2]byte
	if _, err := io.ReadFull(r.from, first[:]); err != nil {
		return err
	}
	if first[0]&reserved != 0 || first[1]&masked == 0 {
		return fmt.Errorf("a frame with the head %x, want no extensions, and a mask", first)
	}
	length, err := r.length(first[1] & lengths)
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(r.from, r.key[:]); err != nil {
		return err
	}
	opcode, last := first[0]&opcodes, first[0]&final != 0
	switch opcode {
	case closing, ping, pong:
		if first[1]&lengths >= twoBytes || !last { // the library would take the length that follows for content
			return errors.New("a control frame that is too long, or one of several")
		}
		r.left = int(length)
		r.ready = append(first[:], r.key[:]...)
		return nil
	case text, binaryData:
		if r.message.more {
			return errors.New("a message within a message")
		}
		r.message = message{opcode: opcode}
	case continuation:
		if !r.message.more {
			return errors.New("the continuation of no message")
		}
	default:
		return fmt.Errorf("a frame of the unknown type %d", opcode)
	}
	r.message.more = !last
	r.next = length
	return r.beginData()
}

// length reads the length of a frame's content, of which the second byte of the head is known.
func (r *Reader) length(short byte) (int64, error) {
	var long [8]byte
	switch short {
	case twoBytes:
		_, err := io.ReadFull(r.from, long[6:])
		return int64(binary.BigEndian.Uint16(long[6:])), err
	case eightBytes:
		_, err := io.ReadFull(r.from, long[:])
		length := int64(binary.BigEndian.Uint64(long[:]))
		if err == nil && length < 0 {
			err = fmt.Errorf("a frame of %d bytes", uint64(length))
		}
		return length, err
	}
	return int64(short), nil
}

// beginData begins the first piece of a frame.
func (r *Reader) beginData() error {
	switch {
	case r.message.begun:
		// The byte of the channel, which is put before the content, moves that under the mask.
		r.key = mask{r.key[3], r.key[0], r.key[1], r.key[2]}
	case r.next == 0:
		return nil
	default:
		var channel [1]byte
		if _, err := io.ReadFull(r.from, channel[:]); err != nil {
			return err
		}
		r.next--
		r.message.begun, r.message.channel = true, channel[0]^r.key[0]
	}
	// A frame with the byte of the channel alone is no message yet: the signal of v5.channel.k8s.io that a stream ends has one
	// more byte, without which it is wrong.
	if r.next > 0 || !r.message.more && !r.message.returned {
		r.message.returned = true
		r.ready = r.pieceHead()
	}
	return nil
}

// pieceHead returns the head of the next piece, and the byte of the channel.
func (r *Reader) pieceHead() []byte {
	most := int64(piece)
	if r.message.opcode == text {
		most = textPiece
	}
	r.left = int(min(r.next, most))
	r.next -= int64(r.left)
	head := []byte{final | r.message.opcode}
	switch length := r.left + 1; {
	case length < twoBytes:
		head = append(head, masked|byte(length))
	case length <= math.MaxUint16:
		head = binary.BigEndian.AppendUint16(append(head, masked|twoBytes), uint16(length))
	default:
		head = binary.BigEndian.AppendUint64(append(head, masked|eightBytes), uint64(length))
	}
	head = append(head, r.key[:]...)
	return append(head, r.message.channel^r.key[0])
}
