package nft

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/proxy"
)

// A family is the difference between IPv4 and IPv6. Each has separate maps, sets and chains, whose
// names end in its digit.
type family struct {
	digit       string
	number      uint32 // NFPROTO_…
	bytes       uint32 // length of an address
	source      uint32 // offset of the source address in the header
	destination uint32
	address     setType
	loopback    netip.Prefix

	originalAddress expr.CtKey // the destination of the first packet of a connection

	version uint32 // the first four bits of a header
}

var (
	v4 = &family{
		digit: "4", number: unix.NFPROTO_IPV4, bytes: 4, source: 12, destination: 16,
		address: setType{7, 4}, loopback: netip.MustParsePrefix("127.0.0.0/8"),
		originalAddress: 20, // NFT_CT_DST_IP
		version:         4,
	}
	v6 = &family{
		digit: "6", number: unix.NFPROTO_IPV6, bytes: 16, source: 8, destination: 24,
		address: setType{8, 16}, loopback: netip.MustParsePrefix("::1/128"),
		originalAddress: 22, // NFT_CT_DST_IP6
		version:         6,
	}
	families = [2]*family{v4, v6}
)

// has reports whether any of the prefixes is of the family.
func (f *family) has(prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return familyOf(p.Addr()) == f })
}

// of returns the prefixes that are of the family.
func (f *family) of(prefixes []netip.Prefix) (all []netip.Prefix) {
	for _, p := range prefixes {
		if familyOf(p.Addr()) == f {
			all = append(all, p)
		}
	}
	return all
}

func familyOf(a netip.Addr) *family {
	if a.Is4() {
		return v4
	}
	return v6
}

// A setType is a type of keys or data. Its number is for programs that list sets; the kernel uses
// only its length.
type setType struct{ number, bytes uint32 }

// Types of both families, as in datatype.h of nftables.
var (
	typeProtocol = setType{12, 4}
	typePort     = setType{13, 4}
	typeNumber   = setType{19, 4} // in the machine's byte order: the type of marks
	typeWhat     = setType{27, 4} // the type of directions
	typeVerdict  = setType{0xffffff00, 0}
)

// concat returns the concatenation of types, each of which fills whole registers.
func concat(types ...setType) (all setType) {
	const bitsPerType = 6
	for _, t := range types {
		for n := t.number; n > 0; n >>= bitsPerType {
			all.number <<= bitsPerType
		}
		all.number |= t.number
		all.bytes += t.bytes
	}
	return all
}

// A set is a set or a map of the table.
type set struct {
	name      string
	flags     uint32
	key, data setType
	size      uint32 // 0 means no limit
}

// affinitySize bounds the memory that clients with many addresses can use (about 150 bytes per
// element): when the map is full, new clients get no affinity.
const affinitySize = 1 << 18

// Names of sets and maps of a family.
func (f *family) frontends() string { return "frontends" + f.digit }
func (f *family) endpoints() string { return "endpoints" + f.digit }
func (f *family) affinity() string  { return "affinity" + f.digit }
func (f *family) hairpin() string   { return "hairpin" + f.digit }
func (f *family) pods() string      { return "pods" + f.digit }
func (f *family) nodePorts() string { return "node-port-addresses" + f.digit }
func (f *family) slots() string     { return "slots" + f.digit }

// classes is the map of both families from the number of a class to its chain.
const classes = "classes"

// sets returns the sets of a family that exist independently of rules.
func (f *family) sets() []set {
	frontend := concat(f.address, typeProtocol, typePort)
	return []set{
		{name: f.frontends(), flags: unix.NFT_SET_MAP, key: frontend, data: typeNumber},
		{name: f.endpoints(), flags: unix.NFT_SET_MAP, key: concat(frontend, typeNumber), data: concat(f.address, typePort)},
		{name: f.slots(), flags: unix.NFT_SET_MAP, key: concat(frontend, typeNumber), data: typeNumber},
		{name: f.affinity(), flags: unix.NFT_SET_MAP | unix.NFT_SET_EVAL | unix.NFT_SET_TIMEOUT, key: concat(frontend, f.address), data: typeNumber, size: affinitySize},
		{name: f.counts(), flags: unix.NFT_SET_EVAL, key: concat(frontend, typeWhat), size: countsSize},
		{name: f.hairpin(), key: concat(f.address, f.address)},
		{name: f.pods(), flags: unix.NFT_SET_INTERVAL, key: f.address},
		{name: f.nodePorts(), flags: unix.NFT_SET_INTERVAL, key: f.address},
	}
}

