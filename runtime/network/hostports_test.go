package network

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/nstest"
)

// A place is a network namespace: a pod, a client outside, or the host itself.
type place struct {
	t    testing.TB
	name string
	ns   netns.NsHandle // none: the host
	at   Attachment
}

// do runs f in the place's namespace.
func (p *place) do(f func()) {
	p.t.Helper()
	var wg sync.WaitGroup
	done := false
	wg.Go(func() {
		runtime.LockOSThread() // and never unlocked, so that the thread ends with the goroutine
		if p.ns.IsOpen() {
			if err := netns.Set(p.ns); err != nil {
				p.t.Error(err)
				return
			}
		}
		f()
		done = true
	})
	wg.Wait()
	if !done {
		p.t.FailNow()
	}
}

func newPlace(t testing.TB, name string) *place {
	t.Helper()
	p := &place{t: t, name: name, ns: netns.None()}
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread()
		var err error
		if p.ns, err = netns.New(); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	t.Cleanup(func() { _ = p.ns.Close() })
	return p
}

// pod makes a pod with ports of the host, and a server at port 80 of TCP and of UDP in it that says its name.
func pod(t testing.TB, n *Network, name string, ports ...HostPort) *place {
	t.Helper()
	p := reserved(t, n, name, ports...)
	if err := n.Publish(name); err != nil {
		t.Fatal(err)
	}
	return p
}

func reserved(t testing.TB, n *Network, name string, ports ...HostPort) *place {
	t.Helper()
	p := newPlace(t, name)
	var err error
	if p.at, err = n.Reservation(name, ports); err != nil {
		t.Fatal(err)
	}
	p.do(func() {
		if err := n.Attach(p.at); err != nil {
			t.Error(err)
		}
		p.serve(":80")
	})
	return p
}

// serve answers with the place's name. It is called in there.
func (p *place) serve(at string) {
	l, err := net.Listen("tcp", at)
	if err != nil {
		p.t.Error(err)
		return
	}
	u, err := net.ListenPacket("udp", at)
	if err != nil {
		p.t.Error(err)
		return
	}
	p.t.Cleanup(func() { _, _ = l.Close(), u.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(c, "%s to %s\n", p.name, c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap())
			_ = c.Close()
		}
	}()
	go func() {
		var b [64]byte
		for {
			_, from, err := u.ReadFrom(b[:])
			if err != nil {
				return
			}
			_, _ = u.WriteTo(fmt.Appendf(nil, "%s to %s\n", p.name, from.(*net.UDPAddr).AddrPort().Addr().Unmap()), from)
		}
	}()
}

// ask returns who answers a client here, and whom that sees: "web to 10.97.0.1". Silence is "", after a while.
func (p *place) ask(network, at string) (said string) {
	p.t.Helper()
	return p.askFrom(network, "", at)
}

func (p *place) askFrom(network, from, at string) (said string) {
	p.t.Helper()
	p.do(func() {
		for range 3 { // packets of UDP may be lost
			d := net.Dialer{Timeout: 5 * time.Second}
			if from != "" {
				d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
			}
			c, err := d.Dial(network, at)
			if err != nil {
				said = ""
				return
			}
			defer c.Close()
			_, _ = c.Write([]byte("who?\n"))
			_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
			said, err = bufio.NewReader(c).ReadString('\n')
			said = strings.TrimSpace(said)
			if err == nil || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, io.EOF) {
				return
			}
		}
	})
	return said
}

func (p *place) want(network, at, answer string) {
	p.t.Helper()
	if got := p.ask(network, at); got != answer {
		p.t.Errorf("%s at %s, asked by %s: %q answers, want %q", network, at, p.name, got, answer)
	}
}

