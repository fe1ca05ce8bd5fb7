package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/netfilter"
	"github.com/sampan-io/sampan/proxy"
)

// The traffic of frontends is counted by elements of sets, frontend . what, each with a counter.
// The first packet of a connection creates the elements of its frontend, so they exist only for
// frontends that are used; a packet without a frontend creates none. Later packets count at
// existing elements, by the address that their connection was made to: so packets of both
// directions are counted, even though their addresses are translated.

// what is a kind of counter. The first two are directions of conntrack.
type what byte

const (
	countIn      what = iota // IP_CT_DIR_ORIGINAL: packets to backends
	countOut                 // IP_CT_DIR_REPLY: packets from them, and the first packet of each connection
	countFirst               // the first packet of each connection
	countRefused             // connections without a backend
	countDenied              // connections from sources that may not connect
	whats                    // the number of kinds
)

// countsSize bounds the memory of counters: each used frontend has five, of about 200 bytes.
const countsSize = 1 << 20

func (f *family) counts() string { return "counts" + f.digit }

// Chains of type filter that together see each packet once: packets for this node, and packets that
// it sends or forwards.
const (
	tallyIn  = "tally-input"
	tallyOut = "tally-postrouting"
)

// word returns a number as the first byte of a register, which is how the direction of a packet is
// loaded.
func word(w what) []byte { return []byte{byte(w), 0, 0, 0} }

// count counts a first packet at the frontend that is loaded. If the set is full the rule ends.
func (f *family) count(all ...what) (exprs []expr.Any) {
	for _, w := range all {
		exprs = append(exprs,
			&expr.Immediate{Register: f.regTail(), Data: word(w)},
			&expr.Dynset{SetName: f.counts(), SrcRegKey: f.regFrontend(), Operation: unix.NFT_DYNSET_OP_UPDATE, Exprs: []expr.Any{&expr.Counter{}}})
	}
	return exprs
}

func (f *family) tally() string { return "tally" + f.digit }
func (f *family) empty() string { return "empty" + f.digit }

// addTally adds rules that count the packets of connections after the first one, which is not
// confirmed yet. They run for every packet of every connection of the host, so they end early for
// connections of others and for packets without data. Their cost is mostly that of loading
// instructions, so few packets get past the first rules.
func (b *batch) addTally(o Options) {
	const statusConfirmed, statusDNAT = 1 << 3, 1 << 5 // IPS_CONFIRMED, IPS_DST_NAT
	for _, chain := range []string{tallyIn, tallyOut} {
		b.addRule(chain, append(v4.carriesNothing(wordsWithTime), &expr.Verdict{Kind: expr.VerdictAccept})...)
		b.addRule(chain,
			&expr.Ct{Key: expr.CtKeySTATUS, Register: regBackend},
			&expr.Bitwise{SourceRegister: regBackend, DestRegister: regBackend, Len: 4, Mask: number(statusConfirmed | statusDNAT), Xor: number(0)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: regBackend, Data: number(statusConfirmed | statusDNAT)},
			&expr.Verdict{Kind: expr.VerdictAccept})
		if chain == tallyIn { // packets from this node to itself were counted when they were sent
			b.addRule(chain, append(isLoopback(expr.MetaKeyIIF), &expr.Verdict{Kind: expr.VerdictAccept})...)
		}
		for _, f := range families {
			b.addRule(chain, append(f.isFamily(), goTo(f.tally()))...)
		}
	}
	for _, f := range families {
		b.addRule(f.tally(), append(f.isShort(), &expr.Verdict{Kind: expr.VerdictJump, Chain: f.empty()})...)
		if o.logResets {
			b.addRule(f.empty(), append(f.isReset(), goTo(f.reset()))...)
			b.addResets(f)
		}
		for _, words := range emptyWords {
			b.addRule(f.empty(), append(f.carriesNothing(words), &expr.Verdict{Kind: expr.VerdictAccept})...)
		}
		frontend := f.regFrontend()
		count := func(frontend ...expr.Any) {
			b.addRule(f.tally(), append(frontend,
				f.loadProtocol(f.regFrontend()+f.words()),
				&expr.Ct{Key: expr.CtKeyPROTODST, Register: f.regFrontend() + f.words() + 1},
				&expr.Ct{Key: expr.CtKeyDIRECTION, Register: f.regTail()},
				isIn(f.counts(), f.regFrontend()),
				&expr.Verdict{Kind: expr.VerdictAccept})...)
		}
		address := &expr.Ct{Key: f.originalAddress, Register: frontend}
		for _, p := range f.of(o.ServiceCIDRs) { // where most frontends are
			count(append([]expr.Any{address}, f.inPrefix(frontend, regBackend, p, expr.CmpOpEq)...)...)
		}
		count(&expr.Immediate{Register: frontend, Data: make([]byte, f.bytes)})
		count(address)
	}
}

