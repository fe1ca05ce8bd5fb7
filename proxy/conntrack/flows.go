package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/netfilter"
)

// A flow is a connection in conntrack, reduced to the fields that are used here.
type flow struct {
	protocol   uint8
	client, to netip.AddrPort // source and destination of its first packet
	server     netip.AddrPort // the host that answers
	state      uint8          // of TCP, see tcpLastAck; otherwise 0
	sent       traffic        // by the client
	answered   traffic        // by the server

	// key identifies the flow. It refers to the message that was read, and so must be copied to be
	// kept.
	key flowKey
}

// traffic is counted if net.netfilter.nf_conntrack_acct was on when the flow began.
type traffic struct{ packets, bytes uint64 }

// A flowKey identifies one flow, different from earlier and later ones with the same addresses.
type flowKey struct {
	tuple []byte // attributes: of the first packet, and of its zone if it has one
	zone  []byte
	id    uint32
}

func (k flowKey) clone() flowKey {
	all := append(append(make([]byte, 0, len(k.tuple)+len(k.zone)), k.tuple...), k.zone...)
	return flowKey{tuple: all[:len(k.tuple):len(k.tuple)], zone: all[len(k.tuple):], id: k.id}
}

// Attributes of flows: CTA_* of linux/netfilter/nfnetlink_conntrack.h.
const (
	ctaTupleOrig       = 1
	ctaTupleReply      = 2
	ctaProtoinfo       = 4
	ctaCountersOrig    = 9
	ctaCountersReply   = 10
	ctaID              = 12
	ctaZone            = 18
	ctaFilter          = 25
	ctaTupleIP         = 1
	ctaTupleProto      = 2
	ctaIPv4Src         = 1
	ctaIPv4Dst         = 2
	ctaIPv6Src         = 3
	ctaIPv6Dst         = 4
	ctaProtoNum        = 1
	ctaProtoSrcPort    = 2
	ctaProtoDstPort    = 3
	ctaProtoinfoTCP    = 1
	ctaTCPState        = 1
	ctaCountersPackets = 1
	ctaCountersBytes   = 2
	ctaFilterOrig      = 1
	ctaFilterReply     = 2
)

// Messages of conntrack: IPCTNL_MSG_CT_*, with their subsystem.
const (
	ctNew    = unix.NFNL_SUBSYS_CTNETLINK << 8
	ctGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	ctDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
)

// netfilter.GenLen is the length of the header of every netfilter message: its first byte is the family.
// read makes f the flow of a message, and reports whether that is one of IPv4 or IPv6 with
// addresses in both directions. Other missing fields are 0. It does not allocate.
func (f *flow) read(m []byte) bool {
	*f = flow{}
	if len(m) < netfilter.GenLen {
		return false
	}
	for b := m[netfilter.GenLen:]; ; {
		kind, value, rest, ok := netfilter.Attribute(b)
		if !ok {
			break
		}
		switch kind {
		case ctaTupleOrig:
			f.key.tuple = b[:len(b)-len(rest)]
			f.client, f.to, f.protocol = readTuple(value)
		case ctaTupleReply:
			f.server, _, _ = readTuple(value)
		case ctaZone:
			f.key.zone = b[:len(b)-len(rest)]
		case ctaProtoinfo:
			f.state = readState(value)
		case ctaCountersOrig:
			f.sent = readTraffic(value)
		case ctaCountersReply:
			f.answered = readTraffic(value)
		case ctaID:
			if len(value) == 4 {
				f.key.id = binary.BigEndian.Uint32(value)
			}
		}
		b = rest
	}
	return f.client.IsValid() && f.to.IsValid() && f.server.IsValid()
}

