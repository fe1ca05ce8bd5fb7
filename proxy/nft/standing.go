package nft

import (
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Chains that stand whatever the rules.
const (
	prerouting  = "prerouting"
	output      = "output"
	postrouting = "postrouting"
	refuse      = "refuse"

	// nft of some versions can't list a chain by the name of a keyword.
	masquerade      = "masquerade-it"
	masqueradeLocal = "masquerade-local"
)

func (f *family) services() string { return "services" + f.digit }
func (f *family) leave() string    { return "leave" + f.digit }
func (f *family) foreign() string  { return "foreign" + f.digit }

// hooks are the chains at which packets begin: where others have theirs of the same kind, and
// those that count where conntrack knows the packet.
var hooks = map[string]*hook{
	prerouting:  {"nat", unix.NF_INET_PRE_ROUTING, -100},
	output:      {"nat", unix.NF_INET_LOCAL_OUT, -100},
	postrouting: {"nat", unix.NF_INET_POST_ROUTING, 100},
	tallyIn:     {"filter", unix.NF_INET_PRE_ROUTING, -150},
	tallyOut:    {"filter", unix.NF_INET_LOCAL_OUT, -150},
}

func plainChains() []string {
	names := []string{refuse, masquerade, masqueradeLocal}
	for _, f := range families {
		names = append(names, f.services(), f.leave(), f.foreign(), f.tally())
	}
	return names
}

func standingSets() []set {
	return append(slices.Concat(v4.sets(), v6.sets()),
		set{name: classes, flags: unix.NFT_SET_MAP, key: typeNumber, data: typeVerdict},
		set{name: leaving, flags: unix.NFT_SET_MAP, key: typeNumber, data: typeVerdict})
}

// addStanding adds to a table all that does not depend on rules; chains that were there are empty.
func (b *batch) addStanding(o Options) {
	for _, name := range plainChains() {
		b.addChain(name, nil)
	}
	for _, s := range standingSets() {
		b.addSet(s)
	}
	for _, name := range []string{prerouting, output, postrouting, tallyIn, tallyOut} {
		b.addChain(name, hooks[name])
	}
	b.addRefusal()
	b.addTally(o)
	b.addRule(masquerade, &expr.Masq{FullyRandom: true})
	b.addRule(masqueradeLocal, slices.Concat(isLocal(&expr.Fib{FlagSADDR: true}), []expr.Any{goTo(masquerade)})...)
	for _, f := range families {
		b.elements(f.pods(), false, intervalList(intervals(f, o.Pods)))
		b.elements(f.nodePorts(), false, intervalList(intervals(f, o.NodePortAddresses)))
		b.addServices(f, o)
		b.addLeave(f, o)
	}
	if o.Mark != 0 {
		b.addRule(output,
			&expr.Meta{Key: expr.MetaKeyMARK, Register: regBackend},
			&expr.Cmp{Op: expr.CmpOpEq, Register: regBackend, Data: number(o.Mark)},
			&expr.Verdict{Kind: expr.VerdictReturn})
	}
	for _, f := range families {
		for _, chain := range []string{prerouting, output} {
			b.addRule(chain, append(f.isFamily(), &expr.Verdict{Kind: expr.VerdictJump, Chain: f.services()})...)
		}
	}
	const statusDNAT = 1 << 5 // IPS_DST_NAT
	b.addRule(postrouting,
		&expr.Ct{Key: expr.CtKeySTATUS, Register: regBackend},
		&expr.Bitwise{SourceRegister: regBackend, DestRegister: regBackend, Len: 4, Mask: number(statusDNAT), Xor: number(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: regBackend, Data: number(0)},
		&expr.Verdict{Kind: expr.VerdictReturn})
	for _, f := range families {
		b.addRule(postrouting, append(f.isFamily(), &expr.Verdict{Kind: expr.VerdictJump, Chain: f.leave()})...)
	}
}

// addRefusal adds the chain that says no. What it drops is no connection, so the
// next packet is looked at as the first one again.
func (b *batch) addRefusal() {
	b.addRule(refuse,
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: regBackend},
		&expr.Cmp{Op: expr.CmpOpEq, Register: regBackend, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
	b.addRule(refuse, &expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH})
}

// addServices adds the chain that finds the door that a first packet came to.
func (b *batch) addServices(f *family, o Options) {
	chain := f.services()
	b.addRule(chain, slices.Concat(
		f.loadDoor(false),
		findNumber(f.doors(), f.regDoor(), regBackend),
		[]expr.Any{find(classes, regBackend, regVerdict)},
	)...)
	for _, p := range o.ServiceCIDRs {
		if familyOf(p.Addr()) == f {
			load := &expr.Payload{DestRegister: regBackend, Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.bytes}
			b.addRule(chain, slices.Concat([]expr.Any{load}, f.inPrefix(regBackend, p, expr.CmpOpEq), []expr.Any{goTo(refuse)})...)
		}
	}
	// Most packets are to no node port, so that is asked before what takes longer.
	reg := f.regDoor()
	destination := &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.bytes}
	rule := slices.Concat(
		f.loadDoor(true),
		findNumber(f.doors(), reg, regBackend),
		isLocal(&expr.Fib{Register: reg, FlagDADDR: true}),
		[]expr.Any{destination}, f.inPrefix(reg, f.loopback, expr.CmpOpNeq))
	if f.has(o.NodePortAddresses) {
		rule = append(rule, destination, isIn(f.nodePorts(), reg))
	}
	b.addRule(chain, append(rule, find(classes, regBackend, regVerdict))...)
}

// addLeave adds the chains that decide whose source address is replaced.
func (b *batch) addLeave(f *family, o Options) {
	// A pod that reaches itself: it would drop what has its own address as the source.
	b.addRule(f.leave(),
		f.loadSource(regBackend),
		&expr.Payload{DestRegister: regBackend + f.words(), Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.bytes},
		isIn(f.hairpin(), regBackend),
		goTo(masquerade))
	for _, node := range []bool{false, true} {
		b.addRule(f.leave(), slices.Concat(
			f.loadOriginalDoor(node),
			findNumber(f.doors(), f.regDoor(), regBackend),
			[]expr.Any{find(leaving, regBackend, regVerdict)},
		)...)
	}
	if f.has(o.Pods) {
		b.addRule(f.foreign(), f.loadSource(regBackend), isNotIn(f.pods(), regBackend), goTo(masquerade))
	}
}
