package network

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/netdump"
)

// A toggle is a setting by which this host passes on packets of an IP family.
type toggle struct{ name, file string }

// setting is its name as administrators say it.
func (t toggle) setting() string {
	return strings.ReplaceAll(strings.TrimPrefix(t.file, "/proc/sys/"), "/", ".")
}

func (f *family) toggle() toggle {
	if f.is6() {
		return toggle{"ip6_forward", "/proc/sys/net/ipv6/conf/all/forwarding"}
	}
	return toggle{"ip_forward", "/proc/sys/net/ipv4/ip_forward"}
}

// A claim is the alias of a bridge whose owner needs settings of the host: it holds their
// values from before the first such bridge was created. The kernel keeps an alias exactly
// as long as it is needed: it outlives every process, but not a restart of the machine.
//
//	sampan: ip_forward was 0, ip6_forward was 0, accept_ra was 1 of eth0 eth1
//
// A host that forwards IPv6 packets ignores router advertisements unless accept_ra is 2,
// and would lose its own default route. So where advertisements were accepted before
// (accept_ra was 1), accept_ra is set to 2 (N5).
type claim struct {
	before  map[string]string // "0" or "1", by the name of a toggle
	hearing []string          // links whose accept_ra was 1
}

const (
	claimPrefix = "sampan: "
	claimHears  = "accept_ra was 1 of "
	claimMost   = 255 // bytes of an alias that the kernel keeps
)

// claimed reads what a bridge claims.
func claimed(l netlink.Link) (c claim) {
	text, ok := strings.CutPrefix(l.Attrs().Alias, claimPrefix)
	if !ok || l.Type() != "bridge" {
		return c
	}
	c.before = map[string]string{}
	text, hears, _ := strings.Cut(text, ", "+claimHears)
	c.hearing = strings.Fields(hears)
	for part := range strings.SplitSeq(text, ", ") {
		if name, value, ok := strings.Cut(part, " was "); ok && slices.Contains([]string{"0", "1"}, value) {
			c.before[name] = value
		}
	}
	return c
}

// text is c as an alias. Links that don't fit are left out; their setting is not restored,
// and has the same effect once the host does not forward packets.
func (c claim) text(families []*family) string {
	var parts []string
	for _, f := range families {
		parts = append(parts, f.toggle().name+" was "+c.before[f.toggle().name])
	}
	text := claimPrefix + strings.Join(parts, ", ")
	for i, l := range c.hearing {
		more := " " + l
		if i == 0 {
			more = ", " + claimHears + l
		}
		if len(text)+len(more) > claimMost {
			break
		}
		text += more
	}
	return text
}

// claims reports whether a bridge says what this network needs.
func (n *Network) claims(l netlink.Link) bool {
	c := claimed(l)
	return !slices.ContainsFunc(n.families, func(f *family) bool { return c.before[f.toggle().name] == "" })
}

// six reports whether the pods have IPv6 addresses.
func (n *Network) six() bool { return slices.ContainsFunc(n.families, (*family).is6) }

// locked runs f while no other function of this kind runs in this network
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

// othersClaim looks for a claim of another bridge on a setting.
func (n *Network) othersClaim(t toggle) (c claim, found bool, err error) {
	links, err := netdump.Whole(n.link.LinkList)
	if err != nil {
		return c, false, err
	}
	for _, l := range links {
		if c := claimed(l); c.before[t.name] != "" && l.Attrs().Name != n.opts.Bridge {
			return c, true, nil
		}
	}
	return c, false, nil
}

// alias returns the claim of the bridge.
func (n *Network) alias() (string, error) {
	c := claim{before: map[string]string{}}
	for _, f := range n.families {
		t := f.toggle()
		others, found, err := n.othersClaim(t)
		if err != nil {
			return "", err
		}
		if found {
			c.before[t.name] = others.before[t.name]
			if f.is6() {
				c.hearing = others.hearing
			}
			continue
		}
		now, err := os.ReadFile(t.file)
		if err != nil {
			return "", fmt.Errorf("%s: %w", t.name, err)
		}
		c.before[t.name] = "1"
		if strings.TrimSpace(string(now)) == "0" {
			c.before[t.name] = "0"
			if f.is6() {
				if c.hearing, err = n.hearing(); err != nil {
					return "", err
				}
			}
		}
	}
	return c.text(n.families), nil
}

// hearing returns the links on which this host accepts router advertisements only while it
// does not forward packets.
func (n *Network) hearing() ([]string, error) {
	links, err := netdump.Whole(n.link.LinkList)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, l := range links {
		a := l.Attrs()
		// A port of a bridge passes router advertisements to the bridge.
		if a.MasterIndex == 0 && a.Name != "lo" && a.Name != n.opts.Bridge && setting6(a.Name, "accept_ra") == "1" && setting6(a.Name, "forwarding") == "0" {
			names = append(names, a.Name)
		}
	}
	return names, nil
}

