package conntrack

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/proxy"
)

// The kernel remembers where the packets of a connection go, and evaluates our rules only for the
// first one of each. That is right for TCP and SCTP, whose ends know when a connection is closed. A
// flow of UDP ends only when it is silent, so a client that always sends from the same port would
// reach a removed backend for ever.

// ForgetUDP deletes the flows of UDP to backends that changes remove, and to frontends that had none.
// The kernel must have the changes.
func ForgetUDP(changes []proxy.Change) error {
	var f forgetter
	for i := range changes {
		f.note(&changes[i].Was, &changes[i].Is)
	}
	return f.forget()
}

// A forgetter finds flows of UDP, by frontend, that rules would no longer send where they go.
type forgetter struct {
	frontends map[proxy.Frontend]*proxy.Rule
	local     map[netip.Addr]bool // the addresses of this node
}

// note adds the frontend of a change to those whose flows are checked.
func (f *forgetter) note(was, is *proxy.Rule) {
	frontend := is.Frontend
	if is.Port == 0 {
		frontend = was.Frontend
	}
	if frontend.Protocol != corev1.ProtocolUDP {
		return
	}
	began := !leads(was) && leads(is)
	if began || len(goneFrom(was, is)) > 0 {
		if f.frontends == nil {
			f.frontends = map[proxy.Frontend]*proxy.Rule{}
		}
		f.frontends[frontend] = is
	}
}

func leads(r *proxy.Rule) bool { return len(r.Backends)+len(r.Inside) > 0 }

// goneFrom returns the backends that a change removes.
func goneFrom(was, is *proxy.Rule) (all []netip.AddrPort) {
	for _, some := range [][]netip.AddrPort{was.Backends, was.Inside} {
		for _, a := range some {
			if !hasBackend(is, a) {
				all = append(all, a)
			}
		}
	}
	return all
}

func hasBackend(r *proxy.Rule, a netip.AddrPort) bool {
	_, ok := slices.BinarySearchFunc(r.Backends, a, netip.AddrPort.Compare)
	if !ok {
		_, ok = slices.BinarySearchFunc(r.Inside, a, netip.AddrPort.Compare)
	}
	return ok
}

// forget deletes those flows.
func (f *forgetter) forget() error {
	if len(f.frontends) == 0 {
		return nil
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("reading the addresses of this node: %w", err)
	}
	f.local = map[netip.Addr]bool{}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok {
			a, _ := netip.AddrFromSlice(n.IP)
			f.local[a.Unmap()] = true
		}
	}
	awaitPackets()
	for _, s := range f.selections() {
		const tries = 5
		for try := 1; ; try++ {
			err := f.forgetSome(s)
			if err == nil {
				break
			}
			if try == tries || !errors.Is(err, errMissed) {
				return fmt.Errorf("deleting flows of UDP to removed backends: %w", err)
			}
		}
	}
	return nil
}

// selections returns the selections to read, one for each family.
func (f *forgetter) selections() (all []selection) {
	for _, v6 := range []bool{false, true} {
		var frontends []netip.AddrPort
		for d := range f.frontends {
			if d.Address.Is6() == v6 {
				frontends = append(frontends, netip.AddrPortFrom(d.Address, d.Port))
			}
		}
		if len(frontends) > 0 {
			all = append(all, selection{v6: v6, protocol: unix.IPPROTO_UDP, to: common(frontends)})
		}
	}
	return all
}

// forgetSome deletes those flows of one family.
func (f *forgetter) forgetSome(s selection) error {
	c, err := openConntrack()
	if err != nil {
		return err
	}
	defer c.close()
	var keys []flowKey
	missed := c.each(s, func(flow *flow) {
		if f.stale(flow) {
			keys = append(keys, flow.key.clone())
		}
	})
	if missed != nil && !errors.Is(missed, errMissed) {
		return missed
	}
	return errors.Join(missed, c.remove(s.v6, keys))
}

// stale reports whether a flow is to be deleted.
func (f *forgetter) stale(flow *flow) bool {
	if flow.protocol != unix.IPPROTO_UDP {
		return false
	}
	frontend := proxy.Frontend{Address: flow.to.Addr(), Protocol: corev1.ProtocolUDP, Port: flow.to.Port()}
	rule, ours := f.frontends[frontend]
	if !ours {
		frontend.Address = nowhere(flow.to.Addr())
		// The flow may be forwarded to the same port of another host.
		if rule, ours = f.frontends[frontend]; !ours || !f.local[flow.to.Addr()] {
			return false
		}
	}
	return !hasBackend(rule, flow.server)
}

// nowhere is the address of a frontend that is a node port.
func nowhere(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// awaitPackets waits for packets that matched earlier rules but are not in conntrack yet: it
// returns when every processor has finished the packet it was processing.
func awaitPackets() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
}

// common returns the address and port that all elements share; parts that differ are left out, and
// so is an unspecified address.
func common(all []netip.AddrPort) netip.AddrPort {
	address, port := all[0].Addr(), all[0].Port()
	for _, a := range all {
		if a.Addr() != address || address.IsUnspecified() {
			address = netip.Addr{}
		}
		if a.Port() != port {
			port = 0
		}
	}
	return netip.AddrPortFrom(address, port)
}

// accountingFile is the setting of the network namespace whether packets of connections are counted.
const accountingFile = "/proc/sys/net/netfilter/nf_conntrack_acct"

// Accounting returns whether packets of connections are counted, as "0" or "1", or "" if it can't be read.
func Accounting() string {
	b, _ := os.ReadFile(accountingFile)
	return strings.TrimSpace(string(b))
}

// SetAccounting sets it. It ignores errors: without counters [Drains.Settle] waits longer.
func SetAccounting(to string) { _ = os.WriteFile(accountingFile, []byte(to), 0) }
