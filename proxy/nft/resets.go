package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A server that closes a connection while data is unread resets it. Conntrack keeps the closed
// connection for ten seconds (net.netfilter.nf_conntrack_tcp_timeout_close). If the client uses the
// same port again in that time, unless one of the two had closed before, conntrack does not treat
// its SYN as a first packet: no rule sees it, and it goes to the old server, which may have left
// the Service and be about to end. So rules log resets by servers, and Run deletes these
// connections from conntrack.

func (f *family) reset() string { return "reset" + f.digit }

// resetGroup is the NFLOG group in which a table logs resets. Other programs use low numbers.
func resetGroup(table string) uint16 {
	const high = 1 << 15
	h := fnv.New32a()
	_, _ = h.Write([]byte(table))
	return uint16(h.Sum32()) | high
}

// isReset matches TCP packets that reset a connection.
func (f *family) isReset() []expr.Any {
	protocol := &expr.Payload{DestRegister: regBackend, Base: expr.PayloadBaseNetworkHeader, Offset: v4Protocol, Len: 1}
	if f == v6 {
		protocol.Offset = v6NextHeader
	}
	return append([]expr.Any{protocol, &expr.Cmp{Op: expr.CmpOpEq, Register: regBackend, Data: []byte{unix.IPPROTO_TCP}}},
		inHeader(expr.PayloadBaseTransportHeader, tcpWordsOffset, tcpReset, tcpReset)...)
}

// addResets adds the chain for packets that reset a connection to a backend. A server's reset in
// answer to a SYN is left out: conntrack deletes such connections itself.
func (b *batch) addResets(f *family) {
	const assured = 1 << 2 // IPS_ASSURED
	// The rate limit keeps the cost of resets low, so that clients can't overload the node with
	// them.
	const perSecond, burst = 1000, 1000
	accept := &expr.Verdict{Kind: expr.VerdictAccept}
	b.addRule(f.reset(),
		&expr.Ct{Key: expr.CtKeySTATUS, Register: regBackend},
		&expr.Bitwise{SourceRegister: regBackend, DestRegister: regBackend, Len: 4, Mask: number(assured), Xor: number(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: regBackend, Data: number(0)},
		accept)
	b.addRule(f.reset(),
		&expr.Ct{Key: expr.CtKeyDIRECTION, Register: regBackend},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: regBackend, Data: []byte{byte(countOut)}},
		accept)
	for _, node := range []bool{false, true} {
		b.addRule(f.reset(), append(f.loadOriginalFrontend(node),
			find(f.frontends(), f.regFrontend(), regBackend),
			&expr.Limit{Type: expr.LimitTypePkts, Rate: perSecond, Unit: expr.LimitTimeSecond, Burst: burst},
			&expr.Log{Key: 1 << unix.NFTA_LOG_GROUP, Group: resetGroup(b.table)},
			accept)...)
	}
	b.addRule(f.reset(), accept)
}

// Messages of NFLOG, and their attributes: NFULNL_* and NFULA_* of linux/netfilter/nfnetlink_log.h.
const (
	logPacket     = unix.NFNL_SUBSYS_ULOG << 8
	logPayload    = 9
	logConfig     = unix.NFNL_SUBSYS_ULOG<<8 | 1
	logCommand    = 1
	logBind       = 1
	logMode       = 2
	logCopyPacket = 2
	logThreshold  = 5
)

// Run implements [proxy.Kernel]: it deletes connections that their server has reset from conntrack.
func (k *Kernel) Run(ctx context.Context) error {
	c, hangUp, err := dialUntil(ctx)
	if err != nil {
		return fmt.Errorf("receiving resets of connections: %w", err)
	}
	defer hangUp()
	if err := bindLog(c, resetGroup(k.opts.Table)); err != nil {
		return hint(fmt.Errorf("receiving resets of connections: %w", err))
	}
	flows, err := openConntrack()
	if err != nil {
		return err
	}
	defer func() { flows.close() }()
	for {
		messages, err := c.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS): // conntrack drops missed ones after ten seconds
			continue
		case err != nil:
			return fmt.Errorf("receiving resets of connections: %w", err)
		}
		for _, m := range messages {
			if key, v6, ok := resetFlow(m); ok {
				if flows.removeClosed(v6, key) == nil {
					continue
				}
				fresh, err := openConntrack() // after an error it can't be used any more; this flow stays
				if err != nil {
					return err
				}
				flows.close()
				flows = fresh
			}
		}
	}
}

// bindLog has the kernel send the headers of packets that are logged in a group, without batching.
func bindLog(c *netlink.Conn, group uint16) error {
	const headers = 128 // large enough for them
	ae := netlink.NewAttributeEncoder()
	ae.ByteOrder = binary.BigEndian
	ae.Bytes(logCommand, []byte{logBind})
	ae.Bytes(logMode, []byte{0, 0, 0, headers, logCopyPacket, 0})
	ae.Uint32(logThreshold, 1)
	attrs, err := ae.Encode()
	if err != nil {
		return err
	}
	_, err = c.Execute(netlink.Message{
		Header: netlink.Header{Type: logConfig, Flags: netlink.Request | netlink.Acknowledge},
		Data:   append([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, byte(group >> 8), byte(group)}, attrs...),
	})
	return err
}

// resetFlow returns the connection of a packet that was logged.
func resetFlow(m netlink.Message) (key flowKey, v6, ok bool) {
	if m.Header.Type != logPacket || len(m.Data) < genmsg {
		return flowKey{}, false, false
	}
	for kind, value, rest, ok := attribute(m.Data[genmsg:]); ok; kind, value, rest, ok = attribute(rest) {
		if kind == logPayload {
			from, to, ok := ends(value)
			// The packet goes from frontend to client: addresses are translated back by now.
			return flowKey{tuple: originalTuple(unix.IPPROTO_TCP, to, from)}, from.Addr().Is6(), ok
		}
	}
	return flowKey{}, false, false
}

// ends returns source and destination of a TCP packet.
func ends(packet []byte) (from, to netip.AddrPort, ok bool) {
	f, header := v4, 0
	if len(packet) > 0 {
		header = int(packet[0]&0xf) * 4
		if uint32(packet[0]>>4) == v6.version {
			f, header = v6, 40
		}
	}
	if len(packet) < header+4 || header < int(f.destination+f.bytes) {
		return from, to, false
	}
	end := func(address uint32, port int) netip.AddrPort {
		a, _ := netip.AddrFromSlice(packet[address : address+f.bytes])
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(packet[port:]))
	}
	return end(f.source, header), end(f.destination, header+2), true
}

// removeClosed deletes a connection if it is closed. A reset that the client may not accept leaves
// it open.
func (c *conntrack) removeClosed(v6 bool, key flowKey) error {
	const closed = 8 // TCP_CONNTRACK_CLOSE
	var dead []flowKey
	if err := c.ask(ctGet, 0, v6, []flowKey{key}, func(_ int, now *flow) {
		if now != nil && now.state == closed {
			dead = append(dead, now.key.clone())
		}
	}); err != nil {
		return fmt.Errorf("reading flows of conntrack: %w", err)
	}
	return c.remove(v6, dead)
}
