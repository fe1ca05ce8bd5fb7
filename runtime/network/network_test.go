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

func TestMain(m *testing.M) {
	os.Exit(nstest.Main(m.Run))
}

func options(t *testing.T) Options {
	return Options{
		Bridge: "spn0", PodCIDR: netip.MustParsePrefix("10.97.0.0/24"), ServiceCIDR: netip.MustParsePrefix("10.96.0.0/24"), Table: "sampan-network-test",
	}
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
	if err := os.WriteFile(forwarding, []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	before, err := runtimetest.World("-")
	if err != nil {
		t.Fatal(err)
	}
	o := options(t)
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
		for _, want := range []string{"link spn0", "ip_forward 1", "table sampan-network-test", "10.96.0.0/24", "10.97.0.0/24"} {
			if !strings.Contains(up, want) {
				t.Errorf("no %s in\n%s", want, up)
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
	o := options(t)
	o.PodCIDR = netip.MustParsePrefix("10.97.0.0/29")
	n := newNetwork(t, o)
	take := func(id string) string {
		a, err := n.Reservation(id)
		if err != nil {
			return err.Error()
		}
		return a.Address.String()
	}
	if err := n.Reserve("old", Attachment{Address: netip.MustParseAddr("10.97.0.3")}); err != nil {
		t.Fatal(err)
	}
	if err := n.Reserve("thief", Attachment{Address: netip.MustParseAddr("10.97.0.3")}); err == nil { // N1
		t.Error("an address was reserved twice")
	}
	if err := n.Reserve("foreign", Attachment{Address: netip.MustParseAddr("10.1.0.3")}); err == nil {
		t.Error("an address of another network was reserved")
	}
	for i, want := range []string{"10.97.0.4", "10.97.0.5", "10.97.0.6", "10.97.0.2"} {
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
	// The next free one after the last that was given, not the one just freed.
	if got := take("p5"); got != "10.97.0.4" {
		t.Errorf("after two were freed: %s, want 10.97.0.4", got)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	o := Options{Bridge: "a-name-that-is-too-long", PodCIDR: netip.MustParsePrefix("fd00::/64"), ServiceCIDR: netip.MustParsePrefix("fd00::/112")}
	_, err := New(o)
	for _, want := range []string{"bridge name", "pod network", "service network", "overlap", "no name"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want it to mention %s", err, want)
		}
	}
}

func TestConnectionsWithinTheHostKeepTheirAddresses(t *testing.T) {
	nstest.NeedRoot(t)
	other := options(t) // whose address would be chosen, as that of the first link
	other.Bridge, other.Table, other.PodCIDR, other.ServiceCIDR = "spn1", "sampan-network-other", netip.MustParsePrefix("10.98.0.0/24"), netip.MustParsePrefix("10.95.0.0/24")
	for _, o := range []Options{other, options(t)} {
		n := newNetwork(t, o)
		if _, err := n.Up(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Down() })
	}
	own := net.IP(options(t).PodCIDR.Addr().Next().AsSlice())
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

// Whoever goes last puts ip_forward back (N5), in whatever order they came.
func TestForwardingStaysAsLongAsAnybodyNeedsIt(t *testing.T) {
	nstest.NeedRoot(t)
	two := options(t)
	two.Bridge, two.Table, two.PodCIDR, two.ServiceCIDR = "spn1", "sampan-network-other", netip.MustParsePrefix("10.98.0.0/24"), netip.MustParsePrefix("10.95.0.0/24")
	all := map[string]Options{"a": options(t), "b": two}
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
