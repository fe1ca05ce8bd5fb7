package network

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/runtime/runtimetest"
)

// What is switched on for each family.
const (
	forwarding  = "/proc/sys/net/ipv4/ip_forward"
	forwarding6 = "/proc/sys/net/ipv6/conf/all/forwarding"
)

func TestMain(m *testing.M) {
	os.Exit(nstest.Main(m.Run))
}

func options(t *testing.T) Options {
	return Options{
		Bridge: "spn0", PodCIDRs: prefixes("10.97.0.0/24"), ServiceCIDRs: prefixes("10.96.0.0/24"), Table: "sampan-network-test",
	}
}

// dual are options for both IP families.
func dual(t *testing.T) Options {
	o := options(t)
	o.PodCIDRs, o.ServiceCIDRs = prefixes("10.97.0.0/24", "fd97::/64"), prefixes("10.96.0.0/24", "fd96::/112")
	return o
}

// six are options for IPv6 alone.
func six(t *testing.T) Options {
	o := options(t)
	o.PodCIDRs, o.ServiceCIDRs = prefixes("fd97::/64"), prefixes("fd96::/112")
	return o
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func newNetwork(t *testing.T, o Options) *Network {
	t.Helper()
	n, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

func TestUpAndDownMayBeRepeated(t *testing.T) {
	nstest.NeedRoot(t)
	for name, tt := range map[string]struct {
		o     Options
		want  []string
		never []string
	}{
		"IPv4": {options(t), []string{"ip_forward 1", "10.96.0.0/24", "10.97.0.0/24", "table ip sampan-network-test"}, []string{"ip6_forward 1", "table ip6", "fd97::"}},
		"both": {dual(t), []string{"ip_forward 1", "ip6_forward 1", "10.96.0.0/24", "10.97.0.0/24", "fd96::/112", "fd97::/64", "table ip sampan-network-test", "table ip6 sampan-network-test"}, nil},
		"IPv6": {six(t), []string{"ip6_forward 1", "fd96::/112", "fd97::/64", "table ip6 sampan-network-test"}, []string{"ip_forward 1", "table ip ", "10.97."}},
	} {
		t.Run(name, func(t *testing.T) { upAndDown(t, tt.o, tt.want, tt.never) })
	}
}

func upAndDown(t *testing.T, o Options, want, never []string) {
	for _, file := range []string{forwarding, forwarding6} {
		if err := os.WriteFile(file, []byte("0"), 0); err != nil {
			t.Fatal(err)
		}
	}
	before, err := runtimetest.World("-")
	if err != nil {
		t.Fatal(err)
	}
	n := newNetwork(t, o)
	var hardware string
	for range 2 {
		if _, err := n.Up(); err != nil {
			t.Fatal(err)
		}
		link, err := netlink.LinkByName("spn0")
		if err != nil {
			t.Fatal(err)
		}
		if h := link.Attrs().HardwareAddr.String(); hardware != "" && h != hardware { // N3
			t.Errorf("the bridge's link address changed from %s to %s", hardware, h)
		} else {
			hardware = h
		}
		up, err := runtimetest.World("-")
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range append(want, "link spn0") {
			if !strings.Contains(up, w) {
				t.Errorf("no %s in\n%s", w, up)
			}
		}
		for _, w := range never {
			if strings.Contains(up, w) {
				t.Errorf("there is %s in\n%s", w, up)
			}
		}
	}
	// Another process may take it down (N4).
	other := newNetwork(t, o)
	for range 2 {
		if err := other.Down(); err != nil {
			t.Fatal(err)
		}
	}
	after, err := runtimetest.World("-")
	if err != nil {
		t.Fatal(err)
	}
	if after != before {
		t.Errorf("after:\n%s\nbefore:\n%s", after, before)
	}
}

func TestALinkOfAnotherKindIsNotTouched(t *testing.T) {
	nstest.NeedRoot(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "spn1"
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "spn2"}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	o := options(t)
	o.Bridge = "spn1"
	n := newNetwork(t, o)
	if _, err := n.Up(); err == nil || !strings.Contains(err.Error(), "is a veth") {
		t.Errorf("Up = %v, want an error that says what the link is", err)
	}
	if err := n.Down(); err != nil {
		t.Fatal(err)
	}
	if _, err := netlink.LinkByName("spn1"); err != nil {
		t.Errorf("the other link: %v", err)
	}
}

func TestAddressesGoRound(t *testing.T) {
	nstest.NeedRoot(t)
	o := dual(t)
	o.PodCIDRs[0] = netip.MustParsePrefix("10.97.0.0/29")
	n := newNetwork(t, o)
	take := func(id string) string {
		a, err := n.Reservation(id, nil)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(a.Addresses)
	}
	at := func(texts ...string) (a Attachment) {
		for _, text := range texts {
			a.Addresses = append(a.Addresses, netip.MustParseAddr(text))
		}
		return a
	}
	if err := n.Reserve("old", at("10.97.0.3", "fd97::3")); err != nil {
		t.Fatal(err)
	}
	for _, taken := range []string{"10.97.0.3", "fd97::3"} {
		if err := n.Reserve("thief", at(taken)); err == nil { // N1
			t.Errorf("%s was reserved twice", taken)
		}
	}
	for _, foreign := range []string{"10.1.0.3", "fd98::3"} {
		if err := n.Reserve("foreign", at("10.97.0.5", foreign)); err == nil {
			t.Errorf("%s, of another network, was reserved", foreign)
		}
	}
	for i, want := range []string{"[10.97.0.4 fd97::4]", "[10.97.0.5 fd97::5]", "[10.97.0.6 fd97::6]", "[10.97.0.2 fd97::7]"} {
		if got := take(fmt.Sprint("p", i)); got != want {
			t.Errorf("address %d is %s, want %s", i, got, want)
		}
	}
	if got := take("late"); !strings.Contains(got, "is full") {
		t.Errorf("a sixth: %s", got)
	}
	for _, id := range []string{"p1", "p0"} {
		if err := n.Detach(id, Attachment{}); err != nil {
			t.Fatal(err)
		}
	}
	// The next free one after the last that was given, not the one just freed. Of the family
	// that had room nothing was kept for the pod that found none.
	if got := take("p5"); got != "[10.97.0.4 fd97::8]" {
		t.Errorf("after two were freed: %s, want 10.97.0.4 and fd97::8", got)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		want []string
	}{
		{
			Options{Bridge: "a-name-that-is-too-long", PodCIDRs: prefixes("fd00::/64"), ServiceCIDRs: prefixes("fd00::/112")},
			[]string{"bridge name", "service network", "overlap", "no name"},
		},
		{Options{PodCIDRs: prefixes("10.1.0.0/30", "fd00::/126", "::ffff:10.0.0.0/112")}, []string{"10.1.0.0/30: want", "fd00::/126: want", "::ffff:10.0.0.0/112: want"}},
		{Options{PodCIDRs: prefixes("10.1.0.0/24", "10.2.0.0/24")}, []string{"10.2.0.0/24: there is one of this IP family"}},
		{Options{PodCIDRs: prefixes("10.1.0.0/24"), ServiceCIDRs: prefixes("10.3.0.0/24", "10.2.0.0/24", "fd00::/112")}, []string{"10.2.0.0/24: there is one", "fd00::/112: want one of the IP family"}},
		{Options{}, []string{"pod network is empty"}},
	} {
		_, err := New(tt.o)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want it to mention %s", err, want)
			}
		}
	}
}

