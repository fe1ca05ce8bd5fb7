// Package netfilter encodes and decodes netlink messages of the kernel's netfilter subsystems
// (nf_tables, conntrack, nflog), and opens sockets for them.
//
// It is for messages that are too many, or too large, for the allocations of a general library.
package netfilter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// GenLen is the length of the header of every netfilter message, after that of netlink: its first
// byte is the family.
const GenLen = 4

// ErrMalformed is returned for a message of the kernel that can't be parsed.
var ErrMalformed = errors.New("the kernel's answer is not understood")

// Open opens a socket in the network namespace of the calling thread, with buffers of so many bytes
// if possible. The kernel executes requests during the write; so answers are there after it, and
// reading them has a timeout only for the case of an error of the kernel.
func Open(sendBuffer, receiveBuffer int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	setBuffer(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, sendBuffer)
	setBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveBuffer)
	if err := errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}),
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
	); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// setBuffer makes a socket's buffer large enough if possible: root in a user namespace is limited
// by net.core.wmem_max and rmem_max. 0 leaves the default.
func setBuffer(fd, force, option, size int) {
	if size > 0 && unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, size) // a buffer that is too small fails when it is used
	}
}

// Send writes messages to the kernel.
func Send(fd int, messages []byte) error {
	return retry(func() error { return unix.Sendto(fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) })
}

// Receive reads messages of the kernel. The error is an errno.
func Receive(fd int, into []byte, flags int) (n int, err error) {
	err = retry(func() (err error) { n, _, err = unix.Recvfrom(fd, into, flags); return err })
	return n, err
}

func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// DialUntil opens a connection of the library, whose Receive fails once ctx is cancelled.
func DialUntil(ctx context.Context) (c *netlink.Conn, hangUp func(), err error) {
	if c, err = netlink.Dial(unix.NETLINK_NETFILTER, nil); err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	return c, func() { stop(); _ = c.Close() }, nil
}

// Hint adds to a permission error what to do about it.
func Hint(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w; this needs root (CAP_NET_ADMIN)", err)
	}
	return err
}

// A Header is the header of a netlink message.
type Header struct {
	Kind, Flags uint16
	Seq         uint32
}

// Split splits the first message off b, and returns false if there is none.
func Split(b []byte) (h Header, m, rest []byte, ok bool) {
	if len(b) < unix.SizeofNlMsghdr {
		return Header{}, nil, nil, false
	}
	size := binary.NativeEndian.Uint32(b)
	if size < unix.SizeofNlMsghdr || uint64(size) > uint64(len(b)) {
		return Header{}, nil, nil, false
	}
	h = Header{binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:]), binary.NativeEndian.Uint32(b[8:])}
	return h, b[unix.SizeofNlMsghdr:size], b[min(len(b), Align(int(size))):], true
}

// Attribute splits the first attribute off b, and returns false if there is none.
func Attribute(b []byte) (kind uint16, value, rest []byte, ok bool) {
	if len(b) < unix.SizeofNlAttr {
		return 0, nil, nil, false
	}
	size := int(binary.NativeEndian.Uint16(b))
	if size < unix.SizeofNlAttr || size > len(b) {
		return 0, nil, nil, false
	}
	kind = binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	return kind, b[unix.SizeofNlAttr:size], b[min(len(b), Align(size)):], true
}

// Align returns the padded length of a message or an attribute.
func Align(n int) int { return (n + 3) &^ 3 }

// AppendAttr appends an attribute to m, whose length must be a multiple of four.
func AppendAttr(m []byte, kind uint16, value ...byte) []byte {
	m = binary.NativeEndian.AppendUint16(m, uint16(unix.SizeofNlAttr+len(value)))
	m = append(binary.NativeEndian.AppendUint16(m, kind), value...)
	for len(m)%4 != 0 {
		m = append(m, 0)
	}
	return m
}

// AppendAttr32 appends a number in network byte order.
func AppendAttr32(m []byte, kind uint16, value uint32) []byte {
	return AppendAttr(m, kind, byte(value>>24), byte(value>>16), byte(value>>8), byte(value))
}

// AppendName appends a string that ends with a 0.
func AppendName(m []byte, kind uint16, name string) []byte {
	return AppendAttr(m, kind, append([]byte(name), 0)...)
}

// Begin opens a nested attribute at the end of m; End closes it.
func Begin(m []byte, kind uint16) (grown []byte, at int) {
	return AppendAttr(m, kind|unix.NLA_F_NESTED), len(m)
}

// End closes the nested attribute that Begin opened.
func End(m []byte, at int) []byte {
	binary.NativeEndian.PutUint16(m[at:], uint16(len(m)-at))
	return m
}

// AppendNest appends a nested attribute whose value body appends.
func AppendNest(m []byte, kind uint16, body func([]byte) []byte) []byte {
	m, at := Begin(m, kind)
	return End(body(m), at)
}
