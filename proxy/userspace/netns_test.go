package userspace_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/nstest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy/userspace"
)

// A host is a network namespace with an address, on a link to this one.
type host struct{ namespace *os.File }

// newHost makes a host with the addresses .2 and ::2 in the networks in which this namespace
// gets .1 and ::1, which is its way out.
func newHost(t *testing.T, name, v4, v6 string) *host {
	t.Helper()
	h := &host{}
	onThread(t, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		f, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		h.namespace = f
		return err
	})
	t.Cleanup(func() { _ = h.namespace.Close() })
	ip(t, nil, "link add "+name+" type veth peer name eth0")
	// A descriptor of the namespace says where to, as it has no name.
	cmd := exec.Command("ip", "link", "set", "eth0", "netns", "/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{h.namespace}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ip(t, nil, "addr add "+v4+".1/24 dev "+name)
	ip(t, nil, "addr add "+v6+"::1/64 dev "+name+" nodad")
	ip(t, nil, "link set "+name+" up")
	ip(t, h, "addr add "+v4+".2/24 dev eth0")
	ip(t, h, "addr add "+v6+"::2/64 dev eth0 nodad")
	ip(t, h, "link set lo up")
	ip(t, h, "link set eth0 up")
	ip(t, h, "route add default via "+v4+".1")
	ip(t, h, "-6 route add default via "+v6+"::1")
	return h
}

// onThread calls f on a thread that no other code uses before or after.
func onThread(t *testing.T, f func() error) {
	t.Helper()
	g := run.NewGroup(context.Background(), 0)
	var err error
	g.Go(func(context.Context) {
		runtime.LockOSThread() // and it is not unlocked, so it ends
		err = f()
	})
	g.Wait()
	g.Stop()
	if err != nil {
		t.Fatal(err)
	}
}

// in calls f with the network of a host; nil is this one.
func (h *host) in(t *testing.T, f func() error) {
	t.Helper()
	onThread(t, func() error {
		if h != nil {
			if err := unix.Setns(int(h.namespace.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
		}
		return f()
	})
}

func ip(t *testing.T, h *host, args string) {
	t.Helper()
	h.in(t, func() error {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
		return nil
	})
}

// serveEcho starts a backend of TCP and one of UDP on port 80 of a host, which answer with the address
// of their client.
func (h *host) serveEcho(t *testing.T) {
	t.Helper()
	var l net.Listener
	var u *net.UDPConn
	h.in(t, func() (err error) {
		if l, err = net.Listen("tcp", ":80"); err != nil {
			return err
		}
		u, err = net.ListenUDP("udp", &net.UDPAddr{Port: 80})
		return err
	})
	g := run.NewGroup(context.Background(), 0)
	g.Go(func(context.Context) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().String())
			_ = c.Close()
		}
	})
	g.Go(func(context.Context) {
		buf := make([]byte, 100)
		for {
			_, from, err := u.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = u.WriteToUDPAddrPort([]byte(from.Addr().Unmap().String()), from)
		}
	})
	t.Cleanup(func() { _ = l.Close(); _ = u.Close(); g.Wait() })
}

