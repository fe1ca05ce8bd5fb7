package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// upTable makes our nftables table of a family. The targets of host ports stay as they are until
// [Network.Settle].
func (n *Network) upTable(f *family) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	n.addTable(c, f)
	return c.Flush()
}

// Names of the objects in the table.
const (
	portsAt       = "host-ports-at"       // protocol . address . port → address . port of a pod
	portsAnywhere = "host-ports-anywhere" // protocol . port → address . port of a pod, at every address of the host
	hairpins      = "hairpins"            // address . address of each pod with host ports
)

// addTable makes the table with its rules, in the transaction c: there is no moment without it.
// The entries of maps and sets stay.
//
//   - Packets of pods to other links than the bridge get the address of the host, so that the network
//     outside does not see theirs, except packets to pods of other nodes. Packets that stay on the host do not: they would get the address of
//     any link, and their connections would break when that link goes.
//   - Packets to a host port get the address of its pod (N8). Services come first: their rules have
//     the usual priority for that, and so have those of others who publish ports.
//   - A pod that reaches itself by a host port, and what comes from 127.0.0.1, gets the bridge's
//     address, or answers would not come back.
//   - What a pod sends to or from 127.0.0.1 and the like is dropped.
func (n *Network) addTable(c *nftables.Conn, f *family) {
	table := n.table(f)
	c.AddTable(table)
	c.FlushTable(table)
	for _, set := range n.portSets(f) {
		_ = c.AddSet(set, nil) // it has no elements that could be wrong
	}
	chain := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority nftables.ChainPriority) *nftables.Chain {
		return c.AddChain(&nftables.Chain{Name: name, Table: table, Type: kind, Hooknum: hook, Priority: &priority})
	}
	rule := func(chain *nftables.Chain, exprs ...[]expr.Any) {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: slices.Concat(exprs...)})
	}
	const afterServices = 5
	before := *nftables.ChainPriorityNATDest + afterServices
	ports := c.AddChain(&nftables.Chain{Name: "host-ports", Table: table})
	in := chain("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, before)
	out := chain("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, before)
	leave := chain("postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, *nftables.ChainPriorityNATSource)

	jump := []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: ports.Name}}
	rule(in, f.toThisHost(), jump)
	if f.is6() {
		// Packets from ::1 can't leave by a link: connections from it are refused like those to an unused port.
		rule(out, f.within(f.sourceAt(), f.loopback(), expr.CmpOpNeq), f.toThisHost(), jump)
	} else {
		rule(out, f.toThisHost(), jump)
	}
	for _, set := range n.portSets(f)[:2] {
		rule(ports, f.findPort(set))
	}
	masquerade := []expr.Any{&expr.Masq{}}
	rule(leave, f.within(f.sourceAt(), f.pods, expr.CmpOpEq), link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, n.opts.Bridge), link(expr.MetaKeyOIFNAME, expr.CmpOpNeq, "lo"), f.within(f.destinationAt(), f.cluster, expr.CmpOpNeq), masquerade)
	rule(leave, f.toItself(), masquerade)
	if f.is6() {
		return
	}
	rule(leave, f.within(f.sourceAt(), f.loopback(), expr.CmpOpEq), link(expr.MetaKeyOIFNAME, expr.CmpOpEq, n.opts.Bridge), masquerade)

	guard := chain("loopback", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, *nftables.ChainPriorityRaw)
	drop := []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
	for _, at := range []uint32{f.sourceAt(), f.destinationAt()} {
		rule(guard, link(expr.MetaKeyIIFNAME, expr.CmpOpEq, n.opts.Bridge), f.within(at, f.loopback(), expr.CmpOpEq), drop)
	}
}

// portSets are the maps and sets of a family, in the order in which host ports are looked for.
func (n *Network) portSets(f *family) []*nftables.Set {
	table, address := n.table(f), nftables.TypeIPAddr
	if f.is6() {
		address = nftables.TypeIP6Addr
	}
	pod := nftables.MustConcatSetType(address, nftables.TypeInetService)
	return []*nftables.Set{
		{
			Table: table, Name: portsAt, IsMap: true, Concatenation: true, DataType: pod,
			KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, address, nftables.TypeInetService),
		},
		{
			Table: table, Name: portsAnywhere, IsMap: true, Concatenation: true, DataType: pod,
			KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService),
		},
		{Table: table, Name: hairpins, Concatenation: true, KeyType: nftables.MustConcatSetType(address, address)},
	}
}

// Where addresses stand in the header of a packet.

func (f *family) sourceAt() uint32 {
	if f.is6() {
		return 8
	}
	return 12
}

func (f *family) destinationAt() uint32 { return f.sourceAt() + f.addressLen() }

func (f *family) addressLen() uint32 { return uint32(f.gateway.BitLen() / 8) }

