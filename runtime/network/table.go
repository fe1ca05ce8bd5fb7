package network

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// upTable makes our nftables table of a family. Its one rule hides the addresses of pods from
// the world outside: what leaves by another link than the bridge gets the host's.
// What stays on the host does not: it would get the address of any link, and its
// connections would break when that link goes.
func (n *Network) upTable(f *family) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := n.table(f)
	// Made, emptied and filled in one transaction: there is no moment without it.
	c.AddTable(table)
	c.FlushTable(table)
	chain := c.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	pods := ipNet(f.pods)
	sourceOffset, addressLen := uint32(12), uint32(len(pods.IP)) // in the IPv4 header
	if f.is6() {
		sourceOffset = 8
	}
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: sourceOffset, Len: addressLen},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: addressLen, Mask: pods.Mask, Xor: make([]byte, addressLen)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: pods.IP},
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: linkData(n.opts.Bridge)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: linkData("lo")},
		&expr.Masq{},
	}})
	return c.Flush()
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

// foreignDrops looks for chains of somebody else that drop forwarded packets of a family by
// default, as Docker's do, and says what to do about each. There may be one of either
// packet filter of the kernel, and a packet has to get past both.
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