// readTuple reads source and destination of the packets of one direction.
func readTuple(b []byte) (from, to netip.AddrPort, protocol uint8) {
	var addresses [2]netip.Addr
	var ports [2]uint16
	for kind, value, rest, ok := netfilter.Attribute(b); ok; kind, value, rest, ok = netfilter.Attribute(rest) {
		for k, v, r, ok := netfilter.Attribute(value); ok; k, v, r, ok = netfilter.Attribute(r) {
			switch {
			case kind == ctaTupleIP && k >= ctaIPv4Src && k <= ctaIPv6Dst:
				a, _ := netip.AddrFromSlice(v)
				addresses[(k-ctaIPv4Src)%2] = a.Unmap()
			case kind == ctaTupleProto && k == ctaProtoNum && len(v) == 1:
				protocol = v[0]
			case kind == ctaTupleProto && (k == ctaProtoSrcPort || k == ctaProtoDstPort) && len(v) == 2:
				ports[k-ctaProtoSrcPort] = binary.BigEndian.Uint16(v)
			}
		}
	}
	return netip.AddrPortFrom(addresses[0], ports[0]), netip.AddrPortFrom(addresses[1], ports[1]), protocol
}

// originalTuple returns the tuple of a flowKey of zone 0.
func originalTuple(protocol uint8, client, to netip.AddrPort) []byte {
	source, destination := uint16(ctaIPv4Src), uint16(ctaIPv4Dst)
	if client.Addr().Is6() {
		source, destination = ctaIPv6Src, ctaIPv6Dst
	}
	m, all := netfilter.Begin(nil, ctaTupleOrig)
	m, ip := netfilter.Begin(m, ctaTupleIP)
	m = netfilter.AppendAttr(m, source, client.Addr().AsSlice()...)
	m = netfilter.End(netfilter.AppendAttr(m, destination, to.Addr().AsSlice()...), ip)
	m, proto := netfilter.Begin(m, ctaTupleProto)
	m = netfilter.AppendAttr(m, ctaProtoNum, protocol)
	m = netfilter.AppendAttr(m, ctaProtoSrcPort, binary.BigEndian.AppendUint16(nil, client.Port())...)
	m = netfilter.End(netfilter.AppendAttr(m, ctaProtoDstPort, binary.BigEndian.AppendUint16(nil, to.Port())...), proto)
	return netfilter.End(m, all)
}

func readState(b []byte) uint8 {
	for kind, value, rest, ok := netfilter.Attribute(b); ok; kind, value, rest, ok = netfilter.Attribute(rest) {
		if kind != ctaProtoinfoTCP {
			continue
		}
		for k, v, r, ok := netfilter.Attribute(value); ok; k, v, r, ok = netfilter.Attribute(r) {
			if k == ctaTCPState && len(v) == 1 {
				return v[0]
			}
		}
	}
	return 0
}

func readTraffic(b []byte) (t traffic) {
	for kind, value, rest, ok := netfilter.Attribute(b); ok; kind, value, rest, ok = netfilter.Attribute(rest) {
		switch {
		case kind == ctaCountersPackets && len(value) == 8:
			t.packets = binary.BigEndian.Uint64(value)
		case kind == ctaCountersBytes && len(value) == 8:
			t.bytes = binary.BigEndian.Uint64(value)
		}
	}
	return t
}

// A selection is a filter: a flow must match all fields that are set.
type selection struct {
	v6         bool
	protocol   uint8 // 0: any; then nothing else may be set
	to, server netip.AddrPort
}

// append appends the filter in the kernel's encoding. Linux 5.8 and later skips other flows, in a
// tenth of the time of sending them. Addresses of IPv6 are not sent: up to Linux 6.18 at least the
// kernel inverts their comparison.
func (s selection) append(m []byte) []byte {
	if s.protocol == 0 {
		return m
	}
	// CTA_FILTER_F_*, which are in no user-space header.
	const source, destination, protocol, sourcePort, destinationPort = 1 << 0, 1 << 1, 1 << 3, 1 << 4, 1 << 5
	tuple := func(m []byte, kind uint16, at netip.AddrPort, addressKind, portKind uint16) []byte {
		m, all := netfilter.Begin(m, kind)
		if at.Addr().Is4() {
			var ip int
			m, ip = netfilter.Begin(m, ctaTupleIP)
			m = netfilter.End(netfilter.AppendAttr(m, addressKind, at.Addr().AsSlice()...), ip)
		}
		m, proto := netfilter.Begin(m, ctaTupleProto)
		m = netfilter.AppendAttr(m, ctaProtoNum, s.protocol)
		if at.Port() != 0 {
			m = netfilter.AppendAttr(m, portKind, binary.BigEndian.AppendUint16(nil, at.Port())...)
		}
		return netfilter.End(netfilter.End(m, proto), all)
	}
	flags := func(at netip.AddrPort, address, port uint32) (f uint32) {
		f = protocol
		if at.Addr().Is4() {
			f |= address
		}
		if at.Port() != 0 {
			f |= port
		}
		return f
	}
	m = tuple(m, ctaTupleOrig, s.to, ctaIPv4Dst, ctaProtoDstPort)
	m = tuple(m, ctaTupleReply, s.server, ctaIPv4Src, ctaProtoSrcPort)
	m, filter := netfilter.Begin(m, ctaFilter)
	m = netfilter.AppendAttr(m, ctaFilterOrig, binary.NativeEndian.AppendUint32(nil, flags(s.to, destination, destinationPort))...)
	m = netfilter.AppendAttr(m, ctaFilterReply, binary.NativeEndian.AppendUint32(nil, flags(s.server, source, sourcePort))...)
	return netfilter.End(m, filter)
}

