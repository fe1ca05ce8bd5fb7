package hosts

import (
	"errors"
	"fmt"
	"net/netip"
)

// A Node is a host with pods.
type Node struct {
	*Host
	Pods []*Host
}

// A World is the network that the package describes.
type World struct {
	Nodes                        []*Node
	Client, Router, Far, Control *Host

	hosts []*Host
}

// Networks of a world, of IPv4 and of IPv6.
var (
	Wire    = [2]netip.Prefix{netip.MustParsePrefix("192.168.7.0/24"), netip.MustParsePrefix("fd07::/64")}
	Beyond  = [2]netip.Prefix{netip.MustParsePrefix("192.168.8.0/24"), netip.MustParsePrefix("fd08::/64")}
	AllPods = [2]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd01::/32")}

	// Services is the network of cluster IPs, and Externals one of external IPs: client
	// and router send both to the first node.
	Services  = [2]netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd96::/112")}
	Externals = [2]netip.Prefix{netip.MustParsePrefix("172.30.0.0/24"), netip.MustParsePrefix("fd30::/112")}

	management = netip.MustParsePrefix("10.9.0.0/24")
)

var everything = [2]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// At returns the n-th address of a network.
func At(network netip.Prefix, n int) netip.Addr {
	b := network.Addr().AsSlice()
	b[len(b)-1], b[len(b)-2] = byte(n), b[len(b)-2]+byte(n>>8)
	a, _ := netip.AddrFromSlice(b)
	return a
}

// hex is the number that is written with the digits of a decimal one, so that
// addresses of both families look alike.
func hex(n int) int {
	h, shift := 0, 0
	for ; n > 0; n /= 10 {
		h |= n % 10 << shift
		shift += 4
	}
	return h
}

func in(network netip.Prefix, n int) netip.Prefix {
	if network.Addr().Is6() {
		n = hex(n)
	}
	return netip.PrefixFrom(At(network, n), network.Bits())
}

// PodNetwork is that of the n-th node, counted from 1.
func PodNetwork(family, n int) netip.Prefix {
	if family == 0 {
		return netip.MustParsePrefix(fmt.Sprintf("10.1.%d.0/24", n))
	}
	return netip.MustParsePrefix(fmt.Sprintf("fd01:%d::/64", n))
}

// ManagementAddress is that of the n-th node for the API server.
func ManagementAddress(n int) netip.Addr { return At(management, n) }

// ControlAddress is where nodes reach the host of the API server.
func ControlAddress() netip.Addr { return At(management, 100) }

const (
	nodes     = 3
	outside   = 100
	routing   = 254
	firstPod  = 10
	podBridge = "pods"
)

// New makes a world whose nodes have so many pods each.
func New(podsPerNode int) (_ *World, err error) {
	w := &World{}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	m := &maker{world: w}
	fabric := m.host("fabric")
	m.do(func() error { return fabric.Bridge("wire") })
	m.do(func() error { return fabric.Bridge("beyond") })
	m.do(func() error { return fabric.Bridge("management") })
	for i := 1; i <= nodes; i++ {
		m.node(fabric, i, podsPerNode)
	}
	w.Client, w.Router, w.Far, w.Control = m.host("client"), m.host("router"), m.host("far"), m.host("control")
	m.link(fabric, "wire", w.Client, "eth0", outside, Wire)
	m.link(fabric, "wire", w.Router, "eth0", routing, Wire)
	m.link(fabric, "beyond", w.Router, "eth1", routing, Beyond)
	m.link(fabric, "beyond", w.Far, "eth0", outside, Beyond)
	m.do(func() error { return fabric.Cable("management", "control", w.Control, "eth0") })
	m.do(func() error { return w.Control.Address("eth0", netip.PrefixFrom(ControlAddress(), management.Bits())) })
	m.forward(w.Router)
	for f := range 2 {
		for _, to := range []netip.Prefix{Services[f], Externals[f]} {
			for _, h := range []*Host{w.Client, w.Router} {
				m.route(h, to, w.node(0).IP[f])
			}
		}
		m.route(w.Client, Beyond[f], w.routerAt(f))
		m.route(w.Far, everything[f], in(Beyond[f], routing).Addr())
		for i := range nodes {
			for j := range nodes {
				if i != j {
					m.route(w.node(i), PodNetwork(f, j+1), w.node(j).IP[f])
				}
			}
			m.route(w.node(i), everything[f], w.routerAt(f))
			m.route(w.Router, PodNetwork(f, i+1), w.node(i).IP[f])
			m.route(w.Client, PodNetwork(f, i+1), w.node(i).IP[f])
		}
	}
	return w, m.err
}

