package userspace

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/proxy"
)

// A bench is a relay whose loop the test plays, so that time is what the test says.
type bench struct {
	*relay
	t    *testing.T
	loop *loop
}

func newBench(t *testing.T, maxFlows int, backends ...netip.AddrPort) *bench {
	t.Helper()
	f, err := New(Options{Address: netip.MustParseAddr("127.0.0.1"), MaxFlows: maxFlows})
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLoop(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.closeAll)
	l.now = time.Unix(1_000_000, 0)
	f.loops = []*loop{l}
	p := &pool{f: f, balancer: newBalancer(), id: proxy.PoolID{PortID: proxy.PortID{Protocol: corev1.ProtocolUDP}}}
	p.balancer.set(backends, 0)
	if err := p.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	return &bench{p.relay, t, l}
}

// server is a socket of UDP that the test reads and writes itself.
func server(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func addr(c *net.UDPConn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }

// send has a client send a packet, and the relay forward it.
func (b *bench) send(from *net.UDPConn, text string) {
	b.t.Helper()
	if _, err := from.WriteToUDPAddrPort([]byte(text), b.pool.at); err != nil {
		b.t.Fatal(err)
	}
	b.ready(b.loop, unix.EPOLLIN)
}

// reply has the relay carry back what there is for a client.
func (b *bench) reply(to *net.UDPConn, events uint32) {
	b.t.Helper()
	fl := b.flows[addr(to)]
	if fl == nil {
		b.t.Fatalf("%v has no flow", addr(to))
	}
	fl.ready(b.loop, events)
}

// want fails unless a packet with this text comes next, and returns from where.
func want(t *testing.T, c *net.UDPConn, text string) netip.AddrPort {
	t.Helper()
	buf := make([]byte, 100)
	n, from, err := c.ReadFromUDPAddrPort(buf) // what was sent on loopback is there
	if err != nil || string(buf[:n]) != text {
		t.Fatalf("received %q, %v, want %q", buf[:n], err, text)
	}
	return from
}

func TestFlowStaysAndAnswersFromItsDestination(t *testing.T) {
	s := []*net.UDPConn{server(t), server(t)}
	b := newBench(t, 10, sortedAddrs(s)...)
	client := server(t)
	b.send(client, "one")
	home := s[0]
	if b.flows[addr(client)].endpoint.at != addr(home) {
		home = s[1]
	}
	from := want(t, home, "one")
	for i := range 40 { // more than a batch
		_, _ = client.WriteToUDPAddrPort(fmt.Appendf(nil, "%d", i), b.pool.at)
	}
	b.ready(b.loop, unix.EPOLLIN)
	for i := range 40 {
		if again := want(t, home, fmt.Sprint(i)); again != from {
			t.Errorf("packet %d comes from %v, want %v", i, again, from)
		}
		_, _ = home.WriteToUDPAddrPort(fmt.Appendf(nil, "re %d", i), from)
	}
	b.reply(client, unix.EPOLLIN)
	for i := range 40 {
		if from := want(t, client, fmt.Sprint("re ", i)); from != b.pool.at {
			t.Errorf("an answer comes from %v, want %v", from, b.pool.at)
		}
	}
	if in, out := b.pool.count.bytes[0].Load(), b.pool.count.bytes[1].Load(); in != 3+10+60 || out != 40*3+10+60 {
		t.Errorf("counted %d bytes in and %d out", in, out)
	}
}

func sortedAddrs(s []*net.UDPConn) []netip.AddrPort {
	a, b := addr(s[0]), addr(s[1])
	if b.Compare(a) < 0 {
		return []netip.AddrPort{b, a}
	}
	return []netip.AddrPort{a, b}
}

func TestSilentFlowEndsAndBusyOneStays(t *testing.T) {
	s := server(t)
	b := newBench(t, 10, addr(s))
	silent, busy := server(t), server(t)
	b.send(silent, "a")
	b.send(busy, "b")
	for range 3 {
		b.loop.now = b.loop.now.Add(40 * time.Second)
		b.send(busy, "b")
		b.loop.sweepFlows()
	}
	if len(b.flows) != 1 || b.flows[addr(busy)] == nil || b.pool.count.open.Load() != 1 {
		t.Errorf("there are %d flows, %d counted, want that of the busy client", len(b.flows), b.pool.count.open.Load())
	}
	if b.loop.sweep.IsZero() {
		t.Error("nobody looks again")
	}
	b.loop.now = b.loop.now.Add(61 * time.Second)
	b.loop.sweepFlows()
	if len(b.flows) != 0 || len(b.loop.relays) != 0 || !b.loop.sweep.IsZero() {
		t.Errorf("there are %d flows; the next look is at %v", len(b.flows), b.loop.sweep)
	}
}

func TestFlowsAreBoundedAndTheSilentMakeRoom(t *testing.T) {
	s := server(t)
	b := newBench(t, 2, addr(s))
	c := []*net.UDPConn{server(t), server(t), server(t)}
	b.send(c[0], "a")
	b.send(c[1], "a")
	b.send(c[2], "a")
	if len(b.flows) != 2 || b.flows[addr(c[2])] != nil || b.pool.count.refused.Load() != 1 || b.pool.count.dropped.Load() != 1 {
		t.Errorf("%d flows, %d refused: one that is in use was thrown out, or the third was not counted", len(b.flows), b.pool.count.refused.Load())
	}
	b.loop.now = b.loop.now.Add(2 * time.Second)
	b.send(c[0], "a")
	b.send(c[2], "a")
	if len(b.flows) != 2 || b.flows[addr(c[0])] == nil || b.flows[addr(c[2])] == nil {
		t.Errorf("%d flows; the one that was silent the longest did not make room", len(b.flows))
	}
}

func TestFlowsToABackendThatIsGoneEnd(t *testing.T) {
	old, next := server(t), server(t)
	b := newBench(t, 10, addr(old))
	client := server(t)
	b.send(client, "one")
	from := want(t, old, "one")

	b.pool.balancer.set([]netip.AddrPort{addr(next)}, 0)
	b.pool.changes.Add(1)
	b.send(client, "two") // sooner than the loop was asked to prune
	want(t, next, "two")
	_, _ = old.WriteToUDPAddrPort([]byte("late"), from) // dropped

	b.pool.balancer.set(nil, 0)
	b.prune()
	if len(b.flows) != 0 {
		t.Errorf("%d flows to no backend", len(b.flows))
	}
	b.pool.changes.Add(1)
	b.send(client, "three")
	if len(b.flows) != 0 || b.pool.count.dropped.Load() != 1 {
		t.Errorf("%d flows without a backend, %d packets dropped, want 0 and 1", len(b.flows), b.pool.count.dropped.Load())
	}
}

// A packet that is refused is for another backend.
func TestAFlowMovesOnFromABackendThatRefuses(t *testing.T) {
	dead, alive := server(t), server(t)
	b := newBench(t, 10, sortedAddrs([]*net.UDPConn{dead, alive})...)
	_ = dead.Close()
	clients := []*net.UDPConn{server(t), server(t)} // one of them begins with the dead one
	for _, c := range clients {
		b.send(c, "one")
	}
	for _, c := range clients {
		b.reply(c, unix.EPOLLIN|unix.EPOLLERR) // the refusal, if there is one
		if got := b.flows[addr(c)].endpoint.at; got != addr(alive) {
			t.Errorf("the flow still goes to %v", got)
		}
	}
	want(t, alive, "one")
	want(t, alive, "one")
	b.send(clients[0], "two")
	b.send(clients[1], "two")
	want(t, alive, "two")
	from := want(t, alive, "two")
	_, _ = alive.WriteToUDPAddrPort([]byte("re"), from)
	b.reply(clients[1], unix.EPOLLIN)
	want(t, clients[1], "re")
	if n := b.pool.count.failures.Load(); n != 1 {
		t.Errorf("%d failures, want 1", n)
	}
	b.send(server(t), "three")
	want(t, alive, "three") // the next client does not pay
}

// A flow that has only backends that refuse goes on, for one may be back.
func TestAFlowStaysWithTheOnlyBackend(t *testing.T) {
	at := netip.MustParseAddrPort("127.77.61.8:7361") // not used by other programs
	b := newBench(t, 10, at)
	client := server(t)
	for range 3 {
		b.send(client, "one")
	}
	back, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = back.Close() }()
	b.send(client, "two")
	want(t, back, "two")
}