// asked returns a backend's answer to a client on this host.
func (h *host) asked(t *testing.T, network string, at netip.AddrPort) (told string) {
	t.Helper()
	h.in(t, func() error {
		c, err := net.Dial(network, at.String())
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		if network == "udp" {
			_, _ = c.Write([]byte("?"))
		}
		buf := make([]byte, 100)
		n, err := c.Read(buf)
		told = string(buf[:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
	return told
}

func forwarding(t *testing.T) {
	t.Helper()
	for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTransparentConnectionsComeFromTheClient(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		client, pod := newHost(t, "client", "10.1.1", "fd01"), newHost(t, "pod", "10.1.2", "fd02")
		forwarding(t)
		pod.serveEcho(t)
		if err := userspace.RemoveTransparent("relay"); err != nil {
			t.Errorf("RemoveTransparent where there is nothing: %v", err)
		}
		before := rules(t)
		f, err := userspace.New(userspace.Options{Address: netip.MustParseAddr("10.1.1.1"), Address6: netip.MustParseAddr("fd01::1"), Table: "relay"})
		if err != nil {
			t.Fatal(err)
		}
		g := run.NewGroup(context.Background(), 0)
		g.Go(func(ctx context.Context) {
			if err := f.Run(ctx); err != nil {
				t.Errorf("Run = %v", err)
			}
		})
		<-f.Ready()
		if err := f.Restore(); err != nil || rules(t) != before {
			t.Errorf("Restore = %v, and where nobody needs any rules there are\n%s", err, rules(t))
		}
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			for _, six := range []bool{false, true} {
				for _, transparent := range []bool{false, true, false} {
					p := web(protocol, netip.MustParseAddrPort("10.1.2.2:80"))
					want := map[bool]string{false: "10.1.2.1", true: "10.1.1.2"}[transparent]
					if p.IPv6 = six; six {
						p.Backends = []netip.AddrPort{netip.MustParseAddrPort("[fd02::2]:80")}
						want = map[bool]string{false: "fd02::1", true: "fd01::2"}[transparent]
					}
					p.Transparent = transparent
					at := set(t, f, p)
					if got := client.asked(t, strings.ToLower(string(protocol)), at); got != want {
						t.Errorf("%s, IPv6: %t, transparent: %t: the backend sees %s, want %s", protocol, six, transparent, got, want)
					}
					if transparent { // as `nft flush ruleset` does, and then again
						flushRules(t)
						if err := f.Restore(); err != nil {
							t.Errorf("Restore = %v", err)
						}
						if got := client.asked(t, strings.ToLower(string(protocol)), at); got != want {
							t.Errorf("%s, IPv6: %t: the backend sees %s after the rules were restored, want %s", protocol, six, got, want)
						}
					}
					if p.Protocol == corev1.ProtocolTCP && !six && transparent {
						// Its own address would be thrown away by the pod.
						if got := pod.asked(t, "tcp", at); got != "10.1.2.1" {
							t.Errorf("the pod that reaches itself is seen from %s, want 10.1.2.1", got)
						}
					}
					if protocol == corev1.ProtocolUDP {
						f.Remove(p.PoolID) // a flow stays as it was made
					}
				}
			}
		}
		g.Stop()
		if after := rules(t); after != before {
			t.Errorf("at the end there are\n%s\nwant\n%s", after, before)
		}
	})
}

// flushRules removes all rules of nftables.
func flushRules(t *testing.T) {
	t.Helper()
	c, err := nftables.New()
	if err == nil {
		c.FlushRuleset()
		err = c.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The rules and routes of transparent connections exist as long as a forwarder needs them, and are
// removed afterwards, even if they are those of a killed process.
func TestTransparentForwardersOfOneHost(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		client, pod := newHost(t, "client", "10.1.1", "fd01"), newHost(t, "pod", "10.1.2", "fd02")
		forwarding(t)
		pod.serveEcho(t)
		before := rules(t)
		begin := func(table string, transparent bool) (at netip.AddrPort, stop func()) {
			f, err := userspace.New(userspace.Options{Address: netip.MustParseAddr("10.1.1.1"), Table: table})
			if err != nil {
				t.Fatal(err)
			}
			g := run.NewGroup(context.Background(), 0)
			g.Go(func(ctx context.Context) {
				if err := f.Run(ctx); err != nil {
					t.Errorf("Run = %v", err)
				}
			})
			<-f.Ready()
			p := web(corev1.ProtocolTCP, netip.MustParseAddrPort("10.1.2.2:80"))
			p.Transparent = transparent
			return set(t, f, p), g.Stop
		}
		kept := func(at netip.AddrPort) {
			t.Helper()
			if got := client.asked(t, "tcp", at); got != "10.1.1.2" {
				t.Errorf("the backend sees %s, want 10.1.1.2", got)
			}
		}
		clean := func() {
			t.Helper()
			if after := rules(t); after != before {
				t.Errorf("at the end there are\n%s\nwant\n%s", after, before)
			}
		}
		_, stopOne := begin("one", true)
		two, stopTwo := begin("two", true)
		_, stopThree := begin("three", false)
		kept(two)
		stopOne()
		kept(two)
		stopThree()
		kept(two)
		if err := userspace.RemoveTransparent("one"); err != nil { // again
			t.Error(err)
		}
		kept(two)
		stopTwo()
		clean()

		// Two that were killed, one of them after it had removed its table.
		left := func(tables ...string) {
			for _, table := range tables {
				nft(t, "add table inet "+table+"; add chain inet "+table+" sampan-answers { type filter hook prerouting priority -150; }; "+
					"add rule inet "+table+" sampan-answers socket transparent 1 socket wildcard 0 meta mark set 0x73616d70")
			}
			ip(t, nil, "rule add fwmark 0x73616d70 lookup 7361 priority 7361")
			ip(t, nil, "route add local 0.0.0.0/0 dev lo table 7361")
		}
		left("one")
		_, stopOne = begin("one", false)
		clean()
		stopOne()
		left()
		if err := userspace.RemoveTransparent("one"); err != nil {
			t.Error(err)
		}
		clean()
		left("one", "two")
		two, stopTwo = begin("two", true)
		kept(two)
		if err := userspace.RemoveTransparent("one"); err != nil {
			t.Error(err)
		}
		kept(two)
		stopTwo()
		clean()
	})
}

// rules returns all rules, policies and routes.
func rules(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, command := range []string{"nft list ruleset", "ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all"} {
		args := strings.Fields(command)
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		for line := range strings.Lines(string(out)) {
			// What the kernel itself makes of addresses comes when it comes.
			if !strings.Contains(line, "fe80") && !strings.Contains(line, "proto kernel") {
				all.WriteString(line)
			}
		}
	}
	return all.String()
}

func nft(t *testing.T, rules string) {
	t.Helper()
	if out, err := exec.Command("nft", rules).CombinedOutput(); err != nil {
		t.Fatalf("nft %s: %v: %s", rules, err, out)
	}
}

// Clients connect to a frontend; the kernel sends them to the forwarder's socket. The header says what
// the client wrote on its packets.
func TestTheHeaderNamesTheFrontend(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		client := newHost(t, "client", "10.1.1", "fd01")
		for _, tt := range []struct {
			six                    bool
			frontend, seen, socket string // socket is where to in the words of nft
		}{
			{false, "10.96.0.10:80", "PROXY TCP4 10.1.1.2 10.96.0.10 ", "ip daddr 10.96.0.10 tcp dport 80 dnat to 10.1.1.1"},
			{true, "[fd96::10]:80", "PROXY TCP6 fd01::2 fd96::10 ", "ip6 daddr fd96::10 tcp dport 80 dnat to fd01::1"},
		} {
			p := web(corev1.ProtocolTCP)
			p.IPv6, p.ProxyProtocol = tt.six, 1
			g := run.NewGroup(t.Context(), 0)
			l, err := net.Listen("tcp", ":0")
			if err != nil {
				t.Fatal(err)
			}
			g.Go(func(context.Context) {
				c, err := l.Accept()
				if err != nil {
					return
				}
				line, _ := bufio.NewReader(c).ReadString('\n')
				_, _ = io.WriteString(c, line)
				_ = c.Close()
			})
			home := netip.MustParseAddr("127.0.0.1")
			if tt.six {
				home = netip.IPv6Loopback()
			}
			p.Backends = []netip.AddrPort{netip.AddrPortFrom(home, uint16(l.Addr().(*net.TCPAddr).Port))}

			f, err := userspace.New(userspace.Options{Address: netip.MustParseAddr("10.1.1.1"), Address6: netip.MustParseAddr("fd01::1")})
			if err != nil {
				t.Fatal(err)
			}
			g.Go(func(ctx context.Context) { _ = f.Run(ctx) })
			<-f.Ready()
			at := set(t, f, p)
			family := map[bool]string{false: "ip", true: "ip6"}[tt.six]
			nft(t, fmt.Sprintf("add table %s frontend; add chain %s frontend pre { type nat hook prerouting priority dstnat; }; add rule %s frontend pre %s:%d",
				family, family, family, strings.Replace(tt.socket, "fd01::1", "[fd01::1]", 1), at.Port()))
			if got := client.asked(t, "tcp", netip.MustParseAddrPort(tt.frontend)); !strings.HasPrefix(got, tt.seen) || !strings.HasSuffix(got, " 80\r\n") {
				t.Errorf("the backend gets %q, want %s… 80", got, tt.seen)
			}
			_ = l.Close()
			g.Stop()
		}
	})
}

