// Package spdyframes writes each frame of SPDY/3.1 with one system call.
//
// The framer of moby/spdystream writes a frame of data in three parts, two of them with four bytes each. Without a buffer, each
// part is a system call and a packet, and often one more part for every program on the way.
package spdyframes

import (
	"encoding/binary"
	"io"
	"net"
)

const (
	headSize   = 8         // bytes before the content of a frame
	lengthMask = 1<<24 - 1 // of the second half of a head; the flags are above
)

// A Writer writes frames. It holds the head of a frame back until the content begins, or until the head is complete if there is no
// content. It must be called by one goroutine at a time, as the framer does.
type Writer struct {
	to   io.Writer
	head [headSize]byte
	held int // bytes of head that are not written
	left int // bytes of the content that are not written; 0 in a head
	join []byte
}

// NewWriter returns a writer. Everything written to it must be frames, from the beginning of one on. With a *net.TCPConn or
// *net.UnixConn it does not copy the content.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Write implements [io.Writer]. An error may be about bytes that an earlier call has accepted.
func (w *Writer) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		if w.left == 0 {
			n := copy(w.head[w.held:], p[done:])
			w.held += n
			done += n
			if w.held < headSize {
				continue
			}
			w.left = int(binary.BigEndian.Uint32(w.head[headSize/2:]) & lengthMask)
			if w.left > 0 {
				continue
			}
		}
		content := p[done:min(len(p), done+w.left)]
		n, err := w.send(content)
		done += n
		w.left -= n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// send writes a part of the content, after the head if that is held, and returns how much of the content is written.
func (w *Writer) send(content []byte) (int, error) {
	if w.held == 0 {
		return w.to.Write(content)
	}
	w.held = 0
	switch w.to.(type) {
	case *net.TCPConn, *net.UnixConn:
		n, err := (&net.Buffers{w.head[:], content}).WriteTo(w.to)
		return max(0, int(n)-headSize), err
	}
	w.join = append(append(w.join[:0], w.head[:]...), content...)
	n, err := w.to.Write(w.join)
	return max(0, n-headSize), err
}