// The largest size of a TCP header in words, and its size with the timestamp option, which nearly
// all have.
const maxWords, wordsWithTime = 15, 8

// emptyWords are all header sizes, likely ones first: that of a SYN-ACK, and with and without
// timestamps.
var emptyWords = [...]uint32{10, wordsWithTime, 5, 6, 7, 9, 11, 12, 13, 14, maxWords}

// carriesNothing matches TCP packets without data whose header has so many words: packets that only
// acknowledge, open or close a connection. These are half of a stream's packets, and most of a
// short connection's. It does not match packets with IP options, with several extension headers, or
// resets.
func (f *family) carriesNothing(words uint32) (exprs []expr.Any) {
	const bytes, wordsBits = 4, 28
	if f == v4 {
		const header = 20
		exprs = append(inHeader(expr.PayloadBaseNetworkHeader, 0, 0xff00_ffff, 0x4500_0000+header+bytes*words), // version, words, length
			&expr.Payload{DestRegister: regBackend, Base: expr.PayloadBaseNetworkHeader, Offset: v4Protocol, Len: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: regBackend, Data: []byte{unix.IPPROTO_TCP}})
	} else {
		const lengthOffset = 4
		exprs = inHeader(expr.PayloadBaseNetworkHeader, lengthOffset, 0xffff_ff00, bytes*words<<16|unix.IPPROTO_TCP<<8) // length, next header
	}
	return append(exprs, inHeader(expr.PayloadBaseTransportHeader, tcpWordsOffset, 0xf000_0000|tcpReset, words<<wordsBits)...)
}

// isShort matches packets of the family that are no longer than the longest one without data.
func (f *family) isShort() []expr.Any {
	const bytes, header = 4, 20
	offset, longest := uint32(2), uint16(header+bytes*maxWords)
	if f == v6 { // its length excludes the header
		offset, longest = 4, bytes*maxWords
	}
	return []expr.Any{
		&expr.Payload{DestRegister: regBackend, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 2},
		&expr.Cmp{Op: expr.CmpOpLte, Register: regBackend, Data: binary.BigEndian.AppendUint16(nil, longest)},
	}
}

// A counted is a counter of the kernel.
type counted struct{ packets, bytes uint64 }

// A tally is the counters of a frontend. They are read one by one from sets that change in between:
// a missing counter keeps its value, and one that decreased was recreated by another program.
type tally struct {
	now, base [whats]counted
	in, out   uint64 // the totals returned last
}

// see records the counters that were read of a frontend.
func (t *tally) see(read *[whats]*counted) {
	for w, c := range read {
		if c == nil {
			continue
		}
		if now := t.now[w]; c.packets < now.packets || c.bytes < now.bytes {
			t.base[w].packets += now.packets
			t.base[w].bytes += now.bytes
		}
		t.now[w] = *c
	}
}

// total returns the sums for a frontend of the protocol.
func (t *tally) total(p corev1.Protocol) proxy.Tally {
	packets := func(w what) uint64 { return t.base[w].packets + t.now[w].packets }
	// Counters that were read one by one may be of different times: the result must not decrease.
	withoutFirst := func(w what, was uint64) uint64 {
		all, firsts := t.base[w].bytes+t.now[w].bytes, t.base[countFirst].bytes+t.now[countFirst].bytes
		return max(was, all-min(all, firsts))
	}
	t.out = withoutFirst(countOut, t.out)
	if p == corev1.ProtocolTCP { // its first packet has no data
		t.in = withoutFirst(countIn, t.in)
	} else {
		t.in = t.base[countIn].bytes + t.now[countIn].bytes
	}
	return proxy.Tally{Connections: packets(countFirst), In: t.in, Out: t.out, Refused: packets(countRefused), Denied: packets(countDenied)}
}

// Tallies implements [proxy.Kernel].
func (k *Kernel) Tallies(ctx context.Context) (map[proxy.Frontend]proxy.Tally, error) {
	read, err := k.readCounts(ctx)
	if err != nil {
		return nil, err
	}
	for d, r := range read {
		k.see(d, r)
	}
	all := make(map[proxy.Frontend]proxy.Tally, len(k.tallies))
	for d, t := range k.tallies {
		all[d] = t.total(d.Protocol)
	}
	return all, nil
}

