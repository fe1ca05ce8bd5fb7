package userspace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A refuser sends clients of UDP of one family the ICMP error "port unreachable" for packets that
// no endpoint receives. The message comes from the address that the client sent its packet to and
// quotes the packet; conntrack translates both to the addresses that the client used. It may be
// used from any goroutine.
type refuser struct {
	fd    int // a raw socket that receives nothing
	limit *limiter
}

// newRefuser returns a refuser whose messages come from an address of this node, which must be that
// of the pools' sockets. It needs CAP_NET_RAW.
func newRefuser(from netip.Addr, l *limiter) (*refuser, error) {
	protocol := unix.IPPROTO_ICMP
	if from.Is6() {
		protocol = unix.IPPROTO_ICMPV6
	}
	fd, err := unix.Socket(family(from), unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("opening a socket for ICMP: %w", err)
	}
	// Otherwise the socket would receive each message for this node.
	if from.Is6() {
		err = unix.SetsockoptICMPv6Filter(fd, unix.SOL_ICMPV6, icmpv6Filter, &unix.ICMPv6Filter{Data: [8]uint32{
			1<<32 - 1, 1<<32 - 1, 1<<32 - 1, 1<<32 - 1, 1<<32 - 1, 1<<32 - 1, 1<<32 - 1, 1<<32 - 1,
		}})
	} else {
		err = asError(set(fd, unix.SOL_RAW, icmpFilter, -1))
	}
	if err == nil {
		at := addressOf(netip.AddrPortFrom(from, 0))
		err = asError(bind(fd, &at))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("preparing a socket for ICMP at %v: %w", from, err), unix.Close(fd))
	}
	return &refuser{fd, l}, nil
}

// The options of raw sockets with the types of messages that are not received: ICMP_FILTER of
// linux/icmp.h, and ICMPV6_FILTER.
const icmpFilter, icmpv6Filter = 1, 1

func (r *refuser) close() { _ = unix.Close(r.fd) }

// refuse sends a client the error that a port of this node is unreachable. Payload is the known
// part of the client's packet; size is the packet's size. Messages above the rate limit, or that
// the kernel refuses, are dropped.
func (r *refuser) refuse(client, at netip.AddrPort, payload []byte, size int, now time.Time) {
	if !r.limit.allow(client.Addr(), now) {
		return
	}
	message := unreachable(client, at, payload, size)
	var to unix.Sockaddr = &unix.SockaddrInet6{Addr: client.Addr().As16()}
	if client.Addr().Is4() {
		to = &unix.SockaddrInet4{Addr: client.Addr().As4()}
	}
	_ = unix.Sendto(r.fd, message, unix.MSG_DONTWAIT, to)
}

// The largest size of such a message: RFC 1812, 4.3.2.3, and RFC 4443, 2.4.
const most4, most6 = 576, 1280

// unreachable returns a message that a port is unreachable. It quotes a packet of UDP: its headers,
// and as much of the payload as is known and fits. The kernel fills in the checksum of ICMPv6.
func unreachable(from, to netip.AddrPort, payload []byte, size int) []byte {
	m, room := make([]byte, 8, most6), most6-40-8-40-8
	if from.Addr().Is4() {
		m[0], m[1], room = 3, 3, most4-20-8-20-8
		quoted := make([]byte, 20)
		quoted[0] = 4<<4 | 5 // version, and length in words
		binary.BigEndian.PutUint16(quoted[2:], uint16(20+8+size))
		quoted[8], quoted[9] = 64, unix.IPPROTO_UDP
		copy(quoted[12:], from.Addr().AsSlice())
		copy(quoted[16:], to.Addr().AsSlice())
		binary.BigEndian.PutUint16(quoted[10:], checksum(quoted))
		m = append(m, quoted...)
	} else {
		m[0], m[1] = 1, 4
		m = append(m, 6<<4, 0, 0, 0)
		m = binary.BigEndian.AppendUint16(m, uint16(8+size))
		m = append(m, unix.IPPROTO_UDP, 64)
		m = append(m, from.Addr().AsSlice()...)
		m = append(m, to.Addr().AsSlice()...)
	}
	for _, n := range []uint16{from.Port(), to.Port(), uint16(8 + size), 0} {
		m = binary.BigEndian.AppendUint16(m, n)
	}
	m = append(m, payload[:min(len(payload), room)]...)
	if from.Addr().Is4() {
		binary.BigEndian.PutUint16(m[2:], checksum(m))
	}
	return m
}

// checksum returns the checksum of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) > 0 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// Refusals per second: to one client, and to all, because source addresses may be forged. A burst
// may have those of one second. The kernel has the same limit for all (net.ipv4.icmp_msgs_per_sec).
const refusalsPerClient, refusalsPerSecond = 100, 1000

// A limiter limits the rate of refusals (RFC 1812, 4.3.2.8; RFC 4443, 2.4). It is safe for
// concurrent use.
type limiter struct {
	seed maphash.Seed

	mu      sync.Mutex
	all     bucket       // guarded by mu
	clients [1024]bucket // guarded by mu; by a hash of the client's address: a few may share one
}

func newLimiter() *limiter { return &limiter{seed: maphash.MakeSeed()} }

// allow reports whether a refusal may be sent to a client now.
func (l *limiter) allow(client netip.Addr, now time.Time) bool {
	mine := maphash.Comparable(l.seed, client) % uint64(len(l.clients))
	l.mu.Lock()
	defer l.mu.Unlock()
	// The client first: one that asks too often takes nothing from the others.
	return l.clients[mine].take(now, refusalsPerClient) && l.all.take(now, refusalsPerSecond)
}

// A bucket holds tokens for one second. Its value is the time at which it is full, in nanoseconds
// since 1970; so the zero bucket is full.
type bucket int64

// take takes a token, of which perSecond are added in a second, and reports whether there was one.
func (b *bucket) take(now time.Time, perSecond int64) bool {
	full := max(int64(*b), now.UnixNano()) + int64(time.Second)/perSecond
	if full > now.Add(time.Second).UnixNano() {
		return false
	}
	*b = bucket(full)
	return true
}