func TestHostConnectionsKeepTheirAddresses(t *testing.T) {
	nstest.NeedRoot(t)
	other := options(t) // whose address would be chosen, as that of the first link
	other.Bridge, other.Table, other.PodCIDRs, other.ServiceCIDRs = "spn1", "sampan-network-other", prefixes("10.98.0.0/24"), prefixes("10.95.0.0/24")
	for _, o := range []Options{other, options(t)} {
		n := newNetwork(t, o)
		if _, err := n.Up(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Down() })
	}
	own := net.IP(options(t).PodCIDRs[0].Addr().Next().AsSlice())
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: own})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := net.DialTCP("tcp4", &net.TCPAddr{IP: own}, l.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if got := in.RemoteAddr().String(); got != out.LocalAddr().String() {
		t.Errorf("a connection from %v seems to come from %s", out.LocalAddr(), got)
	}
}

// The last bridge that is removed restores ip_forward (N5), in whatever order they were created.
func TestForwardingStaysUntilTheLastBridge(t *testing.T) {
	nstest.NeedRoot(t)
	for file, one := range map[string]Options{forwarding: options(t), forwarding6: six(t)} {
		forwardingStays(t, file, one)
	}
}

func forwardingStays(t *testing.T, forwarding string, one Options) {
	two := dual(t)
	two.Bridge, two.Table, two.PodCIDRs, two.ServiceCIDRs = "spn1", "sampan-network-other", prefixes("10.98.0.0/24", "fd98::/64"), prefixes("10.95.0.0/24", "fd95::/112")
	all := map[string]Options{"a": one, "b": two}
	read := func() string {
		t.Helper()
		data, err := os.ReadFile(forwarding)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(data))
	}
	tests := []struct {
		name, before, steps string // a step is + or - and a network
		want                string // of ip_forward, after each step
	}{
		{"first come, first gone", "0", "+a +b -a -b", "1 1 1 0"},
		{"first come, last gone", "0", "+a +b -b -a", "1 1 1 0"},
		{"it was on", "1", "+a +b -a -b", "1 1 1 1"},
		{"again while the other stands", "0", "+a +b -a +a -b -a", "1 1 1 1 1 0"},
		{"repeated", "0", "+a +a +b -a -a -b -b", "1 1 1 1 1 0 0"},
		{"one vanishes without a word", "0", "+a +b !a -b", "1 1 1 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(forwarding, []byte(tt.before), 0); err != nil {
				t.Fatal(err)
			}
			var got []string
			for step := range strings.FieldsSeq(tt.steps) {
				n := newNetwork(t, all[step[1:]]) // as another process would
				var err error
				switch step[0] {
				case '+':
					_, err = n.Up()
				case '-':
					err = n.Down()
				case '!':
					err = netlink.LinkDel(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: all[step[1:]].Bridge}})
				}
				if err != nil {
					t.Fatalf("%s: %v", step, err)
				}
				got = append(got, read())
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("ip_forward after %s is %v, want %s", tt.steps, got, tt.want)
			}
		})
	}
}

