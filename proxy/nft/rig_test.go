package nft_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/nft"
)

// A host is a network namespace: a node, a pod, or a client outside.
type host struct {
	t    testing.TB
	name string
	ns   netns.NsHandle
	ip   map[bool]netip.Addr // whether of IPv6 → its address
}

// do runs f in the host's namespace.
func (h *host) do(f func()) {
	h.t.Helper()
	var wg sync.WaitGroup
	done := false
	wg.Go(func() {
		runtime.LockOSThread() // and never unlocked, so that the thread ends with the goroutine
		if err := netns.Set(h.ns); err != nil {
			h.t.Error(err)
			return
		}
		f()
		done = true
	})
	wg.Wait()
	if !done {
		h.t.FailNow() // as f did, which must not on a goroutine of its own
	}
}

// A world is three nodes with pods, and a client outside, on one wire.
type world struct {
	t      testing.TB
	nodes  []*node
	client *host

	options nft.Options // of the nodes' kernels; Pods are the node's own
}

type node struct {
	*host
	pods   []*host
	kernel *nft.Kernel
}

const (
	podsPerNode = 2
	clientHost  = 100
)

var (
	serviceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("fd00:2::/112")}
	externals    = []netip.Prefix{netip.MustParsePrefix("172.30.0.0/24"), netip.MustParsePrefix("fd00:e::/112")} // routed to the first node
)

func wire(v6 bool, n int) netip.Prefix {
	if v6 {
		return netip.MustParsePrefix(fmt.Sprintf("fd00:a::%d/64", n))
	}
	return netip.MustParsePrefix(fmt.Sprintf("192.168.0.%d/24", n))
}

func podNet(v6 bool, node, n int) netip.Prefix {
	if v6 {
		return netip.MustParsePrefix(fmt.Sprintf("fd00:1:%d::%d/64", node, n))
	}
	return netip.MustParsePrefix(fmt.Sprintf("10.1.%d.%d/24", node, n))
}

func both(f func(v6 bool)) { f(false); f(true) }

func newWorld(t testing.TB) *world {
	t.Helper()
	nstest.NeedRoot(t)
	w := &world{t: t, options: nft.Options{Table: "sampan-test", ServiceCIDRs: serviceCIDRs}}
	fabric := w.host("fabric")
	fabric.do(func() {
		w.must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "wire"}}))
		w.up("wire")
	})
	for i := 1; i <= 3; i++ {
		n := &node{host: w.host(fmt.Sprintf("node%d", i))}
		w.nodes = append(w.nodes, n)
		w.cable(fabric, "wire", fmt.Sprintf("n%d", i), n.host)
		n.do(func() {
			w.sysctl("net/ipv4/ip_forward", "1")
			for _, s := range []string{"net/ipv4/conf/all/send_redirects", "net/ipv4/conf/default/send_redirects", "net/ipv4/icmp_ratelimit", "net/ipv6/icmp/ratelimit"} {
				w.sysctl(s, "0") // they share the rate limit of ICMP errors
			}
			w.sysctl("net/ipv6/conf/all/forwarding", "1")
			w.must(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "pods"}}))
			both(func(v6 bool) {
				n.ip[v6] = wire(v6, i).Addr()
				w.address("eth0", wire(v6, i))
				w.address("pods", podNet(v6, i, 1))
			})
			w.up("eth0")
			w.up("pods")
			for _, s := range serviceCIDRs {
				w.route("pods", s, netip.Addr{})
			}
			both(func(v6 bool) { w.route("eth0", everything(v6), netip.Addr{}) }) // where no host is
		})
		for j := range podsPerNode {
			p := w.host(fmt.Sprintf("pod%d%c", i, 'a'+j))
			n.pods = append(n.pods, p)
			w.cable(n.host, "pods", fmt.Sprintf("p%d", j), p)
			p.do(func() {
				both(func(v6 bool) {
					p.ip[v6] = podNet(v6, i, 10+j).Addr()
					w.address("eth0", podNet(v6, i, 10+j))
				})
				w.up("eth0")
				both(func(v6 bool) { w.route("eth0", everything(v6), podNet(v6, i, 1).Addr()) })
			})
			// A pod may reach itself through the node.
			n.do(func() {
				l, err := netlink.LinkByName(fmt.Sprintf("p%d", j))
				w.must(err)
				w.must(netlink.LinkSetHairpin(l, true))
			})
		}
	}
	for i, n := range w.nodes {
		n.do(func() {
			for j := range w.nodes {
				if i != j {
					both(func(v6 bool) { w.route("eth0", podNet(v6, j+1, 0).Masked(), wire(v6, j+1).Addr()) })
				}
			}
		})
	}
	w.client = w.host("client")
	w.cable(fabric, "wire", "client", w.client)
	w.client.do(func() {
		both(func(v6 bool) {
			w.client.ip[v6] = wire(v6, clientHost).Addr()
			w.address("eth0", wire(v6, clientHost))
		})
		w.up("eth0")
		for _, p := range append(externals, serviceCIDRs...) {
			w.route("eth0", p, w.nodes[0].ip[p.Addr().Is6()])
		}
	})
	return w
}

