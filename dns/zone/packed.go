package zone

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"unique"
)

// Endpoints that nobody asks for are kept packed: most are of Services whose names do not
// depend on them. Each part begins with how long it is, and the numbers are varints.

// The protocols of ports, by their numbers in what is packed.
var protocols = [...]string{"tcp", "udp", "sctp"}

// AppendTo appends to b what [ReadEndpoints] reads.
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

// ReadEndpoints reads what [Endpoints.AppendTo] has written. What it returns holds nothing
// of packed but names.
func ReadEndpoints(packed string) *Endpoints {
	e := &Endpoints{}
	r := strings.NewReader(packed)
	text := func() string {
		n, err := binary.ReadUvarint(r)
		if err != nil || n > uint64(r.Len()) {
			return ""
		}
		b := make([]byte, n)
		_, _ = r.Read(b) // there is as much
		return string(b)
	}
	octet := func() byte {
		b, _ := r.ReadByte()
		return b
	}
	n, _ := binary.ReadUvarint(r)
	for range n {
		if r.Len() == 0 {
			break // it does not tell of as many
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
