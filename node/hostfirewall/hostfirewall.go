// Package hostfirewall finds chains of the host's packet filter (nftables, and so iptables-nft, ufw and others) that drop the
// packets of pods, and reports them as a condition of the Node, with the commands that help.
//
// Chains of hook forward with the policy drop cut pods off from everything outside their node, and from each other through
// Services; those of hook input cut them off from cluster DNS and the API server. [Find] is a pure function of the chains.
// [Run] applies it whenever nftables change, without polling. Tables of the legacy iptables send no notifications and are
// not read here: the container runtime reports their policy for forwarded packets when it starts.
package hostfirewall

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// A Chain is a base chain of a filter, with what its table accepts.
type Chain struct {
	Family, Table, Name string // as in `nft list chain FAMILY TABLE NAME`
	Forward             bool   // of hook forward; otherwise of hook input
	Drops               bool   // its policy is drop

	// In and Out are links whose packets the rules of the table accept, by the link on which they come or go. A name with a *
	// at its end stands for all links that begin so.
	In, Out []string
}

// Find returns sentences about the chains that drop packets of pods, whose bridge is link, or of its host. The order is that
// of the chains.
func Find(chains []Chain, link string) []string {
	var found []string
	for _, c := range chains {
		in, out := accepts(c.In, link), accepts(c.Out, link)
		if !c.Drops || in && (out || !c.Forward) {
			continue
		}
		what := "packets from pods to this host (cluster DNS, the API server)"
		if c.Forward {
			what = "packets that pods send or receive through this host"
		}
		var commands []string
		if !in {
			commands = append(commands, c.command("i", "iifname", link))
		}
		if c.Forward && !out {
			commands = append(commands, c.command("o", "oifname", link))
		}
		found = append(found, fmt.Sprintf("chain %s of the nftables table %s %s drops %s; to let them pass: %s", c.Name, c.Family, c.Table, what, strings.Join(commands, " && ")))
	}
	return found
}

// command returns the command that accepts the packets of a link.
func (c Chain) command(flag, match, link string) string {
	program := map[string]string{"ip": "iptables", "ip6": "ip6tables"}[c.Family]
	if program != "" && c.Table == "filter" && (c.Name == "FORWARD" || c.Name == "INPUT") {
		return fmt.Sprintf("%s -I %s -%s %s -j ACCEPT", program, c.Name, flag, link)
	}
	return fmt.Sprintf("nft insert rule %s %s %s %s %s accept", c.Family, c.Table, c.Name, match, link)
}

func accepts(links []string, link string) bool {
	return slices.ContainsFunc(links, func(l string) bool {
		prefix, wild := strings.CutSuffix(l, "*")
		return l == link || wild && strings.HasPrefix(link, prefix)
	})
}

// Read returns the base chains of filters that have the policy drop, in the network namespace of the calling thread, but for
// those of tables whose names own reports.
func Read(own func(table string) bool) ([]Chain, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("reading the packet filter: %w", err)
	}
	all, err := c.ListChains()
	if err != nil {
		return nil, fmt.Errorf("reading the packet filter: %w", err)
	}
	names := map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet"}
	var found []Chain
	for _, chain := range all {
		family := names[chain.Table.Family]
		if family == "" || chain.Type != nftables.ChainTypeFilter || chain.Hooknum == nil || chain.Policy == nil ||
			*chain.Policy != nftables.ChainPolicyDrop || own(chain.Table.Name) {
			continue
		}
		one := Chain{Family: family, Table: chain.Table.Name, Name: chain.Name, Drops: true}
		switch *chain.Hooknum {
		case *nftables.ChainHookForward:
			one.Forward = true
		case *nftables.ChainHookInput:
		default:
			continue
		}
		for _, other := range all {
			if other.Table.Family != chain.Table.Family || other.Table.Name != chain.Table.Name || other.Hooknum != nil && other != chain {
				continue
			}
			rules, err := c.GetRules(chain.Table, other)
			if err != nil {
				return nil, fmt.Errorf("reading the packet filter: %w", err)
			}
			for _, rule := range rules {
				in, out := accepted(rule.Exprs)
				one.In, one.Out = append(one.In, in...), append(one.Out, out...)
			}
		}
		found = append(found, one)
	}
	return found, nil
}

// accepted returns the link whose packets a rule accepts, if it accepts all of them: without another condition.
func accepted(exprs []expr.Any) (in, out []string) {
	var key expr.MetaKey
	verdict := false
	for _, e := range exprs {
		switch e := e.(type) {
		case *expr.Meta:
			if key = e.Key; key != expr.MetaKeyIIFNAME && key != expr.MetaKeyOIFNAME {
				return nil, nil
			}
		case *expr.Cmp:
			if e.Op != expr.CmpOpEq || len(in)+len(out) > 0 {
				return nil, nil
			}
			name := string(bytes.TrimRight(e.Data, "\x00"))
			if len(name) == len(e.Data) && len(name) < 16 {
				name += "*"
			}
			if key == expr.MetaKeyIIFNAME {
				in = append(in, name)
			} else {
				out = append(out, name)
			}
		case *expr.Counter:
		case *expr.Verdict:
			verdict = e.Kind == expr.VerdictAccept
		default:
			return nil, nil
		}
	}
	if !verdict {
		return nil, nil
	}
	return in, out
}