func TestPacketsToBackendsAreMarked(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		nft(t, "add table ip seen; add chain ip seen out { type filter hook output priority 0; }; add rule ip seen out meta mark 7 drop")
		to := says(t, "a")
		if got := ask(t, set(t, start(t, userspace.Options{}), web(corev1.ProtocolTCP, to)), "!"); got != "a!" {
			t.Errorf("without a mark the answer is %q, want a!", got)
		}
		wantReset(t, set(t, start(t, userspace.Options{Mark: 7, DialTimeouts: []time.Duration{time.Millisecond}}), web(corev1.ProtocolTCP, to)))
	})
}

// blackhole drops all packets to a network, which is here, until light is called.
func blackhole(t *testing.T, network string) (light func()) {
	t.Helper()
	ip(t, nil, "route add local "+network+" dev lo")
	nft(t, "add table ip dark; add chain ip dark in { type filter hook input priority 0; }; add rule ip dark in ip daddr "+network+" drop")
	return func() { nft(t, "delete table ip dark") }
}

func TestSilentBackendCostsFewClientsOneRound(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		blackhole(t, "10.9.0.0/24")
		f := start(t, userspace.Options{DialTimeouts: []time.Duration{250 * time.Millisecond, time.Hour}})
		p := web(corev1.ProtocolTCP, netip.MustParseAddrPort("10.9.0.5:80"), says(t, "alive"))
		at := set(t, f, p)
		const clients = 200
		for range clients {
			if got := ask(t, at, ""); got != "alive" {
				t.Fatalf("answer %q, want alive", got)
			}
		}
		// Who met it twice would be waiting for an hour, so it was one round.
		m := metricsOf(t, f)
		if m["dial_failures_total"] != m["dial_retries_total"] {
			t.Errorf("%v failures and %v retries, want as many", m["dial_failures_total"], m["dial_retries_total"])
		}
		if m["dial_failures_total"] > clients/10 {
			t.Errorf("%v of %d clients paid for the backend that is dead", m["dial_failures_total"], clients)
		}
		if m["connections_refused_total"] != 0 {
			t.Errorf("%v were refused", m["connections_refused_total"])
		}
	})
}

