package streaming

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/streaming/pkg/httpstream"
)

// A direct is a stream to a client. What comes from a pipe or a socket goes to the client's connection without passing this process: the
// kernel moves it (splice), behind a head of a frame or message. The library's own frames and messages go between them.
type direct struct {
	io.Writer // of the library
	conn      *conn
	head      func(n int) []byte
	most      int // bytes behind one head
}

// The kinds of heads. A piece with its head has as many bytes as the API server moves at once.
const (
	pieceOfStream  = 64<<10 - 4
	headOfFrame    = 8
	headOfMessage  = 5
	channelV4      = "v4.channel.k8s.io"
	binaryMessage  = 0x82 // a message in one frame, RFC 6455
	lengthOf2Bytes = 126  // a length follows that has two bytes
	shortest       = 126  // bytes for which there is such a length
)

// directly returns a stream of the library as one that the kernel may write to, or as it is. Channel is the number of the stream in a
// WebSocket.
func (r *response) directly(request *http.Request, stream io.Writer, channel byte) io.Writer {
	if r.conn == nil {
		return stream
	}
	if s, ok := stream.(interface{ Identifier() uint32 }); ok && r.spdy {
		id := s.Identifier()
		return &direct{stream, r.conn, func(n int) []byte { return frameHead(id, n) }, pieceOfStream - headOfFrame}
	}
	if slices.Equal(request.Header.Values("Sec-Websocket-Protocol"), []string{channelV4}) {
		return &direct{stream, r.conn, func(n int) []byte { return messageHead(channel, n) }, pieceOfStream - headOfMessage}
	}
	return stream
}

// frameHead returns the head of a frame of data.
func frameHead(stream uint32, n int) []byte {
	head := make([]byte, 0, headOfFrame)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(head, stream), uint32(n))
}

// messageHead returns the head of a message and the number of its channel.
func messageHead(channel byte, n int) []byte {
	length := n + 1 // with the number
	if length < shortest {
		return []byte{binaryMessage, byte(length), channel}
	}
	return []byte{binaryMessage, lengthOf2Bytes, byte(length >> 8), byte(length), channel}
}

// ReadFrom implements [io.ReaderFrom]. The library writes the first portion: it waits until the client has a reply to its wish for the
// stream.
func (d *direct) ReadFrom(r io.Reader) (int64, error) {
	first := make([]byte, firstPortion)
	n, err := r.Read(first)
	if n > 0 {
		if _, err := d.Write(first[:n]); err != nil {
			return 0, err
		}
	}
	if errors.Is(err, io.EOF) {
		return int64(n), nil
	}
	if err != nil {
		return int64(n), err
	}
	from, ok := r.(syscall.Conn)
	if !ok {
		more, err := io.Copy(struct{ io.Writer }{d.Writer}, r)
		return int64(n) + more, err
	}
	more, err := d.splice(from)
	return int64(n) + more, err
}

const firstPortion = 32 << 10

// splice moves bytes until their end.
func (d *direct) splice(from syscall.Conn) (sent int64, err error) {
	source, err := from.SyscallConn()
	if err != nil {
		return 0, err
	}
	socket, ok := d.conn.Conn.(syscall.Conn)
	if !ok {
		return 0, fmt.Errorf("a connection of the server is a %T", d.conn.Conn)
	}
	target, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return 0, os.NewSyscallError("pipe2", err)
	}
	defer func() {
		_ = unix.Close(pipe[0])
		_ = unix.Close(pipe[1])
	}()
	for {
		var n int64
		var fault error
		err := source.Read(func(fd uintptr) bool {
			n, fault = again(func() (int64, error) { return unix.Splice(int(fd), nil, pipe[1], nil, d.most, unix.SPLICE_F_NONBLOCK) })
			return !errors.Is(fault, unix.EAGAIN)
		})
		if err = errors.Join(err, os.NewSyscallError("splice", fault)); err != nil || n == 0 {
			return sent, err
		}
		if err := d.send(target, pipe[0], int(n)); err != nil {
			return sent, err
		}
		sent += n
	}
}

// send writes a head and what is in the pipe. After an error the connection is of no use.
func (d *direct) send(target syscall.RawConn, pipe, n int) error {
	d.conn.sending.Lock()
	defer d.conn.sending.Unlock()
	d.conn.active()
	head := d.head(n)
	var fault error
	err := target.Write(func(fd uintptr) bool {
		for len(head) > 0 {
			var did int64
			did, fault = again(func() (int64, error) {
				did, err := unix.SendmsgN(int(fd), head, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
				return int64(did), err
			})
			if fault != nil {
				return !errors.Is(fault, unix.EAGAIN)
			}
			head = head[did:]
		}
		for n > 0 {
			var did int64
			did, fault = again(func() (int64, error) { return unix.Splice(pipe, nil, int(fd), nil, n, unix.SPLICE_F_NONBLOCK) })
			if fault == nil && did == 0 {
				fault = io.ErrUnexpectedEOF
			}
			if fault != nil {
				return !errors.Is(fault, unix.EAGAIN)
			}
			n -= int(did)
		}
		return true
	})
	if err = errors.Join(err, fault); err != nil {
		_ = d.conn.Close()
	}
	return err
}

// again repeats a system call that a signal has interrupted.
func again(call func() (int64, error)) (int64, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// A directStream is a stream in both directions of which the one to the client is a [direct].
type directStream struct {
	httpstream.Stream
	out io.ReaderFrom
}

// ReadFrom implements [io.ReaderFrom].
func (s *directStream) ReadFrom(r io.Reader) (int64, error) { return s.out.ReadFrom(r) }
