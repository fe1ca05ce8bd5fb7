package nft

import (
	"hash/fnv"

	"github.com/google/nftables/expr"
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
