package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/netfilter"
)

// send makes the kernel execute a batch, in full or not at all. The kernel does so during the
// write: when that returns the answers are there.
func send(b *batch) error {
	messages, last, err := b.finish()
	if err != nil {
		return err
	}
	// The kernel takes a batch in one write, which the buffer must hold. It answers each wrong
	// message with a copy of its header.
	const answer, overhead = 1 << 10, 1 << 16
	fd, err := netfilter.Open(len(messages)+overhead, answer*len(b.what)+overhead)
	if err != nil {
		return fmt.Errorf("opening nftables: %w", err)
	}
	defer unix.Close(fd)
	if err := netfilter.Send(fd, messages); err != nil {
		return fmt.Errorf("nftables, table %s: sending %d bytes: %w", b.table, len(messages), err)
	}
	return answers(fd, b, last)
}

// answers reads until the last message or the transaction as a whole is answered.
func answers(fd int, b *batch, last uint32) error {
	var wrong []error
	buf := make([]byte, 1<<16)
	for {
		n, err := netfilter.Receive(fd, buf, 0)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			// Only errors can be that many.
			return fmt.Errorf("nftables, table %s: the kernel reported more errors than fit the buffer; first: %w", b.table, errors.Join(append(wrong, err)...))
		case err != nil:
			return fmt.Errorf("nftables, table %s: no answer: %w", b.table, errors.Join(append(wrong, os.NewSyscallError("recvfrom", err))...))
		}
		for m := buf[:n]; len(m) >= unix.SizeofNlMsghdr+4; {
			size := int(binary.NativeEndian.Uint32(m))
			if size < unix.SizeofNlMsghdr+4 || size > len(m) {
				return fmt.Errorf("nftables, table %s: the kernel's answer is not understood", b.table)
			}
			seq := binary.NativeEndian.Uint32(m[8:])
			if binary.NativeEndian.Uint16(m[4:]) == unix.NLMSG_ERROR && seq < uint32(len(b.what)) {
				code := int32(binary.NativeEndian.Uint32(m[unix.SizeofNlMsghdr:]))
				if code != 0 {
					wrong = append(wrong, b.explain(seq, unix.Errno(-code), m[:size]))
				}
				if seq == last || seq == 0 && code != 0 {
					return errors.Join(wrong...)
				}
			}
			m = m[min(len(m), (size+3)&^3):]
		}
	}
}

// explain returns the kernel's error about a message. Its answer has that message's header after
// its own, and then the offset of the error in the message.
func (b *batch) explain(seq uint32, errno unix.Errno, answer []byte) error {
	const attributes = unix.SizeofNlMsghdr + 4 + unix.SizeofNlMsghdr
	at := "" // the element with the error
	if binary.NativeEndian.Uint16(answer[6:])&unix.NLM_F_ACK_TLVS != 0 && len(answer) > attributes {
		if ad, err := netlink.NewAttributeDecoder(answer[attributes:]); err == nil {
			for ad.Next() {
				if ad.Type() == unix.NLMSGERR_ATTR_OFFS {
					at = b.elementAt(seq, ad.Uint32())
				}
			}
		}
	}
	return netfilter.Hint(fmt.Errorf("nftables, table %s, %s%s: %w", b.table, b.what[seq], at, errno))
}

// elementAt describes the element at an offset of a message, if there is one that begins with a
// frontend.
func (b *batch) elementAt(seq, offset uint32) string {
	_, set, ok := strings.Cut(b.what[seq], "set ")
	if !ok {
		return ""
	}
	m := b.buf
	for range seq {
		m = m[binary.NativeEndian.Uint32(m):]
	}
	for _, f := range families {
		const key = 4 + 4 + 4 // the headers of the element, of its key, and of the key's value
		end := offset + key + f.bytes + 8
		if (set == f.frontends() || set == f.endpoints() || set == f.slots()) && uint64(end) <= uint64(len(m)) {
			value := m[offset+key : end]
			address, _ := netip.AddrFromSlice(value[:f.bytes])
			return fmt.Sprintf(" (%s . %s . %d)", address, protocolName(value[f.bytes]), binary.BigEndian.Uint16(value[f.bytes+4:]))
		}
	}
	return ""
}

// An object is an existing table, chain or set.
type object struct {
	family      byte
	table, name string // name is "" for a table
}

// dump reads the names of tables, chains or sets of a family; NFPROTO_UNSPEC reads those of all.
func dump(kind uint16, family byte) ([]object, error) {
	nameAt := map[uint16]uint16{unix.NFT_MSG_GETTABLE: 0, unix.NFT_MSG_GETCHAIN: unix.NFTA_CHAIN_NAME, unix.NFT_MSG_GETSET: unix.NFTA_SET_NAME}[kind]
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("opening nftables: %w", err)
	}
	defer c.Close()
	messages, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | netlink.Dump},
		Data:   []byte{family, 0, 0, 0},
	})
	if err != nil {
		return nil, netfilter.Hint(fmt.Errorf("reading nftables: %w", err))
	}
	var all []object
	for _, m := range messages {
		if len(m.Data) < 4 {
			continue
		}
		o := object{family: m.Data[0]}
		ad, err := netlink.NewAttributeDecoder(m.Data[4:])
		if err != nil {
			return nil, fmt.Errorf("reading nftables: %w", err)
		}
		for ad.Next() {
			switch ad.Type() {
			case 1: // NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_SET_TABLE
				o.table = ad.String()
			case nameAt:
				o.name = ad.String()
			}
		}
		if err := ad.Err(); err != nil {
			return nil, fmt.Errorf("reading nftables: %w", err)
		}
		all = append(all, o)
	}
	return all, nil
}