// errMissed is returned if the kernel dropped messages: the caller must read again to have all
// flows.
var errMissed = errors.New("the kernel dropped messages")

// A conntrack is a netlink connection to conntrack in the network namespace of the thread that
// opened it. It belongs to one goroutine, and can't be used any more after an error.
type conntrack struct {
	fd  int
	seq uint32
	in  []byte // last received
	out []byte // being sent
}

func openConntrack() (*conntrack, error) {
	// The kernel sends a list as fast as it is read, in parts of up to 32 KiB. Answers to a batch
	// of questions have to fit.
	const buffer = 1 << 20
	fd, err := netfilter.Open(0, buffer)
	if err != nil {
		return nil, fmt.Errorf("opening conntrack: %w", err)
	}
	return &conntrack{fd: fd, in: make([]byte, 1<<15)}, nil
}

func (c *conntrack) close() { _ = unix.Close(c.fd) }

// message begins a message in c.out; sized ends it.
func (c *conntrack) message(kind, flags uint16, v6 bool) (at int) {
	at = len(c.out)
	c.seq++
	family := byte(unix.AF_INET)
	if v6 {
		family = unix.AF_INET6
	}
	m := binary.NativeEndian.AppendUint32(c.out, 0)
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, flags)
	m = binary.NativeEndian.AppendUint32(m, c.seq)
	m = binary.NativeEndian.AppendUint32(m, 0)
	c.out = append(m, family, unix.NFNETLINK_V0, 0, 0)
	return at
}

func (c *conntrack) sized(at int) {
	binary.NativeEndian.PutUint32(c.out[at:], uint32(len(c.out)-at))
	c.out = append(c.out, make([]byte, netfilter.Align(len(c.out))-len(c.out))...)
}

func (c *conntrack) send() error {
	return netfilter.Hint(os.NewSyscallError("sendto", netfilter.Send(c.fd, c.out)))
}

func (c *conntrack) receive() ([]byte, error) {
	n, err := netfilter.Receive(c.fd, c.in, 0)
	switch {
	case errors.Is(err, unix.ENOBUFS):
		return nil, errMissed
	case err != nil:
		return nil, os.NewSyscallError("recvfrom", err)
	}
	return c.in[:n], nil
}

// each calls f with each flow of a selection, and perhaps with others, which f must ignore. The
// flow is valid until f returns. It returns errMissed if f may not have received all flows.
func (c *conntrack) each(s selection, f func(*flow)) error {
	c.out = c.out[:0]
	at := c.message(ctGet, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, s.v6)
	c.out = s.append(c.out)
	c.sized(at)
	if err := c.send(); err != nil {
		return fmt.Errorf("reading conntrack: %w", err)
	}
	l := listing{seq: c.seq, flow: f}
	for {
		b, err := c.receive()
		if err == nil {
			err = l.take(b)
		}
		if err != nil {
			return fmt.Errorf("reading conntrack: %w", err)
		}
		if l.over {
			return nil
		}
	}
}

// A listing parses the parts of a list.
type listing struct {
	seq    uint32
	flow   func(*flow)
	last   flow
	missed bool
	over   bool
}