// outside makes a client on a wire of the host, whose addresses there are 192.168.7.1, 192.168.7.3 and fd07::1.
func outside(t testing.TB) *place {
	t.Helper()
	p := newPlace(t, "outside")
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "wire0"
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "wire1", PeerNamespace: netlink.NsFd(p.ns)}))
	t.Cleanup(func() { _ = netlink.LinkDel(&netlink.Veth{LinkAttrs: attrs}) })
	up := func(name string, addresses ...string) {
		link, err := netlink.LinkByName(name)
		must(err)
		for _, a := range addresses {
			addr, err := netlink.ParseAddr(a)
			must(err)
			addr.Flags = unix.IFA_F_NODAD
			must(netlink.AddrAdd(link, addr))
		}
		must(netlink.LinkSetUp(link))
	}
	up("wire0", "192.168.7.1/24", "192.168.7.3/24", "fd07::1/64")
	p.do(func() { up("wire1", "192.168.7.2/24", "fd07::2/64"); must(Loopback()) })
	return p
}

func upNetwork(t testing.TB, o Options) *Network {
	t.Helper()
	n, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Down(); n.Close() })
	if _, err := n.Up(); err != nil {
		t.Fatal(err)
	}
	if err := n.Settle(); err != nil {
		t.Fatal(err)
	}
	return n
}

func port(protocol uint8, host string) HostPort {
	return HostPort{protocol, netip.MustParseAddrPort(host), 80}
}

// everywhere is a port at all addresses of both families.
func everywhere(protocol uint8, p uint16) []HostPort {
	return []HostPort{port(protocol, fmt.Sprint("0.0.0.0:", p)), port(protocol, fmt.Sprintf("[::]:%d", p))}
}

// Host ports are reached from everywhere, and servers see who asks where answers come back without help (N8).
func TestHostPorts(t *testing.T) {
	nstest.NeedRoot(t)
	n := upNetwork(t, dual(t))
	client, host := outside(t), &place{t: t, name: "host", ns: netns.None()}
	web := pod(t, n, "web", slices.Concat(everywhere(unix.IPPROTO_TCP, 8080), everywhere(unix.IPPROTO_UDP, 8080))...)
	other := pod(t, n, "other")
	web4, web6, other4, other6 := web.at.Addresses[0], web.at.Addresses[1], other.at.Addresses[0], other.at.Addresses[1]
	for _, tt := range []struct {
		from   *place
		at     string
		answer string
	}{
		{client, "192.168.7.1:8080", "web to 192.168.7.2"},
		{client, "192.168.7.3:8080", "web to 192.168.7.2"},
		{client, "[fd07::1]:8080", "web to fd07::2"},
		{other, "192.168.7.1:8080", "web to " + other4.String()},
		{other, "10.97.0.1:8080", "web to " + other4.String()},
		{other, "[fd97::1]:8080", "web to " + other6.String()},
		{web, "10.97.0.1:8080", "web to 10.97.0.1"},
		{web, "192.168.7.1:8080", "web to 10.97.0.1"},
		{web, "[fd07::1]:8080", "web to fd97::1"},
		{host, "192.168.7.1:8080", "web to 192.168.7.1"},
		{host, "10.97.0.1:8080", "web to 10.97.0.1"},
		{host, "[fd07::1]:8080", "web to fd07::1"},
		{host, "127.0.0.1:8080", "web to 10.97.0.1"},
		{host, "127.1.2.3:8080", "web to 10.97.0.1"},
		{host, netip.AddrPortFrom(web4, 80).String(), "web to 10.97.0.1"},
		{client, "192.168.7.1:80", ""},
		{client, "192.168.7.1:8081", ""},
		{host, "[::1]:8080", ""}, // nothing lets it leave
		{other, netip.AddrPortFrom(web6, 8080).String(), ""},
	} {
		for _, network := range []string{"tcp", "udp"} {
			t.Run(fmt.Sprint(network, " ", tt.from.name, " ", tt.at), func(t *testing.T) {
				from := *tt.from
				from.t = t
				from.want(network, tt.at, tt.answer)
			})
		}
	}
	// As the conformance test of Kubernetes asks.
	for from, at := range map[string]string{"10.97.0.1": "127.0.0.1:8080", "fd97::1": "[::1]:8080"} {
		if got := host.askFrom("tcp", from, at); got != "web to "+from {
			t.Errorf("%s, asked from %s: %q answers", at, from, got)
		}
	}
}

