package userspace_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/userspace"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// start runs a forwarder, on loopback unless o says otherwise, until the test ends.
func start(t testing.TB, o userspace.Options) *userspace.Forwarder {
	t.Helper()
	if !o.Address.IsValid() {
		o.Address = netip.MustParseAddr("127.0.0.1")
	}
	f, err := userspace.New(o)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.Background(), 0)
	g.Go(func(ctx context.Context) {
		if err := f.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	t.Cleanup(g.Stop)
	<-f.Ready()
	return f
}

// backend listens on loopback and hands each connection to serve.
func backend(t testing.TB, serve func(c *net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.Background(), 0)
	g.Go(func(context.Context) {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			g.Go(func(context.Context) { defer func() { _ = c.Close() }(); serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); g.Wait() })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// says is a backend that sends its name and then what it is sent.
func says(t testing.TB, name string) netip.AddrPort {
	return backend(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, name)
		_, _ = io.Copy(c, c)
	})
}

// refuses returns an address at which no server listens.
func refuses(t testing.TB) netip.AddrPort {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func web(protocol corev1.Protocol, backends ...netip.AddrPort) proxy.Pool {
	return proxy.Pool{
		PoolID:   proxy.PoolID{PortID: proxy.PortID{Service: types.NamespacedName{Namespace: "default", Name: "web"}, Protocol: protocol}},
		Backends: backends,
	}
}

func set(t testing.TB, f *userspace.Forwarder, p proxy.Pool) netip.AddrPort {
	t.Helper()
	at, err := f.Set(p)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func dial(t testing.TB, at netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask sends text, ends its direction, and returns all that comes back.
func ask(t testing.TB, at netip.AddrPort, text string) string {
	t.Helper()
	c := dial(t, at)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wantReset fails if a connection is anything but reset.
func wantReset(t *testing.T, at netip.AddrPort) {
	t.Helper()
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
	if errors.Is(err, unix.ECONNRESET) {
		return // so fast that it was not even known to be made
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if b, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("read %q, %v, want a reset", b, err)
	}
}

func TestConnectionsGoRoundTheBackends(t *testing.T) {
	f := start(t, userspace.Options{})
	a, b := says(t, "a"), says(t, "b")
	at := set(t, f, web(corev1.ProtocolTCP, a, b))
	got := ""
	for range 4 {
		got += ask(t, at, "!")
	}
	if got != "a!b!a!b!" {
		t.Errorf("answers %q, want a!b!a!b!", got)
	}
}

func TestABackendThatRefusesIsPassedOver(t *testing.T) {
	f := start(t, userspace.Options{})
	at := set(t, f, web(corev1.ProtocolTCP, refuses(t), refuses(t), says(t, "c")))
	for range 3 {
		if got := ask(t, at, ""); got != "c" {
			t.Errorf("answer %q, want c", got)
		}
	}
}

// A client that is tied to a backend is tied to another one once that refuses it.
func TestAffinityGivesWayToABackendThatAnswers(t *testing.T) {
	f := start(t, userspace.Options{})
	tied := web(corev1.ProtocolTCP, refuses(t), refuses(t), says(t, "c"))
	tied.Affinity = time.Hour
	at := set(t, f, tied)
	for range 3 {
		if got := ask(t, at, ""); got != "c" {
			t.Errorf("answer %q, want c", got)
		}
	}
}

func TestConnectionWaitsForANewBackend(t *testing.T) {
	f := start(t, userspace.Options{DialTimeouts: []time.Duration{time.Minute, time.Minute}})
	at := set(t, f, web(corev1.ProtocolTCP, refuses(t)))
	c := dial(t, at) // accepted, and without a backend for the moment
	set(t, f, web(corev1.ProtocolTCP, says(t, "late")))
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); string(b) != "late" || err != nil {
		t.Errorf("answer %q, %v, want late", b, err)
	}
}

func TestWithoutABackendTheConnectionIsReset(t *testing.T) {
	f := start(t, userspace.Options{DialTimeouts: []time.Duration{time.Millisecond}})
	wantReset(t, set(t, f, web(corev1.ProtocolTCP, refuses(t))))
}

func TestEachDirectionEndsOnItsOwn(t *testing.T) {
	f := start(t, userspace.Options{})
	counted := make(chan int, 1)
	at := set(t, f, web(corev1.ProtocolTCP, backend(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c) // ends because the client's direction did
		counted <- len(b)
		_, _ = fmt.Fprintf(c, "got %d", len(b))
	})))
	if got := ask(t, at, "12345"); got != "got 5" || <-counted != 5 {
		t.Errorf("answer %q, want got 5", got)
	}
}

func TestABrokenSideEndsTheOther(t *testing.T) {
	f := start(t, userspace.Options{})
	ended := make(chan error, 1)
	at := set(t, f, web(corev1.ProtocolTCP, backend(t, func(c *net.TCPConn) {
		_, err := io.ReadAll(c)
		ended <- err
	})))
	c := dial(t, at)
	_ = c.SetLinger(0)
	_ = c.Close()
	<-ended // the test hangs here if the backend is left with an open connection
}

func TestConnectionsOutliveTheirService(t *testing.T) {
	f := start(t, userspace.Options{})
	p := web(corev1.ProtocolTCP, says(t, "a"))
	at := set(t, f, p)
	c := dial(t, at)
	buf := make([]byte, 1)
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Fatal(err)
	}
	f.Remove(p.PoolID)
	if _, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at)); err == nil {
		t.Error("the socket of a removed port still accepts")
	}
	_, _ = io.WriteString(c, "x")
	if _, err := io.ReadFull(c, buf); err != nil || buf[0] != 'x' {
		t.Errorf("connection after the removal: %q, %v", buf, err)
	}
}

