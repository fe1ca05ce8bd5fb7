package announce

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// notify announces on a link which host has an address, by a gratuitous ARP or an unsolicited
// neighbour advertisement.
func notify(l netlink.Link, addr netip.Addr) error {
	if addr.Is4() {
		return notify4(l.Attrs(), addr)
	}
	return notify6(l.Attrs(), addr)
}

func notify4(l *netlink.LinkAttrs, addr netip.Addr) error {
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }()
	to := &unix.SockaddrLinklayer{Protocol: swap(unix.ETH_P_ARP), Ifindex: l.Index, Halen: 6, Addr: [8]byte{255, 255, 255, 255, 255, 255}}
	return unix.Sendto(s, request(l.HardwareAddr, addr), 0, to)
}

// swap returns a number of two bytes in network byte order.
func swap(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

// request returns an ARP announcement of an address (RFC 5227).
func request(mac []byte, addr netip.Addr) []byte {
	p := []byte{0, 1, 8, 0, 6, 4, 0, 1} // Ethernet, IPv4, 6 and 4 bytes, request
	p = append(p, mac...)
	p = append(p, addr.AsSlice()...)
	p = append(p, 0, 0, 0, 0, 0, 0)
	return append(p, addr.AsSlice()...)
}

func notify6(l *netlink.LinkAttrs, addr netip.Addr) error {
	s, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }()
	for option, value := range map[int]int{unix.IPV6_MULTICAST_HOPS: 255, unix.IPV6_MULTICAST_IF: l.Index} {
		if err := unix.SetsockoptInt(s, unix.IPPROTO_IPV6, option, value); err != nil {
			return err
		}
	}
	to := &unix.SockaddrInet6{Addr: netip.MustParseAddr("ff02::1").As16(), ZoneId: uint32(l.Index)}
	return unix.Sendto(s, advertisement(l.HardwareAddr, addr), 0, to)
}

// advertisement returns a neighbour advertisement with the override flag (RFC 4861, 4.4). The
// kernel fills in the checksum.
func advertisement(mac []byte, addr netip.Addr) []byte {
	p := []byte{136, 0, 0, 0, 0x20, 0, 0, 0}
	p = append(p, addr.AsSlice()...)
	return append(append(p, 2, 1), mac...)
}