// A caller is a client that queues ICMP errors.
func caller(t *testing.T, b *bench) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(b.pool.at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// call has a caller send a packet and the relay forward it. Earlier errors of the caller are lost.
func (b *bench) call(from *net.UDPConn, text string) {
	b.t.Helper()
	if _, err := from.Write([]byte(text)); err != nil {
		b.t.Fatal(err)
	}
	b.ready(b.loop, unix.EPOLLIN)
}

// wantTold fails unless the caller has got an ICMP error, or has got none if want is false; on
// loopback errors arrive at once.
func wantTold(t *testing.T, c *net.UDPConn, want bool) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var said int
	if err := raw.Control(func(fd uintptr) { said, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR) }); err != nil {
		t.Fatal(err)
	}
	if errno := unix.Errno(said); err != nil || (errno == unix.ECONNREFUSED) != want || errno != 0 && !want {
		t.Fatalf("the client was told %v, %v, want a refusal: %t", errno, err, want)
	}
}

// nowhere are backends that refuse.
func nowhere(t *testing.T, n int) (all []netip.AddrPort) {
	for range n {
		s := server(t)
		all = append(all, addr(s))
		_ = s.Close()
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return all
}

func TestClientGetsICMPWhenAllBackendsRefuse(t *testing.T) {
	nstest.NeedRoot(t)
	for _, n := range []int{0, 1, 2, mostRefusals + 2} {
		b := newBench(t, 10, nowhere(t, n)...)
		c := caller(t, b)
		for range 2 {
			b.call(c, "one")
			for range min(n, mostRefusals) {
				b.reply(c, unix.EPOLLIN|unix.EPOLLERR)
			}
			wantTold(t, c, true)
			b.loop.now = b.loop.now.Add(time.Minute) // what was heard holds no more
		}
		if n > 0 && b.flows[addr(c)] == nil {
			t.Errorf("with %d backends the flow has ended", n)
		}
		if got := b.pool.count.dropped.Load(); got != 2 {
			t.Errorf("with %d backends %d packets were dropped, want 2", n, got)
		}
	}
}

func TestClientGetsNoICMPWhileABackendRemains(t *testing.T) {
	nstest.NeedRoot(t)
	dead, alive := server(t), server(t)
	b := newBench(t, 10, sortedAddrs([]*net.UDPConn{dead, alive})...)
	_ = dead.Close()
	large := strings.Repeat("x", 5000) // more than ICMP quotes
	for range 4 {
		for _, text := range []string{"one", large} {
			c := caller(t, b)
			b.call(c, text)
			for range 3 {
				b.reply(c, unix.EPOLLIN|unix.EPOLLERR)
			}
			wantTold(t, c, false)
		}
		b.loop.now = b.loop.now.Add(time.Minute)
	}
}

// A packet that is not known whole is lost. The client gets an ICMP error only if it is doubtful
// that sending again would reach an endpoint.
func TestALargePacketIsSentAgainByItsClient(t *testing.T) {
	nstest.NeedRoot(t)
	b := newBench(t, 10, nowhere(t, 2)...)
	large := strings.Repeat("x", 5000)
	for i := range 6 {
		c := caller(t, b) // each has a flow of its own
		b.call(c, large)
		b.reply(c, unix.EPOLLIN|unix.EPOLLERR)
		switch i {
		case 0:
			wantTold(t, c, false)
		case 5: // by now both have been tried
			wantTold(t, c, true)
		}
		b.loop.now = b.loop.now.Add(refusalHolds)
	}
}

// The kernel of a backend does not send an ICMP error to each client.
func TestRefusalOfABackendExpires(t *testing.T) {
	nstest.NeedRoot(t)
	at := nowhere(t, 1)[0]
	b := newBench(t, 10, at)
	first := caller(t, b)
	b.call(first, "one")
	wantTold(t, first, false) // the refusal has not been read yet
	b.reply(first, unix.EPOLLIN|unix.EPOLLERR)
	wantTold(t, first, true)
	second := caller(t, b)
	b.call(second, "two")
	wantTold(t, second, true)
	b.reply(second, unix.EPOLLIN|unix.EPOLLERR)
	wantTold(t, second, false) // once is enough

	// A server is there again that receives and does not answer.
	back, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = back.Close() }()
	b.call(first, "three")
	want(t, back, "three") // it is sent on although the client gets an ICMP error
	wantTold(t, first, true)
	b.loop.now = b.loop.now.Add(refusalHolds)
	b.call(first, "four")
	b.call(caller(t, b), "five")
	wantTold(t, first, false)
	want(t, back, "four")
	want(t, back, "five")
	if n := b.pool.count.refused.Load(); n != 2 {
		t.Errorf("%d flows were refused, want 2", n)
	}

	// A server that answers counts as back at once.
	b.loop.now = b.loop.now.Add(time.Minute)
	_ = back.Close()
	b.call(first, "six")
	b.reply(first, unix.EPOLLIN|unix.EPOLLERR)
	wantTold(t, first, true)
	if back, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at)); err != nil {
		t.Fatal(err)
	}
	b.call(first, "seven")
	wantTold(t, first, true)
	from := want(t, back, "seven")
	_, _ = back.WriteToUDPAddrPort([]byte("re"), from)
	b.reply(first, unix.EPOLLIN)
	b.call(first, "eight")
	b.call(second, "nine")
	wantTold(t, first, false)
	wantTold(t, second, false)
}

