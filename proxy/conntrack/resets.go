package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/netfilter"
)

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

// ForgetResets deletes connections that their server has reset from conntrack, until ctx is
// cancelled. Rules must log the resets in the NFLOG group.
func ForgetResets(ctx context.Context, group uint16) error {
	c, hangUp, err := netfilter.DialUntil(ctx)
	if err != nil {
		return fmt.Errorf("receiving resets of connections: %w", err)
	}
	defer hangUp()
	if err := bindLog(c, group); err != nil {
		return netfilter.Hint(fmt.Errorf("receiving resets of connections: %w", err))
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
	if m.Header.Type != logPacket || len(m.Data) < netfilter.GenLen {
		return flowKey{}, false, false
	}
	for kind, value, rest, ok := netfilter.Attribute(m.Data[netfilter.GenLen:]); ok; kind, value, rest, ok = netfilter.Attribute(rest) {
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
	header, source, size := 0, 12, 4 // offsets of IPv4, and the length of its addresses
	if len(packet) > 0 {
		header = int(packet[0]&0xf) * 4
		if packet[0]>>4 == 6 {
			header, source, size = 40, 8, 16
		}
	}
	destination := source + size
	if len(packet) < header+4 || header < destination+size {
		return from, to, false
	}
	end := func(address, port int) netip.AddrPort {
		a, _ := netip.AddrFromSlice(packet[address : address+size])
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(packet[port:]))
	}
	return end(source, header), end(destination, header+2), true
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
