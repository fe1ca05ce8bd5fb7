package zone

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"unique"
)

// Endpoints are kept packed, because most are of Services whose names do not depend on them. Each
// part begins with its length; numbers are varints.

// The protocols of ports, by their numbers in the packed form.
var protocols = [...]string{"tcp", "udp", "sctp"}

// AppendTo appends the packed form of e to b.
func (e *Endpoints) AppendTo(b []byte) []byte {
	if len(e.ports)+len(e.all) == 0 {
		return b
	}
	b = binary.AppendUvarint(b, uint64(len(e.ports)))
	for _, p := range e.ports {
		b = appendText(b, p.name.Value())
		for i, name := range protocols {
			if p.protocol == name {
				b = append(b, byte(i))
			}
		}
		b = binary.BigEndian.AppendUint16(b, p.number)
	}
	for _, one := range e.all {
		ready := byte(0)
		if one.ready {
			ready = 1
		}
		b = append(appendText(b, one.name), ready)
		b = appendText(b, string(one.address.AsSlice()))
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// ReadEndpoints parses the packed form. Its result refers to no memory of packed except names.
func ReadEndpoints(packed string) *Endpoints {
	e := &Endpoints{}
	r := strings.NewReader(packed)
	text := func() string {
		n, err := binary.ReadUvarint(r)
		if err != nil || n > uint64(r.Len()) {
			return ""
		}
		b := make([]byte, n)
		_, _ = r.Read(b) // the length was checked
		return string(b)
	}
	octet := func() byte {
		b, _ := r.ReadByte()
		return b
	}
	n, _ := binary.ReadUvarint(r)
	for range n {
		if r.Len() == 0 {
			break // the packed form is truncated
		}
		p := port{name: unique.Make(text())}
		p.protocol = protocols[int(octet())%len(protocols)]
		p.number = uint16(octet())<<8 | uint16(octet())
		e.ports = append(e.ports, p)
	}
	for r.Len() > 0 {
		one := endpoint{name: text(), ready: octet() == 1}
		one.address, _ = netip.AddrFromSlice(net.IP(text()))
		e.all = append(e.all, one)
	}
	return e
}
