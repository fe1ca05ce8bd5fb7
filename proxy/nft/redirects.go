package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/proxy"
)

// RedirectOptions configures [Redirects].
type RedirectOptions struct {
	// Table is the name of the table; it is required.
	Table string

	// ServiceCIDR is the network from which cluster IPs come. What is sent there
	// and has no redirect is refused. The zero Prefix means that nothing is.
	ServiceCIDR netip.Prefix
}

// Redirects implements [proxy.Rules] in the network namespace of the process. It
// needs CAP_NET_ADMIN.
type Redirects struct {
	opts  RedirectOptions
	table *nftables.Table
	maps  map[mapKey]*nftables.Set
}

// There is a map for each protocol, and for addresses and node ports.
type mapKey struct {
	protocol corev1.Protocol
	node     bool
}

var protocols = []struct {
	name   corev1.Protocol
	number byte
	label  string
}{
	{corev1.ProtocolTCP, unix.IPPROTO_TCP, "tcp"},
	{corev1.ProtocolUDP, unix.IPPROTO_UDP, "udp"},
}

// The library sends what it is given as one netlink message per call; an
// attribute has at most 64 KiB, and an element takes less than 100 bytes.
const chunk = 500

// A batch is one write to the socket, so its buffer bounds the size of a change.
const socketBuffer = 16 << 20

// NewRedirects returns rules that are not in the kernel yet.
func NewRedirects(o RedirectOptions) (*Redirects, error) {
	if o.Table == "" {
		return nil, errors.New("nft: RedirectOptions.Table is empty")
	}
	return &Redirects{opts: o, table: &nftables.Table{Name: o.Table, Family: nftables.TableFamilyIPv4}}, nil
}

// Replace implements [proxy.Rules].
func (r *Redirects) Replace(all []proxy.Redirect) error {
	c, err := connect()
	if err != nil {
		return err
	}
	// Adding first makes the deletion valid whether the table was there or not;
	// the whole batch is one transaction, so there is no moment without rules.
	c.AddTable(r.table)
	c.DelTable(r.table)
	c.AddTable(r.table)
	if err := r.addMaps(c); err != nil {
		return err
	}
	r.addChains(c)
	if err := r.elements(all, c.SetAddElements); err != nil {
		return err
	}
	return flush(c, "table "+r.opts.Table)
}

// Update implements [proxy.Rules].
func (r *Redirects) Update(remove, add []proxy.Redirect) error {
	c, err := connect()
	if err != nil {
		return err
	}
	if err := r.elements(remove, c.SetDeleteElements); err != nil {
		return err
	}
	if err := r.elements(add, c.SetAddElements); err != nil {
		return err
	}
	return flush(c, "table "+r.opts.Table)
}

// Close implements [proxy.Rules].
func (r *Redirects) Close() error { return Remove(r.opts.Table) }

func connect() (*nftables.Conn, error) {
	c, err := nftables.New(nftables.WithSockOptions(
		func(s *netlink.Conn) error { return s.SetWriteBuffer(socketBuffer) },
		func(s *netlink.Conn) error { return s.SetReadBuffer(socketBuffer) },
	))
	if err != nil {
		return nil, fmt.Errorf("opening nftables: %w", err)
	}
	return c, nil
}

func flush(c *nftables.Conn, what string) error {
	err := c.Flush()
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("nftables, %s: %w; this needs root (CAP_NET_ADMIN)", what, err)
	case err != nil:
		return fmt.Errorf("nftables, %s: %w", what, err)
	}
	return nil
}

func (r *Redirects) addMaps(c *nftables.Conn) error {
	r.maps = map[mapKey]*nftables.Set{}
	to := nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService)
	for _, p := range protocols {
		services := &nftables.Set{
			Table: r.table, Name: "services-" + p.label, IsMap: true, Concatenation: true,
			KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetService), DataType: to,
		}
		nodePorts := &nftables.Set{
			Table: r.table, Name: "node-ports-" + p.label, IsMap: true,
			KeyType: nftables.TypeInetService, DataType: to,
		}
		r.maps[mapKey{p.name, false}], r.maps[mapKey{p.name, true}] = services, nodePorts
		for _, s := range []*nftables.Set{services, nodePorts} {
			if err := c.AddSet(s, nil); err != nil {
				return fmt.Errorf("nftables, map %s: %w", s.Name, err)
			}
		}
	}
	return nil
}

