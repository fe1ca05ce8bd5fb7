package announce_test

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/proxy/announce"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// cable is a link of this host, with a network of each family, whose other end is there as well.
func cable(t *testing.T) (near, far netlink.Link) {
	t.Helper()
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near"}, PeerName: "far"}))
	for _, name := range []string{"near", "far"} {
		l, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(l))
		near, far = far, l
	}
	for _, n := range []string{"192.0.2.1/24", "2001:db8::1/64"} {
		a, err := netlink.ParseAddr(n)
		must(t, err)
		if a.IP.To4() == nil {
			a.Flags = unix.IFA_F_NODAD
		}
		must(t, netlink.AddrAdd(near, a))
	}
	return near, far
}

// addresses returns those of the host that one might announce, by link.
func addresses(t *testing.T) (all []string) {
	t.Helper()
	as, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	must(t, err)
	for _, a := range as {
		l, err := net.InterfaceByIndex(a.LinkIndex)
		must(t, err)
		if !a.IP.IsLinkLocalUnicast() && !a.IP.IsLoopback() {
			all = append(all, l.Name+" "+a.IPNet.String())
		}
	}
	slices.Sort(all)
	return all
}

func TestAnnounce(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		_, far := cable(t)
		a, err := announce.New(announce.Options{Link: "spl-test"})
		must(t, err)
		want := func(want ...string) {
			t.Helper()
			want = append(want, "near 192.0.2.1/24", "near 2001:db8::1/64")
			slices.Sort(want)
			if have := addresses(t); !slices.Equal(have, want) {
				t.Fatalf("addresses are %q, want %q", have, want)
			}
		}
		say := func(as ...string) {
			t.Helper()
			var all []netip.Addr
			for _, s := range as {
				all = append(all, netip.MustParseAddr(s))
			}
			must(t, a.Announce(t.Context(), all))
		}
		say() // nothing is there, and nothing is made
		want()

		listen := func(protocol uint16) func(part []byte) {
			s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(protocol>>8|protocol<<8))
			must(t, err)
			t.Cleanup(func() { _ = unix.Close(s) })
			must(t, unix.Bind(s, &unix.SockaddrLinklayer{Protocol: protocol>>8 | protocol<<8, Ifindex: far.Attrs().Index}))
			must(t, unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30}))
			return func(part []byte) {
				t.Helper()
				packet := make([]byte, 2000)
				for {
					n, _, err := unix.Recvfrom(s, packet, 0)
					if errors.Is(err, unix.EINTR) {
						continue
					}
					if err != nil {
						t.Fatalf("neighbours hear nothing of % x: %v", part, err)
					}
					if bytes.Contains(packet[:n], part) {
						return
					}
				}
			}
		}
		heardARP, heardIPv6 := listen(unix.ETH_P_ARP), listen(unix.ETH_P_IPV6)
		say("192.0.2.80", "2001:db8::80")
		want("spl-test 192.0.2.80/32", "spl-test 2001:db8::80/128", "near 2001:db8::80/128")
		mac := near(t).HardwareAddr
		v4, v6 := netip.MustParseAddr("192.0.2.80").AsSlice(), netip.MustParseAddr("2001:db8::80").AsSlice()
		heardARP(slices.Concat(mac, v4, make([]byte, 6), v4))
		heardIPv6(slices.Concat(v6, []byte{2, 1}, mac))

		// Who is near such an address is spoken to from the host's own.
		for to, from := range map[string]string{"192.0.2.81:9": "192.0.2.1", "[2001:db8::81]:9": "2001:db8::1"} {
			c, err := (&net.Dialer{}).DialContext(t.Context(), "udp", to)
			must(t, err)
			if got := c.LocalAddr().(*net.UDPAddr).IP.String(); got != from {
				t.Errorf("the host speaks to %s from %s, want %s", to, got, from)
			}
			must(t, c.Close())
		}

		// One goes, one comes; an address that the host has is left alone.
		say("192.0.2.1", "192.0.2.80", "203.0.113.7")
		want("spl-test 192.0.2.80/32", "spl-test 203.0.113.7/32")

		// A process after this one takes over.
		a, err = announce.New(announce.Options{Link: "spl-test"})
		must(t, err)
		say("2001:db8::81")
		want("spl-test 2001:db8::81/128", "near 2001:db8::81/128")
		must(t, announce.Remove("spl-test"))
		want()
		must(t, announce.Remove("spl-test"))
		if _, err := netlink.LinkByName("spl-test"); err == nil {
			t.Error("the link is left")
		}
	})
}

func near(t *testing.T) *netlink.LinkAttrs {
	l, err := netlink.LinkByName("near")
	must(t, err)
	return l.Attrs()
}

func TestAnAnnouncerNeedsALink(t *testing.T) {
	for _, name := range []string{"", "much-too-long-a-name"} {
		if _, err := announce.New(announce.Options{Link: name}); err == nil {
			t.Errorf("the link %q is none, and that is no error", name)
		}
	}
}