// enableForwarding turns on forwarding of packets. The bridge has claimed it before.
func (n *Network) enableForwarding() error {
	for _, f := range n.families {
		t := f.toggle()
		if now, err := os.ReadFile(t.file); err == nil && strings.TrimSpace(string(now)) == "1" {
			continue // perhaps it may not be written
		}
		if f.is6() {
			// All of them, even those for which there was no room in the claim.
			links, err := n.hearing()
			if err != nil {
				return err
			}
			for _, l := range links {
				if err := set6(l, "accept_ra", "2"); err != nil {
					return fmt.Errorf("accepting router advertisements on %s: %w", l, err)
				}
			}
		}
		if err := os.WriteFile(t.file, []byte("1"), 0); err != nil {
			return fmt.Errorf("switching on %s, which pods need to reach anything but this host: %w", t.setting(), err)
		}
	}
	return nil
}

// restoreForwarding restores settings that no other bridge claims. It comes before the
// bridge is removed, so that it can be repeated after a process was killed in between.
func (n *Network) restoreForwarding(bridge netlink.Link) error {
	c := claimed(bridge)
	var errs []error
	for _, f := range n.families {
		t := f.toggle()
		before := c.before[t.name]
		if before == "" {
			continue
		}
		if _, needed, err := n.othersClaim(t); needed || err != nil {
			errs = append(errs, err)
			continue
		}
		if now, err := os.ReadFile(t.file); err != nil || strings.TrimSpace(string(now)) != before {
			if err := os.WriteFile(t.file, []byte(before), 0); err != nil {
				errs = append(errs, fmt.Errorf("restoring %s: %w", t.name, err))
			}
		}
		if !f.is6() {
			continue
		}
		for _, l := range c.hearing {
			if setting6(l, "accept_ra") != "2" {
				continue // it was changed by another program, or the link was removed
			}
			if err := set6(l, "accept_ra", "1"); err != nil {
				errs = append(errs, fmt.Errorf("restoring accept_ra of %s: %w", l, err))
			}
		}
	}
	return errors.Join(errs...)
}

// settings6 is where the settings of IPv6 are, of the network namespace of the calling thread.
const settings6 = "/proc/sys/net/ipv6/conf/"

// setting6 reads a setting of a link; "" if there is none.
func setting6(link, name string) string {
	data, _ := os.ReadFile(settings6 + link + "/" + name)
	return strings.TrimSpace(string(data))
}

// set6 writes a setting of a link, unless it is so already. A link that has none is gone.
func set6(link, name, value string) error {
	if setting6(link, name) == value {
		return nil
	}
	err := os.WriteFile(settings6+link+"/"+name, []byte(value), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// IPv6 returns why this host can't have pods with IPv6 addresses, or nil.
func IPv6() error {
	const instead = "--ip-family=ipv4 does without"
	if _, err := os.Stat(settings6 + "all"); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("this host has no IPv6: its kernel was started with ipv6.disable=1 or was built without; %s", instead)
	}
	if setting6("all", "disable_ipv6") == "1" {
		return fmt.Errorf("IPv6 is switched off on this host (net.ipv6.conf.all.disable_ipv6 is 1); `sysctl -w net.ipv6.conf.all.disable_ipv6=0` switches it on, %s", instead)
	}
	return nil
}

// settleBridge makes the bridge ignore router advertisements of pods, and use its IPv6
// addresses at once (N7).
func (n *Network) settleBridge() error {
	settings := [][2]string{{"accept_ra", "0"}}
	if n.six() {
		settings = append(settings, [2]string{"disable_ipv6", "0"}, [2]string{"accept_dad", "0"}, [2]string{"dad_transmits", "0"})
	}
	for _, s := range settings {
		if err := set6(n.opts.Bridge, s[0], s[1]); err != nil {
			return fmt.Errorf("%s: %w", s[0], err)
		}
	}
	return nil
}

// settlePod prepares the network namespace of the calling thread, a pod's, for the link
// that it gets: addresses of IPv6 are used at once, and router advertisements are ignored (N7).
func settlePod() error {
	for _, s := range [][3]string{{"all", "disable_ipv6", "0"}, {"default", "accept_dad", "0"}, {"default", "accept_ra", "0"}} {
		if err := set6(s[0], s[1], s[2]); err != nil {
			return fmt.Errorf("net.ipv6.conf.%s.%s of the pod: %w", s[0], s[1], err)
		}
	}
	return nil
}
