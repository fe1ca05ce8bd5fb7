package userspace

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// canImpersonate reports whether a connection to a backend can come from the address of
// its client.
func (f *Forwarder) canImpersonate(client, backend netip.Addr) bool {
	// A pod throws away what comes from itself, and from loopback.
	if client == backend || client.IsLoopback() {
		return false
	}
	if f.opts.Reachable == nil {
		return true
	}
	// Two pods of one node answer each other by their bridge, past this node's routes.
	return f.opts.Reachable(backend) && !f.opts.Reachable(client)
}

// impersonate makes a socket come from an address that is not of this node.
func impersonate(fd int, client netip.Addr) unix.Errno {
	level, option := unix.SOL_IP, unix.IP_TRANSPARENT
	if client.Is6() {
		level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	errno := set(fd, level, option, 1)
	if errno == 0 {
		// The port is chosen when it is known where the connection goes: there are more.
		errno = set(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	}
	if errno == 0 {
		a := addressOf(netip.AddrPortFrom(client, 0))
		errno = bind(fd, &a)
	}
	return errno
}

// Answers to a connection that comes from somebody else's address are addressed to
// that, and would be forwarded to there. So packets for which there is a transparent socket
// get answerMark, and what has that is for this node whatever its address says. In the
// words of the usual programs, for IPv4:
//
//	nft add table inet sampan-transparent
//	nft add chain inet sampan-transparent answers '{ type filter hook prerouting priority mangle; }'
//	nft add rule inet sampan-transparent answers socket transparent 1 socket wildcard 0 meta mark set 0x73616d70
//	ip rule add fwmark 0x73616d70 lookup 7361 priority 7361
//	ip route add local 0.0.0.0/0 dev lo table 7361
//
// That is all: nothing else on the node has this mark, table or priority.
const (
	transparentTable = "sampan-transparent"
	answerMark       = 0x73616d70 // "samp"
	answerRoutes     = 7361       // table of routes, and priority of the rule that leads to it
)

// routes bring the answers to transparent connections back to this node.
type routes struct{ families []int }

// makeRoutes makes the routes for the families of the forwarder, whatever an earlier process
// left of them. It needs CAP_NET_ADMIN.
func (f *Forwarder) makeRoutes() (*routes, error) {
	r := &routes{}
	if f.opts.Address.IsValid() {
		r.families = append(r.families, netlink.FAMILY_V4)
	}
	if f.opts.Address6.IsValid() {
		r.families = append(r.families, netlink.FAMILY_V6)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	for _, family := range r.families {
		route := answerRoute(family)
		route.LinkIndex = lo.Attrs().Index
		err := netlink.RouteReplace(route)
		if err == nil {
			err = netlink.RuleAdd(answerRule(family))
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, errors.Join(err, r.remove())
		}
	}
	c, err := nftables.New()
	if err != nil {
		return nil, errors.Join(err, r.remove())
	}
	table := dropTable(c)
	c.AddTable(table)
	chain := c.AddChain(&nftables.Chain{
		Name: "answers", Table: table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle,
	})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Socket{Key: expr.SocketKeyTransparent, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{1}},
		&expr.Socket{Key: expr.SocketKeyWildcard, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0}},
		&expr.Immediate{Register: 1, Data: binaryutil.NativeEndian.PutUint32(answerMark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}})
	if err := c.Flush(); err != nil {
		return nil, errors.Join(fmt.Errorf("making table %s: %w", transparentTable, err), r.remove())
	}
	return r, nil
}

// remove removes all that makeRoutes made.
func (r *routes) remove() error { return removeRoutes(r.families) }

// RemoveTransparent removes what transparent pools of a process need that was killed: a
// table of rules and a policy route. It is no error if there is nothing. It needs
// CAP_NET_ADMIN. A forwarder that ends does so itself.
func RemoveTransparent() error { return removeRoutes([]int{netlink.FAMILY_V4, netlink.FAMILY_V6}) }

func removeRoutes(families []int) error {
	var errs []error
	for _, family := range families {
		for _, err := range []error{netlink.RuleDel(answerRule(family)), netlink.RouteDel(answerRoute(family))} {
			// ESRCH and ENOENT: there was none. EAFNOSUPPORT: nor can there be.
			if err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EAFNOSUPPORT) {
				errs = append(errs, fmt.Errorf("removing the policy route of transparent connections: %w", err))
			}
		}
	}
	c, err := nftables.New()
	if err == nil {
		dropTable(c)
		err = c.Flush()
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("removing table %s: %w", transparentTable, err))
	}
	return errors.Join(errs...)
}

// dropTable deletes the table whether it is there or not.
func dropTable(c *nftables.Conn) *nftables.Table {
	table := &nftables.Table{Name: transparentTable, Family: nftables.TableFamilyINet}
	c.AddTable(table)
	c.DelTable(table)
	return table
}

func answerRule(family int) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Mark, r.Table, r.Priority = family, answerMark, answerRoutes, answerRoutes
	return r
}

func answerRoute(family int) *netlink.Route {
	everywhere := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	if family == netlink.FAMILY_V6 {
		everywhere = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return &netlink.Route{Family: family, Dst: everywhere, Table: answerRoutes, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST}
}