func TestUDPFlowsComeBackToTheirClient(t *testing.T) {
	f := start(t, userspace.Options{})
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.Background(), 0)
	g.Go(func(context.Context) {
		buf := make([]byte, 100)
		for {
			n, from, err := server.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(append([]byte("re:"), buf[:n]...), from)
		}
	})
	defer func() { _ = server.Close(); g.Wait() }()
	at := set(t, f, web(corev1.ProtocolUDP, server.LocalAddr().(*net.UDPAddr).AddrPort()))
	for i := range 3 {
		c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at))
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 100)
		for range 2 { // the second packet takes the flow of the first
			_, _ = fmt.Fprintf(c, "%d", i)
			n, err := c.Read(buf)
			if want := fmt.Sprintf("re:%d", i); err != nil || string(buf[:n]) != want {
				t.Errorf("answer %q, %v, want %q", buf[:n], err, want)
			}
		}
		_ = c.Close()
	}
}

// A thousand flows that wait need no thousand packets' worth of memory.
func TestAWaitingUDPFlowIsSmall(t *testing.T) {
	f := start(t, userspace.Options{})
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	at := set(t, f, web(corev1.ProtocolUDP, server.LocalAddr().(*net.UDPAddr).AddrPort()))
	const clients = 200
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what lay in pools is given up the second time
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range clients {
		c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := server.ReadFromUDPAddrPort(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
	}
	const most = 16 << 10 // of a flow; its buffer alone would be 64 KiB
	if after := heap(); after > before+clients*most {
		t.Errorf("%d flows that wait take %d bytes, want at most %d each", clients, after-before, most)
	}
}

// TestIdleConnectionIsSmall bounds the memory of a connection that carries nothing, with the
// stacks of its goroutines.
func TestIdleConnectionIsSmall(t *testing.T) {
	f := start(t, userspace.Options{})
	at := set(t, f, web(corev1.ProtocolTCP, says(t, "a")))
	memory := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // twice: the first only moves pooled buffers aside
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	const connections = 500
	before := memory()
	for range connections {
		if _, err := io.ReadFull(dial(t, at), make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	const most = 96 << 10 // with the client and the server of this test; two buffers alone would be 128 KiB
	if after := memory(); after > before+connections*most {
		t.Errorf("an idle connection takes %d bytes, want at most %d", (after-before)/connections, most)
	} else {
		t.Logf("an idle connection takes %d bytes with its client and server", (after-before)/connections)
	}
}

func TestNewRefusesUnspecifiedAddresses(t *testing.T) {
	for _, a := range []netip.Addr{{}, netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if _, err := userspace.New(userspace.Options{Address: a}); err == nil {
			t.Errorf("New with address %v succeeded", a)
		}
	}
}

func TestSettleWaitsForConnectionsToARemovedBackend(t *testing.T) {
	f := start(t, userspace.Options{})
	accepted, speak := make(chan struct{}), make(chan struct{})
	old := backend(t, func(c *net.TCPConn) {
		close(accepted)
		<-speak
		_, _ = io.WriteString(c, "old")
	})
	at := set(t, f, web(corev1.ProtocolTCP, old))
	f.Settle(t.Context()) // no backend was removed
	c := dial(t, at)
	<-accepted
	f.Settle(t.Context()) // it is a backend
	set(t, f, web(corev1.ProtocolTCP, says(t, "new")))

	settled := make(chan struct{})
	g := run.NewGroup(t.Context(), 0)
	g.Go(func(ctx context.Context) { f.Settle(ctx); close(settled) })
	select {
	case <-settled:
		t.Log("the limit was faster than the test")
	default:
	}
	close(speak)
	if b, err := io.ReadAll(io.LimitReader(c, 3)); string(b) != "old" || err != nil {
		t.Errorf("answer %q, %v, want old", b, err)
	}
	<-settled
	g.Stop()

	over, cancel := context.WithCancel(t.Context())
	cancel()
	f.Settle(over)
}