// A host that passes on packets hears no routers by default, and would lose what it has learned
// of them (N5).
func TestRouterAdvertisementsAreAcceptedAsBefore(t *testing.T) {
	nstest.NeedRoot(t)
	for _, name := range []string{"up0", "deaf0", "both0"} {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netlink.LinkDel(&netlink.Bridge{LinkAttrs: attrs}) })
	}
	set := func(link, name, value string) {
		t.Helper()
		if err := os.WriteFile(settings6+link+"/"+name, []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	set("all", "forwarding", "0")
	for link, value := range map[string]string{"up0": "1", "deaf0": "0", "both0": "2"} {
		set(link, "accept_ra", value)
	}
	want := func(when string, up0 string) {
		t.Helper()
		for link, value := range map[string]string{"up0": up0, "deaf0": "0", "both0": "2"} {
			if got := setting6(link, "accept_ra"); got != value {
				t.Errorf("%s: accept_ra of %s is %s, want %s", when, link, got, value)
			}
		}
	}
	one, two := dual(t), six(t)
	two.Bridge, two.Table, two.PodCIDRs, two.ServiceCIDRs = "spn1", "sampan-network-other", prefixes("fd98::/64"), prefixes("fd95::/112")
	first, second := newNetwork(t, one), newNetwork(t, two)
	for _, n := range []*Network{first, second} {
		if _, err := n.Up(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Down() })
	}
	want("while both are up", "2")
	for _, bridge := range []string{"spn0", "spn1"} {
		if got := setting6(bridge, "accept_ra"); got != "0" {
			t.Errorf("accept_ra of %s is %s, want 0: a pod is no router", bridge, got)
		}
	}
	if err := first.Down(); err != nil {
		t.Fatal(err)
	}
	want("while one is up", "2")
	if err := newNetwork(t, two).Down(); err != nil { // as another process would
		t.Fatal(err)
	}
	want("afterwards", "1")
}

func TestAHostWithoutIPv6(t *testing.T) {
	nstest.NeedRoot(t)
	if err := set6("all", "disable_ipv6", "1"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set6("all", "disable_ipv6", "0") })
	before, err := runtimetest.World("-")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{dual(t), six(t)} {
		if _, err := newNetwork(t, o).Up(); err == nil || !strings.Contains(err.Error(), "IPv6 is switched off on this host") {
			t.Errorf("Up = %v", err)
		}
	}
	if after, err := runtimetest.World("-"); err != nil || after != before {
		t.Errorf("after:\n%s\nbefore:\n%s\n%v", after, before, err)
	}
	four := newNetwork(t, options(t))
	t.Cleanup(func() { _ = four.Down() })
	if _, err := four.Up(); err != nil {
		t.Errorf("without IPv6: %v", err)
	}
}
