package nft_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/vishvananda/netlink"

	"github.com/sampan-io/sampan/internal/netdump"
	"github.com/sampan-io/sampan/proxy"
)

// TestAPortIsUsedAgainAfterAReset has a server reset a connection, and then takes it out. The client's next
// connection from the same port has to go to the server that is left.
func TestAPortIsUsedAgainAfterAReset(t *testing.T) {
	w := newWorld(t)
	n := w.nodes[0]
	left := w.nodes[1].pods[0]
	left.serve(corev1.ProtocolTCP, target)
	nextPort := uint16(40_000)
	both(func(v6 bool) {
		q := w.queue(v6)
		defer q.listener.Close()
		defer n.run()()
		atNode := q.rule
		atNode.Frontend = proxy.Frontend{Address: anyAddress(v6), Protocol: corev1.ProtocolTCP, Port: nodePort}
		atNode.Masquerade = proxy.MasqueradeEverybody
		w.update(proxy.Change{Is: atNode})
		for _, c := range []struct {
			from *host
			to   netip.AddrPort
		}{
			{n.pods[1], netip.AddrPortFrom(q.rule.Address, port)},
			{n.host, netip.AddrPortFrom(q.rule.Address, port)},
			{w.client, netip.AddrPortFrom(q.rule.Address, port)},
			{w.client, netip.AddrPortFrom(n.ip[v6], nodePort)},
		} {
			local := nextPort
			nextPort++
			conn, err := c.from.dialFrom(local, c.to)
			w.must(err)
			if !n.remembers(local) {
				t.Errorf("from %s to %s: nothing is remembered of the connection", c.from.name, c.to)
			}
			server := q.accept().(*net.TCPConn)
			w.must(server.SetLinger(0)) // to close it is to reset it
			server.Close()
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("from %s to %s: no reset", c.from.name, c.to)
			}
			conn.Close()
			n.forgets(local)

			moved := q.rule
			moved.Backends = backends(v6, left)
			movedAtNode := atNode
			movedAtNode.Backends = moved.Backends
			w.update(proxy.Change{Was: q.rule, Is: moved}, proxy.Change{Was: atNode, Is: movedAtNode})
			conn, err = c.from.dialFrom(local, c.to)
			answer := ""
			if err == nil {
				answer, err = talk(conn)
				conn.Close()
			}
			if err != nil || !strings.HasPrefix(answer, left.name+" ") {
				t.Fatalf("from %s to %s, from the same port as before: %q, %v, want an answer of %s", c.from.name, c.to, answer, err, left.name)
			}
			w.update(proxy.Change{Was: moved, Is: q.rule}, proxy.Change{Was: movedAtNode, Is: atNode})
		}
	})
}

// TestResetsOfOthersAreIgnored leaves alone what came to no frontend of ours.
func TestResetsOfOthersAreIgnored(t *testing.T) {
	w := newWorld(t)
	n := w.nodes[0]
	q := w.queue(false)
	defer q.listener.Close()
	defer n.run()()
	for local, to := range map[uint16]netip.AddrPort{
		40_000: q.rule.Backends[0],                       // straight to the pod
		40_001: netip.AddrPortFrom(q.rule.Address, port), // this one is ours
	} {
		conn, err := n.dialFrom(local, to)
		w.must(err)
		server := q.accept().(*net.TCPConn)
		w.must(server.SetLinger(0))
		server.Close()
		_, _ = conn.Read(make([]byte, 1))
		conn.Close()
	}
	n.forgets(40_001)
	if !n.remembers(40_000) {
		t.Error("the connection that was made to the pod itself is forgotten, too")
	}
}

// run runs the kernel of the node until stop is called. When run returns it hears of resets.
func (n *node) run() (stop func()) {
	n.t.Helper()
	ctx, cancel := context.WithCancel(n.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		n.do(func() {
			if err := n.kernel.Run(ctx); err != nil {
				n.t.Error(err)
			}
		})
	})
	n.do(func() {
		for heard := []byte(nil); len(heard) == 0 && !n.t.Failed(); time.Sleep(time.Millisecond) {
			var err error
			if heard, err = os.ReadFile("/proc/thread-self/net/netfilter/nfnetlink_log"); err != nil {
				n.t.Error(err)
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// dialFrom makes a connection from a port of the host.
func (h *host) dialFrom(local uint16, to netip.AddrPort) (c net.Conn, err error) {
	d := net.Dialer{
		Timeout:   20 * patience,
		LocalAddr: &net.TCPAddr{Port: int(local)},
		Control: func(_, _ string, raw syscall.RawConn) error {
			var err error
			if cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) }); cerr != nil {
				return cerr
			}
			return err
		},
	}
	h.do(func() { c, err = d.DialContext(h.t.Context(), "tcp", to.String()) })
	return c, err
}

// forgets fails the test if conntrack of the node goes on to know a connection from a port.
func (n *node) forgets(local uint16) {
	n.t.Helper()
	deadline := time.Now().Add(patience * 10) // half of what the kernel remembers it for
	for n.remembers(local) {
		if time.Now().After(deadline) {
			n.t.Fatalf("the connection from port %d is remembered", local)
		}
		time.Sleep(time.Millisecond) // conntrack sends no event for it
	}
}

// remembers reports whether conntrack of the node knows a connection from a port.
func (n *node) remembers(local uint16) (yes bool) {
	n.do(func() {
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			flows, err := netdump.Whole(func() ([]*netlink.ConntrackFlow, error) {
				return netlink.ConntrackTableList(netlink.ConntrackTable, family)
			})
			if err != nil {
				n.t.Error(err)
			}
			for _, f := range flows {
				yes = yes || f.Forward.SrcPort == local
			}
		}
	})
	return yes
}