// As the conformance test has it, and beyond: what differs in address or protocol is no conflict.
func TestHostPortsOfOneNumber(t *testing.T) {
	nstest.NeedRoot(t)
	n := upNetwork(t, options(t))
	client, host := outside(t), &place{t: t, name: "host", ns: netns.None()}
	pod(t, n, "loop", port(unix.IPPROTO_TCP, "127.0.0.1:54323"))
	one := pod(t, n, "one", port(unix.IPPROTO_TCP, "192.168.7.1:54323"))
	pod(t, n, "udp", port(unix.IPPROTO_UDP, "192.168.7.1:54323"))
	pod(t, n, "three", port(unix.IPPROTO_TCP, "192.168.7.3:54323"))
	// Within a pod what is said of one address comes before what is said of all.
	pod(t, n, "own", HostPort{unix.IPPROTO_TCP, netip.MustParseAddrPort("0.0.0.0:9000"), 81}, port(unix.IPPROTO_TCP, "192.168.7.3:9000"))
	all := func() {
		t.Helper()
		client.want("tcp", "192.168.7.1:54323", "one to 192.168.7.2")
		client.want("udp", "192.168.7.1:54323", "udp to 192.168.7.2")
		client.want("tcp", "192.168.7.3:54323", "three to 192.168.7.2")
		client.want("udp", "192.168.7.3:54323", "")
		client.want("tcp", "192.168.7.3:9000", "own to 192.168.7.2")
		client.want("tcp", "192.168.7.1:9000", "")
		host.want("tcp", "127.0.0.1:54323", "loop to 10.97.0.1")
		host.want("tcp", "192.168.7.1:54323", "one to 192.168.7.1")
	}
	all()
	before := tables(t)
	for _, taken := range []string{"192.168.7.1:54323", "0.0.0.0:54323"} {
		_, err := n.Reservation("thief", append([]HostPort{port(unix.IPPROTO_TCP, "192.168.7.1:7")}, port(unix.IPPROTO_TCP, taken)))
		wrong, ok := errors.AsType[*TakenError](err)
		if !ok || wrong.Port.Host.String() != taken || !slices.Contains([]string{"one", "loop", "three"}, wrong.Pod) || !strings.Contains(err.Error(), "54323") {
			t.Errorf("a second pod with %s: %v", taken, err)
		}
		if err := n.Detach("thief", Attachment{}); err != nil {
			t.Fatal(err)
		}
	}
	if after := tables(t); after != before {
		t.Errorf("a refused pod changed the rules:\n%s\nbefore:\n%s", after, before)
	}
	all()
	for range 2 {
		if err := n.Detach("one", one.at); err != nil {
			t.Fatal(err)
		}
	}
	client.want("tcp", "192.168.7.1:54323", "")
	client.want("udp", "192.168.7.1:54323", "udp to 192.168.7.2")
	pod(t, n, "next", port(unix.IPPROTO_TCP, "192.168.7.1:54323"), port(unix.IPPROTO_TCP, "192.168.7.1:7"))
	client.want("tcp", "192.168.7.1:54323", "next to 192.168.7.2")
}

