// Package spdy serves connections of SPDY/3.1 to clients of Kubernetes: exec, attach and port-forward.
//
// One goroutine reads a connection. It reads the content of a data frame into the buffer of its stream, from which the reader of the
// stream takes it. A frame is written by the goroutine that has its content, with one call. The answers to frames of the client
// (SYN_REPLY, PING, RST_STREAM) have a goroutine while there are any: the one that reads does not wait to write, because a client may
// not read before its own bytes have been read.
//
// Clients of Kubernetes do not use the flow control of SPDY/3.1, so there is none here: if the buffer of a stream is full, the
// connection is not read until there is room again. All frames before that have been handled then.
//
//	Y1  Whatever its client does, a connection holds at most 16 buffers of 128 KiB with content, and about 64 KiB of answers.
//	Y2  Content that was written to a stream is sent after the SYN_REPLY of the stream and before its end.
//	Y3  Content that came before the client ended or reset the stream, or ended the connection, can still be read.
package spdy

import (
	"errors"
	"time"

	"github.com/sampan-io/sampan/internal/upgrade"
)

// mostStreams is how many streams of a connection may be open. Port forwarding has two for each connection of the client's side.
const mostStreams = 1000

const largestContent = upgrade.Frame // bytes of a data frame that is sent

// ErrReset is the error of a stream that its client has reset.
var ErrReset = errors.New("the client has reset the stream")

var (
	errOneWay = errors.New("the client has opened the stream in one direction only")
	errEnded  = errors.New("the stream was closed for writing")
)

// Options configure a connection.
type Options struct {
	// Accept is called for each stream that the client opens, in order. Nothing else is read meanwhile. An error refuses the stream.
	// The client learns that the stream is open after Accept has returned; until then, writing to it waits.
	Accept func(*Stream) error

	Idle time.Duration // after so long without a frame in either direction, the connection ends
}