func (r *Redirects) addChains(c *nftables.Conn) {
	nat := func(name string, hook *nftables.ChainHook) {
		chain := c.AddChain(&nftables.Chain{
			Table: r.table, Name: name, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: nftables.ChainPriorityNATDest,
		})
		for _, p := range protocols {
			c.AddRule(&nftables.Rule{Table: r.table, Chain: chain, Exprs: r.serviceRule(p.name, p.number)})
			c.AddRule(&nftables.Rule{Table: r.table, Chain: chain, Exprs: r.nodePortRule(p.name, p.number)})
		}
	}
	nat("prerouting", nftables.ChainHookPrerouting)
	nat("output", nftables.ChainHookOutput)
	if !r.opts.ServiceCIDR.IsValid() {
		return
	}
	for name, hook := range map[string]*nftables.ChainHook{"refuse-forward": nftables.ChainHookForward, "refuse-output": nftables.ChainHookOutput} {
		chain := c.AddChain(&nftables.Chain{
			Table: r.table, Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter,
		})
		c.AddRule(&nftables.Rule{Table: r.table, Chain: chain, Exprs: refuseNetwork(r.opts.ServiceCIDR)})
	}
}

// 32-bit registers (NFT_REG32_00 and on): the fields of a concatenation lie in
// consecutive ones.
const (
	regKey  = 8
	regAddr = 12
	regPort = 13
)

// serviceRule is: meta l4proto P dnat to ip daddr . th dport map @services-P.
func (r *Redirects) serviceRule(p corev1.Protocol, number byte) []expr.Any {
	set := r.maps[mapKey{p, false}]
	return slices.Concat(
		isProtocol(number),
		[]expr.Any{
			&expr.Payload{DestRegister: regKey, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},      // ip daddr
			&expr.Payload{DestRegister: regKey + 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}, // dport
		},
		lookupAndNAT(set),
	)
}

// nodePortRule is: fib daddr type local meta l4proto P dnat to th dport map @node-ports-P.
func (r *Redirects) nodePortRule(p corev1.Protocol, number byte) []expr.Any {
	set := r.maps[mapKey{p, true}]
	return slices.Concat(
		[]expr.Any{
			&expr.Fib{Register: regKey, FlagDADDR: true, ResultADDRTYPE: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: regKey, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
		},
		isProtocol(number),
		[]expr.Any{&expr.Payload{DestRegister: regKey, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}},
		lookupAndNAT(set),
	)
}

func isProtocol(number byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: regKey},
		&expr.Cmp{Op: expr.CmpOpEq, Register: regKey, Data: []byte{number}},
	}
}

func lookupAndNAT(set *nftables.Set) []expr.Any {
	return []expr.Any{
		&expr.Lookup{SourceRegister: regKey, DestRegister: regAddr, IsDestRegSet: true, SetName: set.Name, SetID: set.ID},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: regAddr, RegProtoMin: regPort},
	}
}

// refuseNetwork is: ip daddr NETWORK reject with icmp port-unreachable.
func refuseNetwork(network netip.Prefix) []expr.Any {
	addr, mask := network.Masked().Addr().As4(), maskOf(network.Bits())
	return []expr.Any{
		&expr.Payload{DestRegister: regKey, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		&expr.Bitwise{SourceRegister: regKey, DestRegister: regKey, Len: 4, Mask: mask[:], Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: regKey, Data: addr[:]},
		&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: 3}, // RFC 792: 3 is port unreachable
	}
}

func maskOf(bits int) [4]byte {
	m := ^uint32(0) << (32 - bits)
	if bits == 0 {
		m = 0
	}
	return [4]byte{byte(m >> 24), byte(m >> 16), byte(m >> 8), byte(m)}
}

// elements hands the elements of the redirects to f, map by map, in chunks.
func (r *Redirects) elements(redirects []proxy.Redirect, f func(*nftables.Set, []nftables.SetElement) error) error {
	by := map[mapKey][]nftables.SetElement{}
	for _, d := range redirects {
		k := mapKey{d.Protocol, !d.Address.IsValid()}
		if r.maps[k] == nil {
			return fmt.Errorf("nftables: protocol %q is not supported, want TCP or UDP", d.Protocol)
		}
		e := nftables.SetElement{Key: port(d.Port), Val: socket(d.To)}
		if !k.node {
			e.Key = socket(netip.AddrPortFrom(d.Address, d.Port))
		}
		by[k] = append(by[k], e)
	}
	for k, es := range by {
		for c := range slices.Chunk(es, chunk) {
			if err := f(r.maps[k], c); err != nil {
				return fmt.Errorf("nftables, map %s: %w", r.maps[k].Name, err)
			}
		}
	}
	return nil
}

func port(p uint16) []byte { return []byte{byte(p >> 8), byte(p)} }

// socket is an address and a port as a concatenation: each field fills 4 bytes.
func socket(a netip.AddrPort) []byte {
	ip := a.Addr().As4()
	return append(ip[:], byte(a.Port()>>8), byte(a.Port()), 0, 0)
}
