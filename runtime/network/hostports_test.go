package network

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