func (k *Kernel) see(d proxy.Frontend, read *[whats]*counted) {
	t := k.tallies[d]
	if t == nil {
		t = &tally{}
		k.tallies[d] = t
	}
	t.see(read)
}

// manyFrontends is the number of frontends from which all counters are read at once instead of one
// by one.
const manyFrontends = 32

// Forget implements [proxy.Kernel].
func (k *Kernel) Forget(ctx context.Context, frontends []proxy.Frontend) (map[proxy.Frontend]proxy.Tally, error) {
	read := k.readCounts
	if len(frontends) < manyFrontends {
		read = func(context.Context) (map[proxy.Frontend]*[whats]*counted, error) { return k.readCountsOf(frontends) }
	}
	found, err := read(ctx)
	if err != nil {
		return nil, err
	}
	last := map[proxy.Frontend]proxy.Tally{}
	b := newBatch(k.opts.Table)
	gone := map[string]*list{}
	for _, d := range frontends {
		if r := found[d]; r != nil {
			k.see(d, r)
			for w, c := range r {
				if c != nil {
					listOf(gone, familyOf(d.Address).counts()).add(element{key: countKey(d, what(w))})
				}
			}
		}
		if t := k.tallies[d]; t != nil {
			last[d] = t.total(d.Protocol)
			delete(k.tallies, d)
		}
	}
	if len(gone) == 0 {
		return last, nil
	}
	for set, l := range gone {
		b.elements(set, true, l)
	}
	return last, k.send(b)
}

func countKey(d proxy.Frontend, w what) []byte {
	return append(appendFrontend(make([]byte, 0, 28), d), word(w)...)
}

// readCountsOf reads the counters of a few frontends.
func (k *Kernel) readCountsOf(frontends []proxy.Frontend) (map[proxy.Frontend]*[whats]*counted, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("opening nftables: %w", err)
	}
	defer c.Close()
	l := lookup{c, k.opts.Table}
	all := map[proxy.Frontend]*[whats]*counted{}
	for _, d := range frontends {
		for w := range whats {
			e, err := l.get(familyOf(d.Address).counts(), countKey(d, w))
			if err != nil {
				return nil, err
			}
			if e == nil || e.counted == nil {
				continue
			}
			if all[d] == nil {
				all[d] = &[whats]*counted{}
			}
			all[d][w] = e.counted
		}
	}
	return all, nil
}

// readCounts reads all counters. If one is read twice because the set grew meanwhile, the higher
// value is used.
func (k *Kernel) readCounts(ctx context.Context) (map[proxy.Frontend]*[whats]*counted, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("opening nftables: %w", err)
	}
	defer c.Close()
	all := map[proxy.Frontend]*[whats]*counted{}
	for _, f := range families {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		elements, err := lookup{c, k.opts.Table}.all(f.counts())
		if err != nil {
			return nil, err
		}
		for _, e := range elements {
			d, w, ok := f.readCountKey(e.key)
			if !ok || e.counted == nil {
				continue
			}
			if all[d] == nil {
				all[d] = &[whats]*counted{}
			}
			if was := all[d][w]; was == nil || was.packets < e.counted.packets {
				all[d][w] = e.counted
			}
		}
	}
	return all, nil
}

func (f *family) readCountKey(key []byte) (d proxy.Frontend, w what, ok bool) {
	if len(key) != int(f.bytes)+12 || key[f.bytes+8] >= byte(whats) {
		return d, 0, false
	}
	d.Address, _ = netip.AddrFromSlice(key[:f.bytes])
	d.Protocol = protocolName(key[f.bytes])
	d.Port = binary.BigEndian.Uint16(key[f.bytes+4:])
	return d, what(key[f.bytes+8]), true
}

// all returns the elements of a set, or none if the set does not exist.
func (l lookup) all(set string) ([]found, error) {
	attrs, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: attrTable, Data: append([]byte(l.table), 0)}, {Type: attrSet, Data: append([]byte(set), 0)},
	})
	if err != nil {
		return nil, err
	}
	messages, err := l.conn.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETSETELEM, Flags: netlink.Request | netlink.Dump},
		Data:   append([]byte{unix.NFPROTO_INET, 0, 0, 0}, attrs...),
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, netfilter.Hint(fmt.Errorf("nftables, table %s: reading the set %s: %w", l.table, set, err))
	}
	return l.read(set, messages)
}