// loopback is what no packet on a wire has.
func (f *family) loopback() netip.Prefix {
	if f.is6() {
		return netip.PrefixFrom(netip.IPv6Loopback(), 128)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
}

// Registers of four bytes. The first is how nft says that of the first four.
const (
	firstWord  = 1
	secondWord = 9
)

// word is the register of four bytes with this number, from 0.
func word(i uint32) uint32 {
	if i%4 == 0 {
		return firstWord + i/4 // nft says so, and lists no other
	}
	return secondWord - 1 + i
}

// within matches packets with an address in a network.
func (f *family) within(at uint32, p netip.Prefix, op expr.CmpOp) []expr.Any {
	network := ipNet(p.Masked())
	return []expr.Any{
		&expr.Payload{DestRegister: firstWord, Base: expr.PayloadBaseNetworkHeader, Offset: at, Len: f.addressLen()},
		&expr.Bitwise{SourceRegister: firstWord, DestRegister: firstWord, Len: f.addressLen(), Mask: network.Mask, Xor: make([]byte, f.addressLen())},
		&expr.Cmp{Op: op, Register: firstWord, Data: network.IP},
	}
}

// link matches packets by the name of a link.
func link(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: firstWord}, &expr.Cmp{Op: op, Register: firstWord, Data: linkData(name)}}
}

// toThisHost matches packets to an address of this host that is no Service's.
func (f *family) toThisHost() []expr.Any {
	var exprs []expr.Any
	if f.services.IsValid() {
		exprs = f.within(f.destinationAt(), f.services, expr.CmpOpNeq)
	}
	return append(exprs,
		&expr.Fib{Register: firstWord, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: firstWord, Data: binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)})
}

// findPort sends packets to the pod that a map has for them. Other packets pass.
func (f *family) findPort(in *nftables.Set) []expr.Any {
	words := f.addressLen() / 4
	exprs := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: word(0)}}
	at := uint32(1)
	if in.Name == portsAt {
		exprs = append(exprs, &expr.Payload{DestRegister: word(at), Base: expr.PayloadBaseNetworkHeader, Offset: f.destinationAt(), Len: f.addressLen()})
		at += words
	}
	family := uint32(unix.NFPROTO_IPV4)
	if f.is6() {
		family = unix.NFPROTO_IPV6
	}
	return append(exprs,
		&expr.Payload{DestRegister: word(at), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: word(0), DestRegister: word(0), IsDestRegSet: true, SetName: in.Name},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: word(0), RegProtoMin: word(words)})
}

// toItself matches packets of a pod with host ports that come back to it.
func (f *family) toItself() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: word(0), Base: expr.PayloadBaseNetworkHeader, Offset: f.sourceAt(), Len: f.addressLen()},
		&expr.Payload{DestRegister: word(f.addressLen() / 4), Base: expr.PayloadBaseNetworkHeader, Offset: f.destinationAt(), Len: f.addressLen()},
		&expr.Lookup{SourceRegister: word(0), SetName: hairpins},
	}
}

func (n *Network) table(f *family) *nftables.Table {
	t := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: n.opts.Table}
	if f.is6() {
		t.Family = nftables.TableFamilyIPv6
	}
	return t
}

// linkData is a link's name as the kernel compares it.
func linkData(name string) []byte {
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	return data
}

func (n *Network) downTable(f *family) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.AddTable(n.table(f)) // so that deleting it can't fail because it isn't there
	c.DelTable(n.table(f))
	err = c.Flush()
	if f.is6() && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)) {
		return nil // this kernel has no tables of IPv6, so it has none of ours
	}
	if err != nil {
		return fmt.Errorf("removing nftables table %s: %w", n.opts.Table, err)
	}
	return nil
}

// foreignDrops looks for chains of other programs that drop forwarded packets of a family by
// default, as Docker's do, and returns what to do about each. There may be one in either
// packet filter of the kernel, and a packet has to pass both.
func (n *Network) foreignDrops(f *family) []string {
	var out []string
	program, family := "iptables", "ip"
	if f.is6() {
		program, family = "ip6tables", "ip6"
	}
	report := func(where, program, chain string) {
		out = append(out, fmt.Sprintf("%s drops forwarded packets by default, so pods can't reach other hosts; "+
			"to let them: %s -I %s -i %s -j ACCEPT && %s -I %s -o %s -j ACCEPT",
			where, program, chain, n.opts.Bridge, program, chain, n.opts.Bridge))
	}
	if drops, err := legacyOf(f).forwardDrops(); err != nil {
		n.opts.Log.Warn("the policy of the legacy packet filter can't be read", "program", program, "err", err)
	} else if drops {
		report("chain FORWARD of the legacy "+program, program+"-legacy", "FORWARD")
	}
	c, err := nftables.New()
	if err != nil {
		return out
	}
	chains, err := c.ListChainsOfTableFamily(n.table(f).Family)
	if err != nil {
		return out
	}
	for _, chain := range chains {
		if chain.Hooknum != nil && *chain.Hooknum == *nftables.ChainHookForward && chain.Type == nftables.ChainTypeFilter &&
			chain.Policy != nil && *chain.Policy == nftables.ChainPolicyDrop {
			report(fmt.Sprintf("chain %s of the nftables table %s %s", chain.Name, family, chain.Table.Name), program, chain.Name)
			break
		}
	}
	return out
}
