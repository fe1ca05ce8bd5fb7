package nft

import (
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Chains that exist independently of rules.
const (
	prerouting  = "prerouting"
	output      = "output"
	postrouting = "postrouting"
	refuse      = "refuse"
)

func (f *family) services() string { return "services" + f.digit }
func (f *family) cluster() string  { return "cluster" + f.digit }
func (f *family) leave() string    { return "leave" + f.digit }
func (f *family) foreign() string  { return "foreign" + f.digit }
func (f *family) local() string    { return "local" + f.digit }

// hooks are the base chains, with the priorities that are usual for their types.
var hooks = map[string]*hook{
	prerouting:  {"nat", unix.NF_INET_PRE_ROUTING, -100},
	output:      {"nat", unix.NF_INET_LOCAL_OUT, -100},
	postrouting: {"nat", unix.NF_INET_POST_ROUTING, 100},
	tallyIn:     {"filter", unix.NF_INET_LOCAL_IN, afterNAT},
	tallyOut:    {"filter", unix.NF_INET_POST_ROUTING, afterNAT},
}

// afterNAT is a priority: addresses have been translated.
const afterNAT = 110

func plainChains() []string {
	names := []string{refuse}
	for _, f := range families {
		names = append(names, f.services(), f.cluster(), f.leave(), f.foreign(), f.local(), f.tally(), f.empty(), f.reset())
	}
	return names
}

func staticSets() []set {
	return append(slices.Concat(v4.sets(), v6.sets()),
		set{name: classes, flags: unix.NFT_SET_MAP, key: typeNumber, data: typeVerdict})
}

// addStatic adds everything to a table that does not depend on rules; existing chains must be
// empty.
func (b *batch) addStatic(o Options) {
	for _, name := range plainChains() {
		b.addChain(name, nil)
	}
	for _, s := range staticSets() {
		b.addSet(s)
	}
	for _, name := range []string{prerouting, output, postrouting, tallyIn, tallyOut} {
		b.addChain(name, hooks[name])
	}
	b.addRefusal()
	b.addTally(o)
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
	// Answers to packets that this node sends to itself come back in any case.
	b.addRule(postrouting, append(isLoopback(expr.MetaKeyOIF), &expr.Verdict{Kind: expr.VerdictReturn})...)
	for _, f := range families {
		b.addRule(postrouting, append(f.isFamily(), &expr.Verdict{Kind: expr.VerdictJump, Chain: f.leave()})...)
	}
}

// addRefusal adds the chain that refuses connections. A refused packet makes no conntrack entry, so
// the next one is again a first packet.
func (b *batch) addRefusal() {
	b.addRule(refuse,
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: regBackend},
		&expr.Cmp{Op: expr.CmpOpEq, Register: regBackend, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Reject{Type: unix.NFT_REJECT_TCP_RST})
	b.addRule(refuse, &expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH})
}

// masquerade replaces the source address, and the source port by a random one, to avoid conflicts
// between connections that begin at the same time.
func masquerade() expr.Any { return &expr.Masq{FullyRandom: true} }

// lookups is the number of times that a frontend is looked up before a packet is taken to have
// none. Before Linux 6.17 a packet during a change may find neither the removed element nor its
// replacement.
const lookups = 2

// addServices adds the chain that finds the frontend of a first packet: first in the ServiceCIDRs,
// where most are, then among node ports, then at other addresses.
func (b *batch) addServices(f *family, o Options) {
	chain := f.services()
	atAddress := slices.Concat(f.loadFrontend(false), findNumber(f.frontends(), f.regFrontend(), regBackend), []expr.Any{find(classes, regBackend, regVerdict)})
	for _, p := range f.of(o.ServiceCIDRs) {
		load := &expr.Payload{DestRegister: regBackend, Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.bytes}
		b.addRule(chain, slices.Concat([]expr.Any{load}, f.inPrefix(regBackend, regBackend, p, expr.CmpOpEq), []expr.Any{goTo(f.cluster())})...)
	}
	for range lookups {
		b.addRule(f.cluster(), atAddress...)
	}
	b.addRule(f.cluster(), goTo(refuse))
	// Few packets are for node ports, so the fast check of the port comes before slower ones.
	reg := f.regFrontend()
	destination := &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.bytes}
	rule := slices.Concat(
		f.loadFrontend(true),
		findNumber(f.frontends(), reg, regBackend),
		isLocal(&expr.Fib{Register: reg, FlagDADDR: true}),
		[]expr.Any{destination}, f.inPrefix(reg, reg, f.loopback, expr.CmpOpNeq))
	if f.has(o.NodePortAddresses) {
		rule = append(rule, destination, isIn(f.nodePorts(), reg))
	}
	for range lookups {
		b.addRule(chain, append(rule, find(classes, regBackend, regVerdict))...)
		b.addRule(chain, atAddress...)
	}
}

// addLeave adds the chains that decide whose source address is replaced, according to the class of
// the frontend. Frontends are looked up in the same order as when the packet came in.
func (b *batch) addLeave(f *family, o Options) {
	do := map[leave]expr.Any{leaveEverybody: masquerade(), leaveForeign: goTo(f.foreign()), leaveLocal: goTo(f.local())}
	at := func(start []expr.Any, node bool, l leave) {
		b.addRule(f.leave(), slices.Concat(start, f.loadOriginalFrontend(node), []expr.Any{
			find(f.frontends(), f.regFrontend(), regBackend),
			&expr.Bitwise{SourceRegister: regBackend, DestRegister: regBackend, Len: 4, Mask: number(leaveMask), Xor: number(0)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: regBackend, Data: number(l.number())},
			do[l],
		})...)
	}
	for _, p := range f.of(o.ServiceCIDRs) {
		at(f.cameTo(p), false, leaveForeign)
	}
	for _, node := range []bool{true, false} {
		for _, l := range []leave{leaveEverybody, leaveForeign, leaveLocal} {
			at(nil, node, l)
		}
	}
	// A pod that reaches itself: it would drop packets with its own address as the source.
	for _, chain := range []string{f.leave(), f.foreign(), f.local()} {
		b.addRule(chain,
			f.loadSource(regBackend),
			&expr.Payload{DestRegister: regBackend + f.words(), Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.bytes},
			isIn(f.hairpin(), regBackend),
			masquerade())
	}
	if f.has(o.Pods) {
		b.addRule(f.foreign(), f.loadSource(regBackend), isNotIn(f.pods(), regBackend), masquerade())
	}
	b.addRule(f.local(), append(isLocal(&expr.Fib{FlagSADDR: true}), masquerade())...)
}
