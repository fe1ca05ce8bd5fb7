package userspace

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// asError makes an error of an errno.
func asError(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// The calls below are those of package unix without its allocation for each address: they are made
// once or more per connection or packet.

// An address is a socket address in the kernel's encoding. The zero address is empty.
type address struct {
	raw unix.RawSockaddrInet6 // or an Inet4, which is shorter
	len uint32
}

func addressOf(a netip.AddrPort) address {
	var s address
	if a.Addr().Is4() {
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
		in.Family, in.Addr, s.len = unix.AF_INET, a.Addr().As4(), unix.SizeofSockaddrInet4
		binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&in.Port))[:], a.Port())
		return s
	}
	s.raw.Family, s.raw.Addr, s.len = unix.AF_INET6, a.Addr().As16(), unix.SizeofSockaddrInet6
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&s.raw.Port))[:], a.Port())
	return s
}

// addrPort returns the address in its shortest form, or the zero AddrPort.
func (s *address) addrPort() netip.AddrPort {
	switch s.raw.Family {
	case unix.AF_INET:
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&in.Port))[:]))
	case unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.raw.Addr).Unmap(), binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&s.raw.Port))[:]))
	}
	return netip.AddrPort{}
}

// family returns the domain of sockets for an address.
func family(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// socket returns a new non-blocking socket.
func socket(domain, kind int) (int, unix.Errno) {
	fd, _, errno := unix.Syscall(unix.SYS_SOCKET, uintptr(domain), uintptr(kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC), 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), 0
}

// set sets an option of a socket.
func set(fd, level, option int, value int32) unix.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value), 0)
	return errno
}

func connect(fd int, to *address) unix.Errno { return named(unix.SYS_CONNECT, fd, to) }

func bind(fd int, at *address) unix.Errno { return named(unix.SYS_BIND, fd, at) }

func named(call uintptr, fd int, a *address) unix.Errno {
	_, _, errno := unix.Syscall(call, uintptr(fd), uintptr(unsafe.Pointer(&a.raw)), uintptr(a.len))
	return errno
}

// localAddress returns where a socket is bound.
func localAddress(fd int) (netip.AddrPort, error) {
	var a address
	a.len = uint32(unsafe.Sizeof(a.raw))
	_, _, errno := unix.Syscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&a.raw)), uintptr(unsafe.Pointer(&a.len)))
	if errno != 0 {
		return netip.AddrPort{}, errno
	}
	return a.addrPort(), nil
}

// originalDestination returns the destination of a client's packets before the kernel changed it to
// this socket.
func originalDestination(fd int) (netip.AddrPort, error) {
	at, err := localAddress(fd)
	if err != nil {
		return netip.AddrPort{}, err
	}
	level := unix.SOL_IP
	if at.Addr().Is6() {
		level = unix.SOL_IPV6
	}
	var a address
	a.len = uint32(unsafe.Sizeof(a.raw))
	// SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST have the same number.
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), unix.SO_ORIGINAL_DST,
		uintptr(unsafe.Pointer(&a.raw)), uintptr(unsafe.Pointer(&a.len)), 0)
	if to := a.addrPort(); errno == 0 && to.IsValid() {
		return to, nil
	}
	return at, nil // no rule changed it
}

// enableErrors has a UDP socket queue the ICMP errors of its packets, with the packets quoted in
// them.
func enableErrors(fd int, of netip.Addr) unix.Errno {
	if of.Is4() {
		return set(fd, unix.SOL_IP, unix.IP_RECVERR, 1)
	}
	return set(fd, unix.SOL_IPV6, unix.IPV6_RECVERR, 1)
}

// receiveError returns the next error in that queue, with the payload of its packet, which may be
// truncated; false if there is none. It is rarely called, so it need not be fast.
func receiveError(fd int, into []byte) (packet []byte, why unix.Errno, ok bool) {
	var control [256]byte // a message, an extended error, and the address of its sender
	n, m, _, _, err := unix.Recvmsg(fd, into, control[:], unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err != nil {
		return nil, 0, false
	}
	messages, err := unix.ParseSocketControlMessage(control[:m])
	if err != nil {
		return nil, 0, true
	}
	for _, c := range messages {
		ip4 := c.Header.Level == unix.SOL_IP && c.Header.Type == unix.IP_RECVERR
		ip6 := c.Header.Level == unix.SOL_IPV6 && c.Header.Type == unix.IPV6_RECVERR
		if (ip4 || ip6) && len(c.Data) >= 4 {
			why = unix.Errno(binary.NativeEndian.Uint32(c.Data)) // ee_errno of struct sock_extended_err
		}
	}
	return into[:n], why, true
}

// batchSize is the number of packets that are read or written in one call.
const batchSize = 16

// A packet is large enough for any packet of UDP.
type packet [65535]byte

// A message is the kernel's struct mmsghdr.
type message struct {
	header unix.Msghdr
	length uint32
	_      [unsafe.Sizeof(uintptr(0)) - 4]byte
}

// A batch is memory for packets that are read and written together.
type batch struct {
	messages [batchSize]message
	vectors  [batchSize]unix.Iovec
	names    [batchSize]address
	packets  [batchSize]packet
}

func newBatch() *batch {
	b := &batch{}
	for i := range b.messages {
		b.vectors[i].Base = &b.packets[i][0]
		b.messages[i].header.Iov = &b.vectors[i]
		b.messages[i].header.SetIovlen(1)
	}
	return b
}

// receive reads packets, with the addresses of their senders if named.
func (b *batch) receive(fd int, named bool) (int, unix.Errno) {
	for i := range b.messages {
		h := &b.messages[i].header
		b.vectors[i].SetLen(len(packet{}))
		if h.Name, h.Namelen = nil, 0; named {
			h.Name, h.Namelen = (*byte)(unsafe.Pointer(&b.names[i].raw)), uint32(unsafe.Sizeof(b.names[i].raw))
		}
	}
	n, errno := b.call(unix.SYS_RECVMMSG, fd, 0, batchSize)
	for i := range n {
		b.names[i].len = b.messages[i].header.Namelen
		b.vectors[i].SetLen(int(b.messages[i].length))
	}
	return n, errno
}

// send writes packets [first, end) that were received, to the given address or, if that is nil, to
// the peer of the socket. It returns how many were sent.
func (b *batch) send(fd, first, end int, to *address) (int, unix.Errno) {
	for i := first; i < end; i++ {
		h := &b.messages[i].header
		if h.Name, h.Namelen = nil, 0; to != nil {
			h.Name, h.Namelen = (*byte)(unsafe.Pointer(&to.raw)), to.len
		}
	}
	return b.call(unix.SYS_SENDMMSG, fd, first, end)
}

func (b *batch) call(call uintptr, fd, first, end int) (int, unix.Errno) {
	for {
		n, _, errno := unix.Syscall6(call, uintptr(fd), uintptr(unsafe.Pointer(&b.messages[first])), uintptr(end-first), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(n), 0
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// payload returns packet i; it is valid until the next receive.
func (b *batch) payload(i int) []byte { return b.packets[i][:b.messages[i].length] }

// bytes returns the size of packets [first, end).
func (b *batch) bytes(first, end int) (n int) {
	for i := first; i < end; i++ {
		n += int(b.messages[i].length)
	}
	return n
}