// tables is everything that is in nftables.
func tables(t testing.TB) string {
	t.Helper()
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	list, err := c.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range list {
		sets, err := c.GetSets(table)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sets {
			elements, err := c.GetSetElements(s)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range elements {
				lines = append(lines, fmt.Sprintf("%d %s %s %x %x", table.Family, table.Name, s.Name, e.Key, e.Val))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// A client that keeps sending from one port reaches the pod that has the host port now.
func TestFlowsToHostPortsFollow(t *testing.T) {
	nstest.NeedRoot(t)
	n := upNetwork(t, options(t))
	client := outside(t)
	(&place{t: t, name: "host"}).serve("0.0.0.0:5353")
	var c net.Conn
	client.do(func() {
		var err error
		if c, err = net.Dial("udp", "192.168.7.1:5353"); err != nil {
			t.Error(err)
		}
	})
	defer c.Close()
	want := func(who string) {
		t.Helper()
		for range 3 {
			_, _ = c.Write([]byte("who?"))
			_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
			var b [64]byte
			if k, err := c.Read(b[:]); err == nil {
				if got := string(b[:k]); got != who+" to 192.168.7.2\n" {
					t.Errorf("%q answers, want %s", got, who)
				}
				return
			}
		}
		t.Errorf("nobody answers, want %s", who)
	}
	want("host")
	first := pod(t, n, "first", everywhere(unix.IPPROTO_UDP, 5353)[0])
	want("first")
	pod(t, n, "bystander", port(unix.IPPROTO_UDP, "0.0.0.0:5354"))
	want("first")
	if err := n.Detach("first", first.at); err != nil {
		t.Fatal(err)
	}
	want("host")
	second := pod(t, n, "second", port(unix.IPPROTO_UDP, "192.168.7.1:5353"))
	want("second")
	// A new process finds out that the pod has ended while no process was running (N4).
	again := newNetwork(t, options(t))
	if _, err := again.Up(); err != nil {
		t.Fatal(err)
	}
	want("second")
	if err := again.Detach("second", second.at); err != nil {
		t.Fatal(err)
	}
	if err := again.Settle(); err != nil {
		t.Fatal(err)
	}
	want("host")
	pod(t, again, "third", port(unix.IPPROTO_UDP, "192.168.7.1:5353"))
	want("third")
	if err := again.Down(); err != nil {
		t.Fatal(err)
	}
	want("host")
}

// Rules of host ports outlive the process, and rules of pods that have ended are removed by the next one (N8).
func TestHostPortsOutliveTheProcess(t *testing.T) {
	nstest.NeedRoot(t)
	n := upNetwork(t, options(t))
	client, host := outside(t), &place{t: t, name: "host", ns: netns.None()}
	stays := pod(t, n, "stays", everywhere(unix.IPPROTO_TCP, 8080)[0])
	pod(t, n, "goes", everywhere(unix.IPPROTO_TCP, 9090)[0])
	half := reserved(t, n, "half", port(unix.IPPROTO_TCP, "0.0.0.0:7070"))
	client.want("tcp", "192.168.7.1:7070", "") // it is not published yet
	before := tables(t)

	again := newNetwork(t, options(t))
	if _, err := again.Up(); err != nil {
		t.Fatal(err)
	}
	if got := tables(t); got != before {
		t.Errorf("after Up:\n%s\nbefore:\n%s", got, before)
	}
	client.want("tcp", "192.168.7.1:8080", "stays to 192.168.7.2")
	// One that was cut off in its making, and another that never got the port.
	if err := again.Detach("half", half.at); err != nil {
		t.Fatal(err)
	}
	if err := again.Detach("never", Attachment{Addresses: prefixAddrs("10.97.0.77"), Ports: stays.at.Ports}); err != nil {
		t.Fatal(err)
	}
	if err := again.Reserve("stays", stays.at); err != nil {
		t.Fatal(err)
	}
	// A version that led host ports nowhere let two pods have one.
	if err := again.Reserve("double", Attachment{Addresses: prefixAddrs("10.97.0.78"), Ports: stays.at.Ports}); err != nil {
		t.Errorf("a second pod with a port of the host, found after a start: %v", err)
	}
	client.want("tcp", "192.168.7.1:8080", "stays to 192.168.7.2")
	client.want("tcp", "192.168.7.1:9090", "goes to 192.168.7.2")
	if err := again.Settle(); err != nil {
		t.Fatal(err)
	}
	client.want("tcp", "192.168.7.1:8080", "stays to 192.168.7.2")
	host.want("tcp", "127.0.0.1:8080", "stays to 10.97.0.1")
	client.want("tcp", "192.168.7.1:9090", "")
	if _, err := again.Reservation("thief", stays.at.Ports); err == nil {
		t.Error("the port of a pod that was found was given to a second one")
	}
	// Another program has removed all rules: the next pod restores them.
	flush(t)
	pod(t, again, "later", port(unix.IPPROTO_TCP, "0.0.0.0:6060"))
	client.want("tcp", "192.168.7.1:8080", "stays to 192.168.7.2")
	client.want("tcp", "192.168.7.1:6060", "later to 192.168.7.2")
}

// ruleset is everything that there is, as the program nft says it.
func ruleset(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("nft list ruleset: %v: %s", err, out)
	}
	return string(out)
}

// flush removes all rules, as `nft flush ruleset` does.
func flush(t *testing.T) {
	t.Helper()
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	c.FlushRuleset()
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
}

// TestRulesThatSomebodyRemovedAreRestored has all of them removed, before it is known which pods there are and after.
func TestRulesThatSomebodyRemovedAreRestored(t *testing.T) {
	nstest.NeedRoot(t)
	n := newNetwork(t, options(t))
	if _, err := n.Up(); err != nil {
		t.Fatal(err)
	}
	for _, found := range []bool{false, true} {
		if found {
			if err := n.Settle(); err != nil {
				t.Fatal(err)
			}
			pod(t, n, "pod", everywhere(unix.IPPROTO_TCP, 8080)[0])
		}
		before := ruleset(t)
		if err := n.Restore(); err != nil {
			t.Fatal(err)
		}
		if got := ruleset(t); got != before {
			t.Errorf("restored where nothing was missing:\n%s\nbefore:\n%s", got, before)
		}
		flush(t)
		if got := ruleset(t); got == before {
			t.Fatalf("after all rules were removed there is still:\n%s", got)
		}
		if err := n.Restore(); err != nil {
			t.Fatal(err)
		}
		if got := ruleset(t); got != before {
			t.Errorf("restored:\n%s\nbefore:\n%s", got, before)
		}
	}
	outside(t).want("tcp", "192.168.7.1:8080", "pod to 192.168.7.2")
}

func prefixAddrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// Rules of services come before host ports, and packets that only pass through the host are not redirected.
func TestHostPortsComeAfterServices(t *testing.T) {
	nstest.NeedRoot(t)
	n := upNetwork(t, options(t))
	client, host := outside(t), &place{t: t, name: "host", ns: netns.None()}
	pod(t, n, "web", everywhere(unix.IPPROTO_TCP, 30080)[0])
	backend := pod(t, n, "backend")
	to := backend.at.Addresses[0]
	c, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "sampan-network-test-services"})
	t.Cleanup(func() { c.DelTable(table); _ = c.Flush() })
	for name, hook := range map[string]*nftables.ChainHook{"prerouting": nftables.ChainHookPrerouting, "output": nftables.ChainHookOutput} {
		chain := c.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: nftables.ChainPriorityNATDest})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1}, &expr.Cmp{Register: 1, Data: []byte{unix.NFPROTO_IPV4}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}, &expr.Cmp{Register: 1, Data: []byte{192, 168, 7, 3}},
			&expr.Immediate{Register: 1, Data: to.AsSlice()},
			&expr.Immediate{Register: 2, Data: []byte{0, 80}},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2},
		}})
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	client.want("tcp", "192.168.7.3:30080", "backend to 192.168.7.2")
	client.want("tcp", "192.168.7.1:30080", "web to 192.168.7.2")
	host.want("tcp", "192.168.7.3:30080", "backend to 192.168.7.1")
	host.want("tcp", "192.168.7.1:30080", "web to 192.168.7.1")
	// The same port of a machine beyond this host.
	client.do(func() { client.serve("192.168.7.2:30080") })
	backend.want("tcp", "192.168.7.2:30080", "outside to 192.168.7.1")
	host.want("tcp", "192.168.7.2:30080", "outside to 192.168.7.1")
}