func everything(v6 bool) netip.Prefix {
	if v6 {
		return netip.MustParsePrefix("::/0")
	}
	return netip.MustParsePrefix("0.0.0.0/0")
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) host(name string) *host {
	h := &host{t: w.t, name: name, ip: map[bool]netip.Addr{}}
	var wg sync.WaitGroup
	var err error
	wg.Go(func() {
		runtime.LockOSThread()
		if h.ns, err = netns.New(); err == nil {
			for _, s := range []string{"net/ipv6/conf/all/accept_dad", "net/ipv6/conf/default/accept_dad"} {
				err = errors.Join(err, os.WriteFile("/proc/sys/"+s, []byte("0"), 0))
			}
		}
	})
	wg.Wait()
	w.must(err)
	w.t.Cleanup(func() { _ = h.ns.Close() })
	h.do(func() { w.up("lo") })
	return h
}

func (w *world) up(link string) {
	l, err := netlink.LinkByName(link)
	w.must(err)
	w.must(netlink.LinkSetUp(l))
}

func (w *world) sysctl(name, value string) {
	w.must(os.WriteFile("/proc/sys/"+name, []byte(value), 0))
}

func (w *world) address(link string, p netip.Prefix) {
	l, err := netlink.LinkByName(link)
	w.must(err)
	a, err := netlink.ParseAddr(p.String())
	w.must(err)
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	w.must(netlink.AddrAdd(l, a))
}

func (w *world) route(link string, to netip.Prefix, via netip.Addr) {
	l, err := netlink.LinkByName(link)
	w.must(err)
	_, dst, err := net.ParseCIDR(to.String())
	w.must(err)
	r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Scope: netlink.SCOPE_LINK}
	if via.IsValid() {
		r.Gw, r.Scope = via.AsSlice(), netlink.SCOPE_UNIVERSE
	}
	w.must(netlink.RouteAdd(r))
}

// cable connects a bridge of one host with eth0 of another one.
func (w *world) cable(from *host, bridge, port string, to *host) {
	from.do(func() {
		w.must(netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: port}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(to.ns)),
		}))
		l, err := netlink.LinkByName(port)
		w.must(err)
		br, err := netlink.LinkByName(bridge)
		w.must(err)
		w.must(netlink.LinkSetMaster(l, br))
		w.up(port)
	})
}

// kernel is what a process that starts on a node has.
func (w *world) kernel(node int) *nft.Kernel {
	w.t.Helper()
	o := w.options
	o.Pods = []netip.Prefix{podNet(false, node+1, 0), podNet(true, node+1, 0)}
	k, err := nft.New(o)
	w.must(err)
	return k
}

