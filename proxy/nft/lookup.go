package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/proxy"
)

// maxLooked bounds the number of backends of a frontend that are looked up: one request each.
const maxLooked = 4096

// Lookup returns the kernel's state of a frontend, even if another program made it, and the
// backend that a client of it goes back to. It reads single elements, so its cost does not depend
// on the number of Services. It may be called from any goroutine.
func (k *Kernel) Lookup(ctx context.Context, d proxy.Frontend, client netip.Addr) (proxy.Seen, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return proxy.Seen{}, fmt.Errorf("opening nftables: %w", err)
	}
	defer c.Close()
	l := lookup{c, k.opts.Table}
	f := familyOf(d.Address)
	frontend := appendFrontend(nil, d)
	class, err := l.get(f.frontends(), frontend)
	if err != nil || class == nil {
		return proxy.Seen{}, err
	}
	seen := proxy.Seen{Found: true}
	if seen.Backends, err = l.backends(ctx, f, frontend, 0); err != nil {
		return seen, err
	}
	if seen.Inside, err = l.backends(ctx, f, frontend, insideSlots); err != nil {
		return seen, err
	}
	if client.BitLen() != d.Address.BitLen() {
		return seen, nil
	}
	bound, err := l.get(f.affinity(), append(slices.Clip(frontend), client.AsSlice()...))
	if err != nil || bound == nil {
		return seen, err
	}
	backend, err := l.get(f.endpoints(), append(slices.Clip(frontend), bound.data...))
	if backend != nil { // otherwise it is no longer a backend
		seen.Bound, seen.Left = f.readBackend(backend.data), bound.left
	}
	return seen, err
}

// A lookup reads elements of sets in a table.
type lookup struct {
	conn  *netlink.Conn
	table string
}

// A found element has data, the time left if it has a timeout, and its counter if it has one.
type found struct {
	key, data []byte
	left      time.Duration
	counted   *counted
}

// backends returns the backends in the slots from first on.
func (l lookup) backends(ctx context.Context, f *family, frontend []byte, first uint32) ([]netip.AddrPort, error) {
	var all []netip.AddrPort
	for slot := first; slot < first+maxLooked; slot++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		e, err := l.get(f.endpoints(), binary.NativeEndian.AppendUint32(slices.Clip(frontend), slot))
		if err != nil || e == nil {
			return all, err
		}
		all = append(all, f.readBackend(e.data))
	}
	return all, nil
}

func (f *family) readBackend(data []byte) netip.AddrPort {
	a, ok := netip.AddrFromSlice(data[:min(int(f.bytes), len(data))])
	if !ok || len(data) < int(f.bytes)+2 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(data[f.bytes:]))
}

// Attributes of messages about elements, as in nf_tables.h.
const (
	attrTable    = 1 // NFTA_SET_ELEM_LIST_TABLE
	attrSet      = 2 // NFTA_SET_ELEM_LIST_SET
	attrElements = 3 // NFTA_SET_ELEM_LIST_ELEMENTS
	attrElement  = 1 // NFTA_LIST_ELEM
	attrKey      = 1 // NFTA_SET_ELEM_KEY
	attrData     = 2 // NFTA_SET_ELEM_DATA
	attrLeft     = 5 // NFTA_SET_ELEM_EXPIRATION, in ms
	attrExpr     = 7 // NFTA_SET_ELEM_EXPR
	attrExprData = 2 // NFTA_EXPR_DATA
	attrBytes    = 1 // NFTA_COUNTER_BYTES
	attrPackets  = 2 // NFTA_COUNTER_PACKETS
	attrValue    = 1 // NFTA_DATA_VALUE
)

// get returns an element of a map, or nil if there is none or no such map.
func (l lookup) get(set string, key []byte) (*found, error) {
	ae := netlink.NewAttributeEncoder()
	ae.String(attrTable, l.table)
	ae.String(attrSet, set)
	ae.Nested(attrElements, func(ae *netlink.AttributeEncoder) error {
		ae.Nested(attrElement, func(ae *netlink.AttributeEncoder) error {
			ae.Nested(attrKey, func(ae *netlink.AttributeEncoder) error {
				ae.Bytes(attrValue, key)
				return nil
			})
			return nil
		})
		return nil
	})
	attrs, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	messages, err := l.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETSETELEM, Flags: netlink.Request},
		Data:   append([]byte{unix.NFPROTO_INET, 0, 0, 0}, attrs...),
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("nftables, table %s: reading the map %s: %w", l.table, set, err)
	}
	all, err := l.read(set, messages)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// read returns the elements that are in messages.
func (l lookup) read(set string, messages []netlink.Message) (all []found, err error) {
	for _, m := range messages {
		if len(m.Data) < 4 {
			continue
		}
		ad, err := netlink.NewAttributeDecoder(m.Data[4:])
		if err != nil {
			return nil, fmt.Errorf("nftables, table %s: reading the set %s: %w", l.table, set, err)
		}
		for ad.Next() {
			if ad.Type() == attrElements {
				ad.Nested(func(ad *netlink.AttributeDecoder) error {
					for ad.Next() {
						var e found
						ad.Nested(e.read)
						all = append(all, e)
					}
					return nil
				})
			}
		}
		if err := ad.Err(); err != nil {
			return nil, fmt.Errorf("nftables, table %s: reading the set %s: %w", l.table, set, err)
		}
	}
	return all, nil
}

func (e *found) read(ad *netlink.AttributeDecoder) error {
	value := func(to *[]byte) func(*netlink.AttributeDecoder) error {
		return func(ad *netlink.AttributeDecoder) error {
			for ad.Next() {
				if ad.Type() == attrValue {
					*to = ad.Bytes()
				}
			}
			return nil
		}
	}
	for ad.Next() {
		switch ad.Type() {
		case attrKey:
			ad.Nested(value(&e.key))
		case attrData:
			ad.Nested(value(&e.data))
		case attrLeft:
			if b := ad.Bytes(); len(b) == 8 {
				e.left = time.Duration(binary.BigEndian.Uint64(b)) * time.Millisecond
			}
		case attrExpr:
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					if ad.Type() == attrExprData {
						ad.Nested(e.readCounter)
					}
				}
				return nil
			})
		}
	}
	return nil
}

func (e *found) readCounter(ad *netlink.AttributeDecoder) error {
	e.counted = &counted{}
	for ad.Next() {
		b := ad.Bytes()
		switch {
		case len(b) != 8:
		case ad.Type() == attrPackets:
			e.counted.packets = binary.BigEndian.Uint64(b)
		case ad.Type() == attrBytes:
			e.counted.bytes = binary.BigEndian.Uint64(b)
		}
	}
	return nil
}