// TestRefusalsAreLimited checks the limiter: in any order of clients, each gets at most its limit
// of ICMP errors in any second, and so do all together; a client that sends rarely always gets one
// unless the total limit is reached.
func TestRefusalsAreLimited(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLimiter()
		start := time.Unix(1_000_000, 0)
		told := map[netip.Addr][]time.Duration{}
		var all []time.Duration
		asked := time.Duration(0)
		clients := rapid.IntRange(1, 4).Draw(t, "clients")
		gaps := rapid.SampledFrom([]time.Duration{0, 100 * time.Microsecond, time.Millisecond, 20 * time.Millisecond}).Draw(t, "gap")
		for range 3000 {
			asked += time.Duration(rapid.IntRange(0, 2).Draw(t, "pause")) * gaps
			c := netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(1, clients).Draw(t, "client"))})
			if l.allow(c, start.Add(asked)) {
				told[c] = append(told[c], asked)
				all = append(all, asked)
			} else if recent(told[c], asked) == 0 {
				t.Fatalf("%v, which was told nothing for a second, is not told", c)
			}
		}
		for c, when := range told {
			for i := range when {
				// What was saved before, and what comes meanwhile.
				if n := recent(when[:i+1], when[i]); n > 2*refusalsPerClient {
					t.Fatalf("%v was told %d times in a second", c, n)
				}
			}
		}
		for i := range all {
			if n := recent(all[:i+1], all[i]); n > 2*refusalsPerSecond {
				t.Fatalf("%d refusals in a second", n)
			}
		}
	})
}

// recent counts those of the last second.
func recent(when []time.Duration, now time.Duration) (n int) {
	for i := len(when) - 1; i >= 0 && when[i] > now-time.Second; i-- {
		n++
	}
	return n
}