// Registers have 32 bits; the parts of a concatenation are in consecutive ones. They are laid out
// so that every key is contiguous: backend, frontend, and then the number of a backend or the
// address of the client.
const (
	regVerdict = 0  // NFT_REG_VERDICT
	regBackend = 8  // NFT_REG32_00
	regMark    = 9  // used before a backend is loaded
	regName    = 23 // NFT_REG32_15: the name of a backend
)

func (f *family) words() uint32       { return f.bytes / 4 }
func (f *family) regFrontend() uint32 { return regBackend + f.words() + 1 }
func (f *family) regTail() uint32     { return f.regFrontend() + f.words() + 2 }

// loadFrontend loads the frontend that a packet came to; that of a node port has the zero address.
func (f *family) loadFrontend(node bool) []expr.Any {
	var address expr.Any = &expr.Payload{DestRegister: f.regFrontend(), Base: expr.PayloadBaseNetworkHeader, Offset: f.destination, Len: f.bytes}
	if node {
		address = &expr.Immediate{Register: f.regFrontend(), Data: make([]byte, f.bytes)}
	}
	const portOffset, portLen = 2, 2 // of the destination, in the headers of TCP, UDP and SCTP
	return []expr.Any{
		address,
		f.loadProtocol(f.regFrontend() + f.words()),
		&expr.Payload{DestRegister: f.regFrontend() + f.words() + 1, Base: expr.PayloadBaseTransportHeader, Offset: portOffset, Len: portLen},
	}
}

// loadOriginalFrontend loads the frontend that the connection of a packet came to, from its first
// packet.
func (f *family) loadOriginalFrontend(node bool) []expr.Any {
	const original = 0 // IP_CT_DIR_ORIGINAL
	var address expr.Any = &expr.Ct{Key: f.originalAddress, Direction: original, Register: f.regFrontend()}
	if node {
		address = &expr.Immediate{Register: f.regFrontend(), Data: make([]byte, f.bytes)}
	}
	return []expr.Any{
		address,
		f.loadProtocol(f.regFrontend() + f.words()),
		&expr.Ct{Key: expr.CtKeyPROTODST, Direction: original, Register: f.regFrontend() + f.words() + 1},
	}
}

// cameTo matches connections to an address of a network.
func (f *family) cameTo(p netip.Prefix) []expr.Any {
	return append([]expr.Any{&expr.Ct{Key: f.originalAddress, Register: regBackend}}, f.inPrefix(regBackend, regBackend, p, expr.CmpOpEq)...)
}

// v4Protocol is the offset of the protocol in an IPv4 header.
const v4Protocol = 9

// Offsets of the next header in an IPv6 header and of the four bytes with data offset and flags in
// a TCP header, and the mask of the reset flag in these.
const (
	v6NextHeader   = 6
	tcpWordsOffset = 12
	tcpReset       = 0x0004_0000
)

// loadProtocol loads the protocol of a packet: from its header if possible, which is faster than
// its metadata.
func (f *family) loadProtocol(reg uint32) expr.Any {
	if f == v4 { // has it at a fixed offset
		return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: v4Protocol, Len: 1}
	}
	return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg}
}

// loadSource loads the address of the client.
func (f *family) loadSource(reg uint32) expr.Any {
	return &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: f.source, Len: f.bytes}
}

func (f *family) isFamily() []expr.Any {
	const version, bits = 0xf000_0000, 28
	return inHeader(expr.PayloadBaseNetworkHeader, 0, version, f.version<<bits)
}