func (w *World) node(i int) *Host {
	if i < len(w.Nodes) {
		return w.Nodes[i].Host
	}
	return nil
}

func (w *World) routerAt(f int) netip.Addr { return in(Wire[f], routing).Addr() }

// Close lets all hosts go.
func (w *World) Close() {
	for _, h := range w.hosts {
		h.Close()
	}
}

// A maker makes things until one can't be made.
type maker struct {
	world *World
	err   error
}

func (m *maker) do(f func() error) {
	if m.err == nil {
		m.err = f()
	}
}

func (m *maker) host(name string) (h *Host) {
	m.do(func() (err error) {
		if h, err = NewHost(name); err == nil {
			m.world.hosts = append(m.world.hosts, h)
		}
		return err
	})
	return h
}

func (m *maker) route(h *Host, to netip.Prefix, via netip.Addr) {
	m.do(func() error { return h.Route(to, via) })
}

// link connects a host with a switch, at the n-th addresses of its networks.
func (m *maker) link(fabric *Host, bridge string, h *Host, link string, n int, networks [2]netip.Prefix) {
	m.do(func() error { return fabric.Cable(bridge, h.Name+"-"+link[3:], h, link) })
	for f, network := range networks {
		at := in(network, n)
		m.do(func() error { return h.Address(link, at) })
		if m.err == nil && !h.IP[f].IsValid() {
			h.IP[f] = at.Addr()
		}
	}
}

func (m *maker) forward(h *Host) {
	for name, value := range map[string]string{
		"net/ipv4/ip_forward":          "1",
		"net/ipv6/conf/all/forwarding": "1",
		// Do not send ICMP redirects to hosts of one link.
		"net/ipv4/conf/all/send_redirects":     "0",
		"net/ipv4/conf/default/send_redirects": "0",
		// A refusal is not held back because there were many.
		"net/ipv4/icmp_ratelimit":    "0",
		"net/ipv6/icmp/ratelimit":    "0",
		"net/ipv4/icmp_msgs_per_sec": "1000000", // of both families
		"net/ipv4/icmp_msgs_burst":   "100000",
	} {
		m.do(func() error { return h.Sysctl(name, value) })
	}
}

func (m *maker) node(fabric *Host, i, pods int) {
	h := m.host(fmt.Sprintf("node%d", i))
	m.do(func() error {
		m.world.Nodes = append(m.world.Nodes, &Node{Host: h})
		return nil
	})
	m.link(fabric, "wire", h, "eth0", i, Wire)
	m.do(func() error {
		return errors.Join(fabric.Cable("management", fmt.Sprintf("m%d", i), h, "eth1"), h.Address("eth1", netip.PrefixFrom(ManagementAddress(i), management.Bits())))
	})
	m.do(func() error { return h.Bridge(podBridge) })
	for f := range 2 {
		m.do(func() error { return h.Address(podBridge, in(PodNetwork(f, i), 1)) })
	}
	if m.err == nil {
		m.forward(h)
	}
	for j := range pods {
		p := m.host(fmt.Sprintf("pod%d%c", i, 'a'+j))
		networks := [2]netip.Prefix{PodNetwork(0, i), PodNetwork(1, i)}
		m.do(func() error { return h.Cable(podBridge, fmt.Sprintf("p%d", j), p, "eth0") })
		for f, network := range networks {
			at := in(network, firstPod+j)
			m.do(func() error { p.IP[f] = at.Addr(); return p.Address("eth0", at) })
			m.route(p, everything[f], in(network, 1).Addr())
		}
		m.do(func() error {
			n := m.world.Nodes[i-1]
			n.Pods = append(n.Pods, p)
			return nil
		})
	}
}
