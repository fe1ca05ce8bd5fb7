package userspace

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// canImpersonate reports whether a connection to a backend can come from the address of its client.
func (f *Forwarder) canImpersonate(client, backend netip.Addr) bool {
	// A pod drops packets with its own or a loopback address as their source.
	if client == backend || client.IsLoopback() {
		return false
	}
	if f.opts.Reachable == nil {
		return true
	}
	// Two pods of one node answer each other over their bridge, not by this node's routes.
	return f.opts.Reachable(backend) && !f.opts.Reachable(client)
}

// impersonate makes a socket send from an address that is not of this node.
func impersonate(fd int, client netip.Addr) unix.Errno {
	level, option := unix.SOL_IP, unix.IP_TRANSPARENT
	if client.Is6() {
		level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
	}
	errno := set(fd, level, option, 1)
	if errno == 0 {
		// Choose the port when the destination is known: then there are more.
		errno = set(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	}
	if errno == 0 {
		a := addressOf(netip.AddrPortFrom(client, 0))
		errno = bind(fd, &a)
	}
	return errno
}

// Answers to a transparent connection are addressed to the client, and would be forwarded there. So
// packets for which there is a transparent socket get answerMark, and a route delivers packets with
// that mark to this node whatever their address. As commands, for IPv4:
//
//	nft add table inet TABLE
//	nft add chain inet TABLE sampan-answers '{ type filter hook prerouting priority mangle; }'
//	nft add rule inet TABLE sampan-answers socket transparent 1 socket wildcard 0 meta mark set 0x73616d70
//	ip rule add fwmark 0x73616d70 lookup 7361 priority 7361
//	ip route add local 0.0.0.0/0 dev lo table 7361
//
// Nothing else on the node uses this mark, routing table or priority. Each forwarder has a separate
// table, and all share the rule and the route (userspace-U12).
const (
	answerChain  = "sampan-answers"
	answerMark   = 0x73616d70 // "samp"
	answerRoutes = 7361       // routing table, and priority of the rule that selects it
)

// users returns the tables of all forwarders with transparent pools.
func users() ([]string, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("listing chains of nftables: %w", err)
	}
	var tables []string
	for _, chain := range chains {
		if chain.Name == answerChain {
			tables = append(tables, chain.Table.Name)
		}
	}
	return tables, nil
}

// makeTransparent makes everything that transparent pools need, even if an earlier process left a
// part of it. It needs CAP_NET_ADMIN.
func (f *Forwarder) makeTransparent() error {
	if f.opts.Table == "" {
		return errors.New("Options.Table is empty")
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := dropTable(c, f.opts.Table)
	c.AddTable(table)
	chain := c.AddChain(&nftables.Chain{
		Name: answerChain, Table: table, Type: nftables.ChainTypeFilter,
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
		return fmt.Errorf("creating table %s: %w", f.opts.Table, err)
	}
	// A process that removes the routes checks for our table afterwards.
	var families []int
	if f.opts.Address.IsValid() {
		families = append(families, netlink.FAMILY_V4)
	}
	if f.opts.Address6.IsValid() {
		families = append(families, netlink.FAMILY_V6)
	}
	if err := addRoutes(families); err != nil {
		return errors.Join(err, RemoveTransparent(f.opts.Table))
	}
	return nil
}

// Restore implements [proxy.Forwarder].
func (f *Forwarder) Restore() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.routed {
		return nil
	}
	return f.makeTransparent()
}

// addRoutes adds the rules and routes that all forwarders share, where they are missing.
func addRoutes(families []int) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, family := range families {
		route := answerRoute(family)
		route.LinkIndex = lo.Attrs().Index
		err := netlink.RouteReplace(route)
		if err == nil {
			err = netlink.RuleAdd(answerRule(family))
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("making the policy route of transparent connections: %w", err)
		}
	}
	return nil
}

// RemoveTransparent removes the kernel state of transparent pools of a process with this [Options.Table],
// and the shared state of all such processes if no other one is left. It is not an error if there is
// nothing. It needs CAP_NET_ADMIN. A forwarder does this itself when it ends; this is for one that
// was killed.
func RemoveTransparent(table string) error {
	tables, err := users()
	if err != nil {
		return err
	}
	if slices.Contains(tables, table) {
		c, err := nftables.New()
		if err == nil {
			dropTable(c, table)
			err = c.Flush()
		}
		if err != nil {
			return fmt.Errorf("removing table %s: %w", table, err)
		}
		tables = slices.DeleteFunc(tables, func(t string) bool { return t == table })
	}
	if len(tables) > 0 {
		return nil
	}
	removed, err := removeRoutes()
	// Another process may have started that found the routes when they still existed.
	if tables, again := users(); len(tables) > 0 || again != nil {
		err = errors.Join(err, again, addRoutes(removed))
	}
	return err
}

// removeRoutes removes the rules and routes that all forwarders share, and returns the families
// that had them.
func removeRoutes() (families []int, _ error) {
	var errs []error
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		for _, err := range []error{netlink.RuleDel(answerRule(family)), netlink.RouteDel(answerRoute(family))} {
			switch {
			case err == nil:
				families = append(families, family)
			case !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EAFNOSUPPORT):
				// The first two: there was none. The last: nor can there be.
				errs = append(errs, fmt.Errorf("removing the policy route of transparent connections: %w", err))
			}
		}
	}
	return slices.Compact(families), errors.Join(errs...)
}

// dropTable deletes a table whether it exists or not.
func dropTable(c *nftables.Conn, name string) *nftables.Table {
	table := &nftables.Table{Name: name, Family: nftables.TableFamilyINet}
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
