package network

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const forwarding = "/proc/sys/net/ipv4/ip_forward"

// A bridge whose owner needs ip_forward says in its alias what that was before the
// first such bridge came. The kernel keeps this exactly as long as it is of use: over
// the death of every process, and not over a start of the machine.
const claim = "sampan: ip_forward was "

// claimed reads what a bridge claims.
func claimed(l netlink.Link) (before string, ok bool) {
	before, ok = strings.CutPrefix(l.Attrs().Alias, claim)
	return before, ok && l.Type() == "bridge" && slices.Contains([]string{"0", "1"}, before)
}

// locked runs f while nobody else is in a function of this kind in this network
// namespace.
func locked(f func() error) error {
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	defer ns.Close() // which unlocks it
	if err := unix.Flock(int(ns.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("network: locking the network namespace: %w", err)
	}
	return f()
}

// othersClaim looks for a claim of another bridge.
func (n *Network) othersClaim() (before string, found bool, err error) {
	links, err := n.link.LinkList()
	if err != nil {
		return "", false, err
	}
	for _, l := range links {
		if b, ok := claimed(l); ok && l.Attrs().Name != n.opts.Bridge {
			return b, true, nil
		}
	}
	return "", false, nil
}

// alias is what the bridge is to claim.
func (n *Network) alias() (string, error) {
	before, found, err := n.othersClaim()
	if err != nil {
		return "", err
	}
	if !found {
		now, err := os.ReadFile(forwarding)
		if err != nil {
			return "", fmt.Errorf("ip_forward: %w", err)
		}
		before = "1"
		if strings.TrimSpace(string(now)) == "0" {
			before = "0"
		}
	}
	return claim + before, nil
}

// enableForwarding lets the host pass packets on. The bridge has claimed it before.
func enableForwarding() error {
	if now, err := os.ReadFile(forwarding); err == nil && strings.TrimSpace(string(now)) == "1" {
		return nil // perhaps it may not be written
	}
	if err := os.WriteFile(forwarding, []byte("1"), 0); err != nil {
		return fmt.Errorf("switching on net.ipv4.ip_forward, which pods need to reach anything but this host: %w", err)
	}
	return nil
}

// restoreForwarding puts ip_forward back if no other bridge claims it. It comes before
// the bridge goes, so that whoever is killed in between can do it again.
func (n *Network) restoreForwarding(bridge netlink.Link) error {
	before, ok := claimed(bridge)
	if !ok {
		return nil
	}
	if _, needed, err := n.othersClaim(); needed || err != nil {
		return err
	}
	if now, err := os.ReadFile(forwarding); err == nil && strings.TrimSpace(string(now)) == before {
		return nil
	}
	if err := os.WriteFile(forwarding, []byte(before), 0); err != nil {
		return fmt.Errorf("putting ip_forward back: %w", err)
	}
	return nil
}
