//go:build !libraryspdy

package spdy

import (
	"context"
	"encoding/binary"

	"github.com/moby/spdystream/spdy"
)

// A frame is memory for a data frame of the largest size.
type frame [headSize + largestContent]byte

// probeID is that of all pings of the server. Their answers do not matter.
const probeID = 2

// Values of control frames, version 3.
const (
	headSynReply = controlBit | 3<<16 | uint32(spdy.TypeSynReply)
	headReset    = controlBit | 3<<16 | uint32(spdy.TypeRstStream)
	headPing     = controlBit | 3<<16 | uint32(spdy.TypePing)
	headGoAway   = controlBit | 3<<16 | uint32(spdy.TypeGoAway)
)

// The headers of a SYN_REPLY are their number, which is 0, compressed. Those of all that are sent are one stream of zlib. The bytes here
// are blocks of it that are stored as they are, so that no compressor is needed: one of Go has 1 MB. A decompressor returns what it
// has at the second block, which is empty.
const (
	zlibHead  = "\x78\xf9\xe3\xc6\xa7\xc2" // with the dictionary of SPDY/3
	noHeaders = "\x00\x04\x00\xfb\xff\x00\x00\x00\x00" + "\x00\x00\x00\xff\xff"
)

func appendSynReply(to []byte, id uint32, first bool) []byte {
	headers := noHeaders
	if first {
		headers = zlibHead + noHeaders
	}
	to = appendWords(to, headSynReply, uint32(4+len(headers)), id)
	return append(to, headers...)
}

func appendReset(to []byte, id uint32, status spdy.RstStreamStatus) []byte {
	return appendWords(to, headReset, 8, id, uint32(status))
}

func appendPing(to []byte, id uint32) []byte { return appendWords(to, headPing, 4, id) }

func appendGoAway(to []byte, last uint32) []byte {
	return appendWords(to, headGoAway, 8, last, uint32(spdy.GoAwayOK))
}

func appendData(to []byte, id uint32, flags byte, length int) []byte {
	return appendWords(to, id, uint32(flags)<<24|uint32(length))
}

func appendWords(to []byte, words ...uint32) []byte {
	for _, w := range words {
		to = binary.BigEndian.AppendUint32(to, w)
	}
	return to
}

// reply sends an answer.
func (c *Conn) reply(answer []byte) {
	c.mu.Lock()
	c.replies = append(c.replies, answer...)
	c.mu.Unlock()
	c.send()
}

// send has the answers sent by a goroutine, and waits while there are too many. It is called by the goroutine that reads.
func (c *Conn) send() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.sending && c.err == nil {
		c.sending = c.senders.Go(func(context.Context) {
			for c.flush() == nil && c.haveReplies() {
			}
		})
	}
	for c.err == nil && len(c.replies) > mostReplies {
		c.wait()
	}
}

// wait waits for room, with the lock. It is called by the goroutine that reads.
func (c *Conn) wait() {
	c.waiting = true
	c.probe.Reset(probeInterval)
	c.room.Wait()
	c.probe.Stop()
	c.waiting = false
}

// sendProbe sends a ping if the connection is not read, unless there is a goroutine whose writing would fail, too. It does not count as
// a frame for the idle limit.
func (c *Conn) sendProbe() {
	write := c.writing.TryLock()
	c.mu.Lock()
	probe := c.waiting && c.err == nil
	if probe {
		c.probe.Reset(probeInterval)
	}
	var replies []byte
	if probe && write {
		c.replies = appendPing(c.replies, probeID)
		replies = c.takeReplies()
	}
	c.mu.Unlock()
	if write {
		_ = c.write(replies) // which ends the connection if it fails
		c.writing.Unlock()
	}
}

// haveReplies reports whether there are answers to send. If there are none, the next one needs another goroutine.
func (c *Conn) haveReplies() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sending = len(c.replies) > 0
	return c.sending
}

// flush sends the answers.
func (c *Conn) flush() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	replies := c.takeReplies()
	c.mu.Unlock()
	return c.write(replies)
}

// takeReplies returns the answers, which are sent next. It is called with both locks.
func (c *Conn) takeReplies() []byte {
	c.sent, c.replies = c.replies, c.sent[:0]
	c.room.Signal()
	return c.sent
}

// write writes frames. It is called with the lock for writing.
func (c *Conn) write(frames []byte) error {
	if len(frames) == 0 {
		return nil
	}
	_, err := c.conn.Write(frames)
	if err != nil {
		// A part of a frame may have been written. An answer that is late, after Close has closed the connection for writing, fails,
		// too: Close must not stop then, because the client would lose what it has not read.
		c.fail(err)
	}
	return err
}

// writeData writes a frame with content of a stream, after the answers: the stream's SYN_REPLY may be one of them.
func (c *Conn) writeData(s *Stream, content []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	if err := s.writable(); err != nil {
		c.mu.Unlock()
		return err
	}
	replies := c.takeReplies()
	c.mu.Unlock()
	if err := c.write(replies); err != nil {
		return err
	}
	f := c.server.frame()
	defer c.server.frames.Put(f)
	n := copy(f[headSize:], content)
	appendData(f[:0], s.id, 0, n)
	c.touch()
	return c.write(f[:headSize+n])
}

func (s *Server) frame() *frame {
	if f, ok := s.frames.Get().(*frame); ok {
		return f
	}
	return &frame{}
}