// A pod that makes packets itself does not reach what listens on loopback of the host (N9).
func TestPodsDoNotReachLoopback(t *testing.T) {
	nstest.NeedRoot(t)
	n := upNetwork(t, options(t))
	web := pod(t, n, "web", everywhere(unix.IPPROTO_TCP, 8080)[0])
	if now, err := os.ReadFile("/proc/sys/net/ipv4/conf/spn0/route_localnet"); err != nil || string(now) != "1\n" {
		t.Fatalf("route_localnet is %q, %v: this tests nothing", now, err)
	}
	secret, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	open, err := net.ListenPacket("udp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	bridge, err := netlink.LinkByName("spn0")
	if err != nil {
		t.Fatal(err)
	}
	send := func(from, to netip.Addr, port int) {
		t.Helper()
		web.do(func() {
			eth0, err := netlink.LinkByName("eth0")
			if err != nil {
				t.Error(err)
				return
			}
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0)
			if err != nil {
				t.Error(err)
				return
			}
			defer unix.Close(fd)
			at := &unix.SockaddrLinklayer{Protocol: 0x0008, Ifindex: eth0.Attrs().Index, Halen: 6} // IPv4, in the order of the network
			copy(at.Addr[:], bridge.Attrs().HardwareAddr)
			if err := unix.Sendto(fd, datagram(from, to, port), 0, at); err != nil {
				t.Error(err)
			}
		})
	}
	pod4, loop, gateway := web.at.Addresses[0], netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.97.0.1")
	send(pod4, loop, secret.LocalAddr().(*net.UDPAddr).Port)
	send(loop, loop, secret.LocalAddr().(*net.UDPAddr).Port)
	send(loop, gateway, open.LocalAddr().(*net.UDPAddr).Port)
	send(pod4, gateway, open.LocalAddr().(*net.UDPAddr).Port) // which arrives, after the others
	var b [64]byte
	_ = open.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, from, err := open.ReadFrom(b[:]); err != nil || from.(*net.UDPAddr).AddrPort().Addr() != pod4 {
		t.Errorf("at the bridge: from %v, %v; want from the pod %v alone", from, err, pod4)
	}
	if _, err := open.WriteTo([]byte("o"), secret.LocalAddr()); err != nil { // after the others, too
		t.Fatal(err)
	}
	_ = secret.SetReadDeadline(time.Now().Add(20 * time.Second))
	if k, from, err := secret.ReadFrom(b[:]); err != nil || string(b[:k]) != "o" {
		t.Errorf("on loopback: %q from %v, %v; want nothing of a pod", b[:k], from, err)
	}
	if err := n.Detach("web", web.at); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile("/proc/sys/net/ipv4/conf/spn0/route_localnet"); err != nil || string(now) != "0\n" {
		t.Errorf("without host ports route_localnet is %q, %v", now, err)
	}
}