// take reads a part; the last one sets over. After an error it must not be called again.
func (l *listing) take(b []byte) error {
	for len(b) > 0 {
		h, m, rest, ok := netfilter.Split(b)
		if !ok {
			return netfilter.ErrMalformed
		}
		b = rest
		if h.Seq != l.seq {
			continue // an answer to an earlier question
		}
		l.missed = l.missed || h.Flags&unix.NLM_F_DUMP_INTR != 0
		switch h.Kind {
		case unix.NLMSG_ERROR, unix.NLMSG_DONE:
			if err := result(m); err != nil {
				return err
			}
			if l.over = true; l.missed {
				return errMissed
			}
			return nil
		case ctNew:
			if l.last.read(m) {
				l.flow(&l.last)
			}
		}
	}
	return nil
}

// result is the status at the end of an answer: an error, or that of an interrupted list.
func result(m []byte) error {
	if len(m) < 4 {
		return netfilter.ErrMalformed
	}
	switch code := int32(binary.NativeEndian.Uint32(m)); {
	case code >= 0:
		return nil
	case unix.Errno(-code) == unix.ENOBUFS, unix.Errno(-code) == unix.EAGAIN, unix.Errno(-code) == unix.EINTR:
		return errMissed
	default:
		return netfilter.Hint(unix.Errno(-code))
	}
}

// atOnce is the number of questions in one write: the answers wait in the socket.
const atOnce = 64

// look calls f for each of the flows of a family that still exist, with its index in keys.
func (c *conntrack) look(v6 bool, keys []flowKey, f func(i int, now *flow)) error {
	err := c.ask(ctGet, 0, v6, keys, func(i int, now *flow) {
		// The same addresses and ports may have been used again.
		if now != nil && now.key.id == keys[i].id {
			f(i, now)
		}
	})
	if err != nil {
		return fmt.Errorf("reading flows of conntrack: %w", err)
	}
	return nil
}

// remove deletes flows of a family; it is not an error if they are already deleted.
func (c *conntrack) remove(v6 bool, keys []flowKey) error {
	if err := c.ask(ctDelete, unix.NLM_F_ACK, v6, keys, func(int, *flow) {}); err != nil {
		return fmt.Errorf("deleting flows of conntrack: %w", err)
	}
	return nil
}

// ask sends a message for each key, and calls f for each that exists. The flow is nil if the answer
// has no more than that.
func (c *conntrack) ask(kind, flags uint16, v6 bool, keys []flowKey, f func(i int, now *flow)) error {
	for done := 0; done < len(keys); done += atOnce {
		batch := keys[done:min(done+atOnce, len(keys))]
		c.out = c.out[:0]
		for _, k := range batch {
			at := c.message(kind, unix.NLM_F_REQUEST|flags, v6)
			c.out = append(append(c.out, k.tuple...), k.zone...)
			if kind == ctDelete {
				c.out = netfilter.AppendAttr(c.out, ctaID, binary.BigEndian.AppendUint32(nil, k.id)...)
			}
			c.sized(at)
		}
		if err := c.send(); err != nil {
			return err
		}
		a := replies{first: c.seq - uint32(len(batch)) + 1, asked: len(batch), left: len(batch), flow: func(i int, now *flow) { f(done+i, now) }}
		for a.left > 0 {
			b, err := c.receive()
			if err == nil {
				err = a.take(b)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// replies parses the answers to a batch of questions: each has exactly one.
type replies struct {
	first uint32 // the number of the first question
	asked int
	left  int // number of missing answers
	flow  func(i int, now *flow)
	last  flow
}

func (r *replies) take(b []byte) error {
	for len(b) > 0 && r.left > 0 {
		h, m, rest, ok := netfilter.Split(b)
		if !ok {
			return netfilter.ErrMalformed
		}
		b = rest
		i := h.Seq - r.first
		if i >= uint32(r.asked) {
			continue // an answer to an earlier question
		}
		r.left--
		switch h.Kind {
		case unix.NLMSG_ERROR:
			switch err := result(m); {
			case err == nil:
				r.flow(int(i), nil)
			case !errors.Is(err, unix.ENOENT):
				return err
			}
		case ctNew:
			if r.last.read(m) {
				r.flow(int(i), &r.last)
			}
		}
	}
	return nil
}