func TestABackendThatIsSlowToComeIsWaitedFor(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		light := blackhole(t, "10.9.0.0/24")
		rounds := make([]time.Duration, 100)
		for i := range rounds {
			rounds[i] = 100 * time.Millisecond
		}
		f := start(t, userspace.Options{DialTimeouts: rounds})
		l, err := net.Listen("tcp4", ":80")
		if err != nil {
			t.Fatal(err)
		}
		g := run.NewGroup(t.Context(), 0)
		g.Go(func(context.Context) {
			c, err := l.Accept()
			if err == nil {
				_, _ = io.WriteString(c, "late")
				_ = c.Close()
			}
		})
		c := dial(t, set(t, f, web(corev1.ProtocolTCP, netip.MustParseAddrPort("10.9.0.5:80"))))
		for metricsOf(t, f)["dial_failures_total"] < 2 {
			runtime.Gosched() // until it has been tried in vain
		}
		light()
		_ = c.CloseWrite()
		if b, err := io.ReadAll(c); string(b) != "late" || err != nil {
			t.Errorf("answer %q, %v, want late", b, err)
		}
		_ = l.Close()
		g.Stop()
	})
}

// Who has no descriptors left refuses and goes on as soon as there are some.
func TestWithoutDescriptorsConnectionsAreReset(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		f := start(t, userspace.Options{})
		at := set(t, f, web(corev1.ProtocolTCP, says(t, "a")))
		if got := ask(t, at, "!"); got != "a!" {
			t.Fatalf("answer %q", got)
		}
		for metricsOf(t, f)["connections_open"] > 0 {
			runtime.Gosched() // its descriptors are given back soon
		}
		const clients = 20
		var fds []int
		for range clients {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			fds = append(fds, fd)
		}
		var was unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 200, Max: was.Max}); err != nil {
			t.Fatal(err)
		}
		var taken []int
		for {
			fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if errors.Is(err, unix.EMFILE) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			taken = append(taken, fd)
		}
		for _, fd := range fds {
			err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
			if err == nil {
				_, err = unix.Read(fd, make([]byte, 1))
			}
			if !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("without descriptors: %v, want a reset", err)
			}
		}
		for _, fd := range append(taken, fds...) {
			_ = unix.Close(fd)
		}
		if got := ask(t, at, "!"); got != "a!" {
			t.Errorf("afterwards the answer is %q, want a!", got)
		}
		if m := metricsOf(t, f); m["connections_refused_total"] != clients {
			t.Errorf("%v were refused, want %d", m["connections_refused_total"], clients)
		}
	})
}