// datagram returns a UDP packet without a checksum, which is optional.
func datagram(from, to netip.Addr, port int) []byte {
	b := []byte{0x45, 0, 0, 29, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
	b = append(append(b, from.AsSlice()...), to.AsSlice()...)
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	sum = sum>>16 + sum&0xffff
	sum = ^(sum + sum>>16)
	b[10], b[11] = byte(sum>>8), byte(sum)
	return append(b, 0x30, 0x39, byte(port>>8), byte(port), 0, 9, 0, 0, 'x')
}

// The first packet of a connection of SCTP arrives at the pod's port. Kernels that pass it on need
// not have the protocol.
func TestHostPortsOfSCTP(t *testing.T) {
	nstest.NeedRoot(t)
	n := upNetwork(t, options(t))
	client := outside(t)
	web := pod(t, n, "web", port(unix.IPPROTO_SCTP, "0.0.0.0:9000"))
	listen := func(p *place, at string) (c *net.IPConn) {
		p.do(func() {
			var err error
			if c, err = net.ListenIP("ip4:132", &net.IPAddr{IP: net.ParseIP(at)}); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	server, from := listen(web, web.at.Addresses[0].String()), listen(client, "192.168.7.2")
	// Ports, tag and checksum, and a chunk INIT with one stream each way (RFC 9260, 3.3.2).
	packet := binary.BigEndian.AppendUint16(nil, 5000)
	packet = binary.BigEndian.AppendUint16(packet, 9000)
	packet = append(packet, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 20, 7, 7, 7, 7, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1)
	binary.LittleEndian.PutUint32(packet[8:], crc32.Checksum(packet, crc32.MakeTable(crc32.Castagnoli)))
	if _, err := from.WriteTo(packet, &net.IPAddr{IP: net.ParseIP("192.168.7.1")}); err != nil {
		t.Fatal(err)
	}
	_ = server.SetReadDeadline(time.Now().Add(20 * time.Second))
	var b [128]byte
	k, _, err := server.ReadFromIP(b[:])
	if err != nil || k < 4 || binary.BigEndian.Uint16(b[2:]) != 80 {
		t.Errorf("the pod got % x, %v; want a packet to port 80", b[:k], err)
	}
}

// TestManyHostPorts publishes more than the usual send buffer of a socket holds, and takes it back.
func TestManyHostPorts(t *testing.T) {
	nstest.NeedRoot(t)
	n := upNetwork(t, dual(t))
	const pods, each = 15, 2000
	var all []Attachment
	for i := range pods {
		var ports []HostPort
		for j := range each {
			ports = append(ports, everywhere(unix.IPPROTO_TCP, uint16(1024+i*each+j))...)
		}
		name := fmt.Sprint("pod-", i)
		at, err := n.Reservation(name, ports)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Publish(name); err != nil {
			t.Fatalf("pod %d with %d host ports: %v", i, each, err)
		}
		all = append(all, at)
	}
	if got, want := strings.Count(tables(t), "host-ports-anywhere"), 2*pods*each; got != want {
		t.Errorf("%d host ports lead to pods, want %d", got, want)
	}
	for i, at := range all {
		if err := n.Detach(fmt.Sprint("pod-", i), at); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Count(tables(t), "host-ports-anywhere"); got > 0 {
		t.Errorf("%d host ports are left of pods that are gone", got)
	}
}

// TestPodWhoseRulesFailLeavesTheOthers has a pod with two ports of its own behind one of the host, which the kernel refuses.
func TestPodWhoseRulesFailLeavesTheOthers(t *testing.T) {
	nstest.NeedRoot(t)
	n := upNetwork(t, options(t))
	host := &place{t: t, name: "host", ns: netns.None()}
	first := pod(t, n, "first", port(unix.IPPROTO_TCP, "0.0.0.0:8080"))
	at := netip.MustParseAddrPort("0.0.0.0:9090")
	bad, err := n.Reservation("bad", []HostPort{{unix.IPPROTO_TCP, at, 80}, {unix.IPPROTO_TCP, at, 81}})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Publish("bad"); err == nil {
		t.Fatal("one port of the host leads to two of a pod")
	}
	pod(t, n, "second", port(unix.IPPROTO_TCP, "0.0.0.0:8081"))
	host.want("tcp", "10.97.0.1:8080", "first to 10.97.0.1")
	host.want("tcp", "10.97.0.1:8081", "second to 10.97.0.1")
	if err := n.Detach("first", first.at); err != nil {
		t.Error(err)
	}
	host.want("tcp", "10.97.0.1:8080", "")
	if err := n.Detach("bad", bad); err != nil {
		t.Error(err)
	}
	pod(t, n, "third", port(unix.IPPROTO_TCP, "0.0.0.0:9090"))
	host.want("tcp", "10.97.0.1:9090", "third to 10.97.0.1")
}

func TestCheckOwn(t *testing.T) {
	for _, tt := range []struct {
		port HostPort
		own  uint16
		want string
	}{
		{port(unix.IPPROTO_TCP, "0.0.0.0:46053"), 46053, "host port 46053/TCP is a port of the container runtime itself"},
		{port(unix.IPPROTO_TCP, "[::]:46053"), 46053, "host port 46053/TCP is a port of the container runtime itself"},
		{port(unix.IPPROTO_TCP, "127.0.0.1:46053"), 46053, "host port 127.0.0.1:46053/TCP is a port of the container runtime itself"},
		{port(unix.IPPROTO_TCP, "192.168.7.1:46053"), 46053, "host port 192.168.7.1:46053/TCP is a port of the container runtime itself"},
		{port(unix.IPPROTO_UDP, "0.0.0.0:46053"), 46053, ""},
		{port(unix.IPPROTO_TCP, "0.0.0.0:46054"), 46053, ""},
		{port(unix.IPPROTO_TCP, "0.0.0.0:46053"), 0, ""},
	} {
		err := CheckOwn([]HostPort{port(unix.IPPROTO_TCP, "0.0.0.0:8080"), tt.port}, tt.own)
		if said := fmt.Sprint(err); said != cmp.Or(tt.want, "<nil>") {
			t.Errorf("%v, where the runtime has %d: %v, want %q", tt.port, tt.own, err, tt.want)
		}
	}
}
