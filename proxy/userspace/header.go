package userspace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// signature begins a header of version 2 of the PROXY protocol.
const signature = "\r\n\r\n\x00\r\nQUIT\n"

// appendHeader appends the header of a TCP connection from one address to another of the same
// family: version 1 or 2 of the PROXY protocol, according to
// https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt.
func appendHeader(b []byte, version int, from, to netip.AddrPort) []byte {
	v4 := from.Addr().Is4()
	if version == 1 {
		name := "TCP6"
		if v4 {
			name = "TCP4"
		}
		return fmt.Appendf(b, "PROXY %s %s %s %d %d\r\n", name, from.Addr().WithZone(""), to.Addr().WithZone(""), from.Port(), to.Port())
	}
	const (
		proxied    = 2<<4 | 1 // version 2, for the client of the connection
		inet       = 1 << 4
		inet6      = 2 << 4
		streaming  = 1
		portsBytes = 4
	)
	b = append(b, signature...)
	if v4 {
		b = binary.BigEndian.AppendUint16(append(b, proxied, inet|streaming), 4+4+portsBytes)
	} else {
		b = binary.BigEndian.AppendUint16(append(b, proxied, inet6|streaming), 16+16+portsBytes)
	}
	b = append(append(b, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, from.Port()), to.Port())
}

// introduce sends the PROXY header with the client's address to the server, if the pool has one.
func (p *pool) introduce(in, out *net.TCPConn, client netip.AddrPort) error {
	version := int(p.header.Load())
	if version == 0 {
		return nil
	}
	raw, err := in.SyscallConn()
	if err != nil {
		return err
	}
	var to netip.AddrPort
	if cerr := raw.Control(func(fd uintptr) { to, err = originalDestination(int(fd)) }); cerr != nil || err != nil {
		return errors.Join(cerr, err)
	}
	_, err = out.Write(appendHeader(nil, version, client, to))
	return err
}