// start gives every node a kernel with these rules.
func (w *world) start(rules ...proxy.Rule) {
	w.t.Helper()
	for i, n := range w.nodes {
		n.kernel = w.kernel(i)
		n.do(func() { w.must(n.kernel.Replace(w.t.Context(), rules)) })
	}
}

func (w *world) stop() {
	w.t.Helper()
	for _, n := range w.nodes {
		n.do(func() { w.must(n.kernel.Close()) })
	}
}

func (w *world) update(changes ...proxy.Change) {
	w.t.Helper()
	for _, n := range w.nodes {
		n.do(func() { w.must(n.kernel.Update(w.t.Context(), changes)) })
	}
}

// listen answers at an address of the host until the test ends: each datagram with what packet makes of it, and
// each connection as stream does, after which it is closed.
func (h *host) listen(protocol corev1.Protocol, at string, packet func(p []byte, from net.Addr) []byte, stream func(net.Conn)) {
	h.t.Helper()
	h.do(func() {
		if protocol == corev1.ProtocolUDP {
			c, err := net.ListenPacket("udp", at)
			if err != nil {
				h.t.Error(err)
				return
			}
			h.t.Cleanup(func() { c.Close() })
			go func() {
				buf := make([]byte, 2000) // more than a link carries
				for {
					n, from, err := c.ReadFrom(buf)
					if err != nil {
						return
					}
					_, _ = c.WriteTo(packet(buf[:n], from), from)
				}
			}()
			return
		}
		l, err := net.Listen("tcp", at)
		if err != nil {
			h.t.Error(err)
			return
		}
		h.t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { defer c.Close(); stream(c) }()
			}
		}()
	})
}

// serve answers every line with the name of the host and the address of the client.
func (h *host) serve(protocol corev1.Protocol, port uint16, addr ...netip.Addr) {
	h.t.Helper()
	at := fmt.Sprintf(":%d", port)
	if len(addr) > 0 {
		at = netip.AddrPortFrom(addr[0], port).String()
	}
	packet := func(_ []byte, from net.Addr) []byte { return []byte(h.answer(from)) }
	h.listen(protocol, at, packet, func(c net.Conn) {
		for s := bufio.NewScanner(c); s.Scan(); {
			if _, err := io.WriteString(c, h.answer(c.RemoteAddr())+"\n"); err != nil {
				return
			}
		}
	})
}

// echo answers with what it hears, at an address.
func (h *host) echo(p corev1.Protocol, at netip.AddrPort) {
	h.t.Helper()
	packet := func(p []byte, _ net.Addr) []byte { return p }
	h.listen(p, at.String(), packet, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

func (h *host) answer(from net.Addr) string {
	ap := netip.MustParseAddrPort(from.String())
	return h.name + " " + ap.Addr().Unmap().String()
}

// ask asks a server that serve made, on a connection of its own.
func (h *host) ask(protocol corev1.Protocol, at netip.AddrPort) (string, error) {
	c, err := h.dial(protocol, at)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return talk(c)
}

// patience is how long nothing has to come before a test takes it that nothing will.
const patience = 500 * time.Millisecond

func (h *host) dial(protocol corev1.Protocol, at netip.AddrPort) (net.Conn, error) {
	return h.dialFor(protocol, at, 20*patience)
}

func (h *host) dialFor(protocol corev1.Protocol, at netip.AddrPort, limit time.Duration) (c net.Conn, err error) {
	h.do(func() { c, err = net.DialTimeout(strings.ToLower(string(protocol)), at.String(), limit) })
	return c, err
}

func talk(c net.Conn) (string, error) { return talkFor(c, 20*patience) }

func talkFor(c net.Conn, limit time.Duration) (string, error) {
	_ = c.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(c, "hello\n"); err != nil && !errors.Is(err, unix.EPERM) { // EPERM is what refusal of one's own datagram is
		return "", err
	}
	buf := make([]byte, 1500)
	n, err := c.Read(buf)
	return strings.TrimSpace(string(buf[:n])), err
}