// inHeader compares bits of four bytes of a packet's header.
func inHeader(base expr.PayloadBase, offset, mask, is uint32) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: regBackend, Base: base, Offset: offset, Len: 4},
		&expr.Bitwise{SourceRegister: regBackend, DestRegister: regBackend, Len: 4, Mask: binary.BigEndian.AppendUint32(nil, mask), Xor: number(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: regBackend, Data: binary.BigEndian.AppendUint32(nil, is)},
	}
}

// inPrefix compares an address in a register with a network. It overwrites the register scratch,
// which may be the same.
func (f *family) inPrefix(reg, scratch uint32, p netip.Prefix, op expr.CmpOp) []expr.Any {
	mask := make([]byte, f.bytes)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		&expr.Bitwise{SourceRegister: reg, DestRegister: scratch, Len: f.bytes, Mask: mask, Xor: make([]byte, f.bytes)},
		&expr.Cmp{Op: op, Register: scratch, Data: p.Masked().Addr().AsSlice()},
	}
}

func find(in string, key, to uint32) expr.Any {
	return &expr.Lookup{SourceRegister: key, DestRegister: to, IsDestRegSet: true, SetName: in}
}

// findNumber looks up a number that is the key of another lookup, and loads it into registers. The
// kernel could use the register that the first lookup writes, but the program nft (1.0.6 at least)
// aborts when it lists such a rule. So the number goes through the mark of the packet, which is
// restored before any other rule runs.
func findNumber(in string, key uint32, to ...uint32) []expr.Any {
	all := []expr.Any{
		find(in, key, regBackend),
		&expr.Meta{Key: expr.MetaKeyMARK, Register: regMark},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: regBackend, SourceRegister: true},
	}
	for _, reg := range to {
		all = append(all, &expr.Meta{Key: expr.MetaKeyMARK, Register: reg})
	}
	return append(all, &expr.Meta{Key: expr.MetaKeyMARK, Register: regMark, SourceRegister: true})
}

func isIn(set string, key uint32) expr.Any { return &expr.Lookup{SourceRegister: key, SetName: set} }

func isNotIn(set string, key uint32) expr.Any {
	return &expr.Lookup{SourceRegister: key, SetName: set, Invert: true}
}

// isLocal matches an address of this node, which f selects; f's register is used to compare.
func isLocal(f *expr.Fib) []expr.Any {
	f.ResultADDRTYPE = true
	if f.Register == 0 {
		f.Register = regBackend
	}
	return []expr.Any{f, &expr.Cmp{Op: expr.CmpOpEq, Register: f.Register, Data: number(unix.RTN_LOCAL)}}
}

// isLoopback matches packets that come from this node itself (IIF) or go to it (OIF).
func isLoopback(key expr.MetaKey) []expr.Any {
	const lo = 1 // has this index in every network namespace
	return []expr.Any{&expr.Meta{Key: key, Register: regBackend}, &expr.Cmp{Op: expr.CmpOpEq, Register: regBackend, Data: number(lo)}}
}

func goTo(chain string) *expr.Verdict { return &expr.Verdict{Kind: expr.VerdictGoto, Chain: chain} }

// Keys and data of elements.

func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func appendPort(to []byte, p uint16) []byte { return append(to, byte(p>>8), byte(p), 0, 0) }

func appendBackend(to []byte, a netip.AddrPort) []byte {
	return appendPort(append(to, a.Addr().AsSlice()...), a.Port())
}

func appendFrontend(to []byte, d proxy.Frontend) []byte {
	return appendPort(append(append(to, d.Address.AsSlice()...), protocolNumbers[d.Protocol], 0, 0, 0), d.Port)
}

var protocolNumbers = map[corev1.Protocol]byte{
	corev1.ProtocolTCP:  unix.IPPROTO_TCP,
	corev1.ProtocolUDP:  unix.IPPROTO_UDP,
	corev1.ProtocolSCTP: unix.IPPROTO_SCTP,
}

func protocolName(number byte) corev1.Protocol {
	for name, n := range protocolNumbers {
		if n == number {
			return name
		}
	}
	return ""
}