// TestRefusedUDPClientsGetICMP has endpoints that refuse, or none. Clients get the ICMP error from
// the address that they sent to: outside, on this node and in a pod.
func TestRefusedUDPClientsGetICMP(t *testing.T) {
	nstest.Run(t, func(t *testing.T) {
		clients := map[string]*host{"outside": newHost(t, "client", "10.1.1", "fd01"), "pod": newHost(t, "pod", "10.1.2", "fd02"), "this node": nil}
		forwarding(t)
		clients["pod"].in(t, func() error { // or it would soon say no more
			return errors.Join(os.WriteFile("/proc/sys/net/ipv4/icmp_ratelimit", []byte("0"), 0), os.WriteFile("/proc/sys/net/ipv6/icmp/ratelimit", []byte("0"), 0))
		})
		ip(t, nil, "route add 10.96.0.0/16 dev pod") // as a node has for its service network
		ip(t, nil, "route add fd96::/64 dev pod")
		isPod := func(a netip.Addr) bool { return a.Is4() && a.As4()[2] == 2 || a.Is6() && a.As16()[1] == 2 }
		f := start(t, userspace.Options{Address: netip.MustParseAddr("10.1.2.1"), Address6: netip.MustParseAddr("fd02::1"), Table: "relay", Reachable: isPod})
		rules := "add table %[1]s frontend; flush table %[1]s frontend; add chain %[1]s frontend pre { type nat hook prerouting priority -100; }; add chain %[1]s frontend out { type nat hook output priority -100; }"
		for _, chain := range []string{"pre", "out"} {
			rules += "; add rule %[1]s frontend " + chain + " %[1]s daddr { %[2]s, %[3]s } udp dport 53 dnat to %[4]s"
		}
		for _, six := range []bool{false, true} {
			for _, transparent := range []bool{false, true} {
				for _, endpoints := range []int{0, 1, 3} {
					p := web(corev1.ProtocolUDP)
					family, vip, node := "ip", "10.96.0.10", "10.1.1.1"
					if p.IPv6, p.Transparent = six, transparent; six {
						family, vip, node = "ip6", "fd96::10", "fd01::1"
					}
					for i := range endpoints {
						at := netip.AddrPortFrom(netip.MustParseAddr("10.1.2.2"), uint16(81+i))
						if six {
							at = netip.AddrPortFrom(netip.MustParseAddr("fd02::2"), at.Port())
						}
						p.Backends = append(p.Backends, at)
					}
					at := set(t, f, p)
					nft(t, fmt.Sprintf(rules, family, vip, node, at))
					for name, h := range clients {
						for _, frontend := range []string{vip, node} {
							for _, size := range []int{0, 5, 1400, 9000} {
								if size > 1000 && endpoints > 1 {
									continue // it is lost with the first one that refuses
								}
								at := netip.AddrPortFrom(netip.MustParseAddr(frontend), 53)
								if err := h.refusal(t, at, size); !errors.Is(err, unix.ECONNREFUSED) {
									t.Errorf("%d endpoints, transparent: %t, client %s, %d bytes to %s: %v, want that it is refused", endpoints, transparent, name, size, frontend, err)
								}
							}
						}
					}
					f.Remove(p.PoolID)
				}
			}
		}
	})
}

// refusal sends a packet and returns what comes instead of an answer. It asks again from another port when nothing comes, as clients of
// UDP do: conntrack may still know a port from an endpoint that is gone.
func (h *host) refusal(t *testing.T, at netip.AddrPort, size int) (said error) {
	t.Helper()
	ask := func() error {
		c, err := net.Dial("udp", at.String())
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_, _ = c.Write(make([]byte, size))
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
		_, said = c.Read(make([]byte, 1))
		return nil
	}
	for range 3 {
		h.in(t, ask)
		if !errors.Is(said, os.ErrDeadlineExceeded) {
			break
		}
	}
	return said
}
