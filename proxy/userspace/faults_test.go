package userspace_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/userspace"
)

// metricsOf returns the values of a forwarder's metrics, under their names and, for bytes, the
// direction; histograms under "name count". The values of all Services are added up.
func metricsOf(t testing.TB, f *userspace.Forwarder) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(f.Collectors()...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, family := range families {
		name := strings.TrimPrefix(family.GetName(), "sampan_proxy_")
		for _, m := range family.GetMetric() {
			key := name
			for _, l := range m.GetLabel() {
				if l.GetName() == "direction" {
					key += " " + l.GetValue()
				}
			}
			if h := m.GetHistogram(); h != nil {
				all[key+" count"] += float64(h.GetSampleCount())
				continue
			}
			all[key] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return all
}

func loopback4() netip.Addr { return netip.MustParseAddr("127.0.0.1") }

func TestBackendThatResetsBeforeDataIsSkipped(t *testing.T) {
	f := start(t, userspace.Options{})
	rude := backend(t, func(c *net.TCPConn) { _ = c.SetLinger(0) })
	at := set(t, f, web(corev1.ProtocolTCP, rude, says(t, "polite")))
	for range 10 {
		if got := ask(t, at, ""); got != "polite" {
			t.Errorf("answer %q, want polite", got)
		}
	}
}

// TestClientDataSurvivesABackendThatResets has clients that speak first, and a backend that
// breaks connections as soon as it has them: another one hears all that was said.
func TestClientDataSurvivesABackendThatResets(t *testing.T) {
	rude := backend(t, func(c *net.TCPConn) { _ = c.SetLinger(0) })
	kind := backend(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	for range 200 {
		f := start(t, userspace.Options{}) // which does not know yet which is which
		at := set(t, f, web(corev1.ProtocolTCP, rude, kind))
		for range 2 {
			c := dial(t, at)
			_, _ = c.Write([]byte("hello"))
			got := make([]byte, len("hello"))
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			// One that had heard it already may not be followed by another.
			if _, err := io.ReadFull(c, got); err != nil && !errors.Is(err, unix.ECONNRESET) || err == nil && string(got) != "hello" {
				t.Fatalf("%q, %v, want what was said, or a reset", got, err)
			}
			_ = c.Close()
		}
	}
}

func TestAResetIsPassedOn(t *testing.T) {
	f := start(t, userspace.Options{})
	ended := make(chan error, 1)
	at := set(t, f, web(corev1.ProtocolTCP, backend(t, func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		_, _ = c.Write([]byte("y"))
		_, err := c.Read(make([]byte, 1))
		if err != nil {
			ended <- err
			return
		}
		_ = c.SetLinger(0) // after the second byte
	})))
	t.Run("of the server", func(t *testing.T) {
		c := dial(t, at)
		_, _ = c.Write([]byte("x"))
		_, _ = io.ReadFull(c, make([]byte, 1))
		_, _ = c.Write([]byte("x"))
		if _, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the client sees %v, want a reset", err)
		}
	})
	t.Run("of the client", func(t *testing.T) {
		c := dial(t, at)
		_, _ = c.Write([]byte("x"))
		_, _ = io.ReadFull(c, make([]byte, 1))
		_ = c.SetLinger(0)
		_ = c.Close()
		if err := <-ended; !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the server sees %v, want a reset", err)
		}
	})
}

func TestWithoutBackendsAConnectionIsRefusedAtOnce(t *testing.T) {
	f := start(t, userspace.Options{DialTimeouts: []time.Duration{time.Hour}}) // the test hangs if it waits
	wantReset(t, set(t, f, web(corev1.ProtocolTCP)))
}

func TestTheForwarderDoesNotConnectToItself(t *testing.T) {
	f := start(t, userspace.Options{DialTimeouts: []time.Duration{time.Millisecond}})
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		at := set(t, f, web(protocol))
		set(t, f, web(protocol, at))
		if protocol == corev1.ProtocolTCP {
			wantReset(t, at)
			continue
		}
		c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("x"))
		for metricsOf(t, f)["packets_dropped_total"] == 0 {
			runtime.Gosched()
		}
		_ = c.Close()
	}
	if m := metricsOf(t, f); m["relayed_connections_total"] != 2 {
		t.Errorf("%v connections, want that of the client and its flow", m["relayed_connections_total"])
	}
}

func TestWaitingClientIsResetWithTheLastBackend(t *testing.T) {
	f := start(t, userspace.Options{DialTimeouts: []time.Duration{time.Hour}})
	at := set(t, f, web(corev1.ProtocolTCP, refuses(t)))
	c := dial(t, at)
	set(t, f, web(corev1.ProtocolTCP))
	if _, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("read %v, want a reset", err)
	}
}

// Backends are added and removed, and removed ones stop as pods do: they close their listeners as
// soon as no connection to them is being made.
func TestBackendsAreReplacedUnderLoadWithoutAFailedRequest(t *testing.T) {
	f := start(t, userspace.Options{})
	open := func(name string) (netip.AddrPort, func()) {
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
				g.Go(func(context.Context) {
					defer func() { _ = c.Close() }()
					_, _ = io.Copy(c, c)
				})
			}
		})
		return l.Addr().(*net.TCPAddr).AddrPort(), func() { _ = l.Close(); g.Wait() }
	}
	first, stopFirst := open("a")
	second, stopSecond := open("b")
	living := []netip.AddrPort{first, second}
	stops := map[netip.AddrPort]func(){first: stopFirst, second: stopSecond}
	at := set(t, f, web(corev1.ProtocolTCP, sorted(living)...))

	var requests atomic.Int64
	g := run.NewGroup(t.Context(), 0)
	over := make(chan struct{})
	for i := range 8 {
		g.Go(func(context.Context) {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				text := fmt.Sprintf("request %d of client %d", n, i)
				got, err := request(at, text)
				if err != nil || got != text {
					t.Errorf("answer %q, %v to %s", got, err, text)
					return
				}
				requests.Add(1)
			}
		})
	}
	for i := range 200 {
		next, stop := open("next")
		stops[next] = stop
		old := living[i%2]
		living[i%2] = next
		set(t, f, web(corev1.ProtocolTCP, sorted(living)...))
		f.Settle(t.Context())
		stops[old]()
		delete(stops, old)
	}
	close(over)
	g.Stop()
	for _, stop := range stops {
		stop()
	}
	t.Logf("%d requests while backends were replaced 200 times", requests.Load())
}

func sorted(a []netip.AddrPort) []netip.AddrPort {
	a = slices.Clone(a)
	slices.SortFunc(a, netip.AddrPort.Compare)
	return a
}

// request is ask for goroutines other than the test's.
func request(at netip.AddrPort, text string) (string, error) {
	c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	if err := c.CloseWrite(); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

func TestAForwarderThatEndsResetsAndOneThatBeginsServes(t *testing.T) {
	to := says(t, "a")
	for range 3 {
		f, err := userspace.New(userspace.Options{Address: loopback4()})
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
		at := set(t, f, web(corev1.ProtocolTCP, to))
		if got := ask(t, at, "!"); got != "a!" {
			t.Errorf("answer %q, want a!", got)
		}
		c := dial(t, at)
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		g.Stop()
		if _, err := io.ReadAll(c); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("at the end the client reads %v, want a reset: it did not get all", err)
		}
		if _, err := f.Set(web(corev1.ProtocolTCP, to)); err == nil {
			t.Error("Set after the end succeeded")
		}
		f.Remove(web(corev1.ProtocolTCP).PoolID)
		f.Settle(t.Context())
	}
}

func TestConnectionsAboveTheLimitAreReset(t *testing.T) {
	f := start(t, userspace.Options{})
	p := web(corev1.ProtocolTCP, says(t, "a"))
	p.MaxConnections = 2
	at := set(t, f, p)
	one := make([]byte, 1)
	first, second := dial(t, at), dial(t, at)
	for _, c := range []*net.TCPConn{first, second} {
		if _, err := io.ReadFull(c, one); err != nil {
			t.Fatal(err)
		}
	}
	wantReset(t, at)
	if got := metricsOf(t, f); got["connections_refused_total"] != 1 || got["connections_open"] != 2 || got["relayed_connections_total"] != 3 {
		t.Errorf("metrics %v, want 3 connections, 2 open, 1 refused", got)
	}
	// Its end is known to the client before the forwarder has counted it.
	_ = first.CloseWrite()
	_, _ = io.Copy(io.Discard, first)
	for {
		if got, err := request(at, ""); err == nil && got == "a" {
			break
		}
	}
	_, _ = second.Write([]byte("x"))
	if _, err := io.ReadFull(second, one); err != nil || one[0] != 'x' {
		t.Errorf("a connection below the limit: %q, %v", one, err)
	}
	p.MaxConnections = 0
	set(t, f, p)
	dialed := dial(t, at)
	if _, err := io.ReadFull(dialed, one); err != nil {
		t.Errorf("after the limit was lifted: %v", err)
	}
}

// TestTheLimitIsThatOfTheService has one of many pools take what all may have: of several ports, of endpoints of this
// node and all, of both families. Another Service has its own.
func TestTheLimitIsThatOfTheService(t *testing.T) {
	f := start(t, userspace.Options{Address6: netip.IPv6Loopback()})
	to := says(t, "a")
	pools := make([]proxy.Pool, 5)
	for i := range pools {
		p := web(corev1.ProtocolTCP, to)
		p.MaxConnections = 2
		pools[i] = p
	}
	pools[1].Port = "other"
	pools[2].Local = true
	pools[3].IPv6, pools[3].Backends = true, nil
	pools[4].Service.Name = "another"
	var at []netip.AddrPort
	for _, p := range pools {
		at = append(at, set(t, f, p))
	}
	open := func(at netip.AddrPort) *net.TCPConn {
		t.Helper()
		c := dial(t, at)
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := open(at[0])
	open(at[1])
	for _, full := range at[:4] {
		wantReset(t, full)
	}
	open(at[4])
	open(at[4])
	wantReset(t, at[4])
	if got := metricsOf(t, f); got["connections_limit"] != 2+2 || got["connections_limited_total"] != 5 || got["connections_refused_total"] != 5 {
		t.Errorf("metrics %v, want limits of 2 and 2, and 5 refused for them", got)
	}
	// What one gives back another has.
	_ = first.CloseWrite()
	_, _ = io.Copy(io.Discard, first)
	for {
		if got, err := request(at[2], ""); err == nil && got == "a" {
			break
		}
	}
	for metricsOf(t, f)["connections_open"] != 1+2 {
		runtime.Gosched() // it has ended for the client before it has for the forwarder
	}
	// Connections of a pool that is gone count.
	f.Remove(pools[1].PoolID)
	open(at[0])
	wantReset(t, at[2])
	for _, i := range []int{0, 2, 3, 4} {
		f.Remove(pools[i].PoolID)
	}
	if got := metricsOf(t, f); got["connections_limit"] != 0 {
		t.Errorf("metrics of Services that are gone: %v", got)
	}
}

func TestDescriptorsOfTheForwarderAreBounded(t *testing.T) {
	f := start(t, userspace.Options{Descriptors: 9})
	p := web(corev1.ProtocolTCP, says(t, "a"))
	p.MaxConnections = 1000
	at := set(t, f, p)
	one, accepted, refused := make([]byte, 1), 0, 0
	for range 20 {
		c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
			_, err = io.ReadFull(c, one)
		}
		switch {
		case err == nil:
			accepted++
		case errors.Is(err, unix.ECONNRESET):
			refused++
		default:
			t.Error(err)
		}
	}
	if accepted != 4 || refused != 16 {
		t.Errorf("%d connections were accepted and %d refused, want 4 and 16: two descriptors each of nine", accepted, refused)
	}
	for i := range 10 {
		p.Port = fmt.Sprint(i)
		if _, err := f.Set(p); err != nil && !strings.Contains(err.Error(), "RLIMIT_NOFILE") {
			t.Errorf("Set = %v, want it to name RLIMIT_NOFILE", err)
		} else if err != nil {
			return
		}
	}
	t.Error("there are more sockets than descriptors")
}

// All bytes arrive in order, whatever their number and whichever side is slow, in both directions
// at a time.
func TestAllBytesComeOver(t *testing.T) {
	f := start(t, userspace.Options{})
	at := set(t, f, web(corev1.ProtocolTCP, backend(t, func(c *net.TCPConn) {
		buf := make([]byte, 100_000)
		for n := 0; ; n++ {
			size := []int{1, 100, 5000, len(buf)}[n%4]
			got, err := c.Read(buf[:size])
			if _, failed := c.Write(buf[:got]); failed != nil || err != nil {
				return
			}
			if n%100 == 0 {
				runtime.Gosched()
			}
		}
	})))
	var want float64
	for _, size := range []int{0, 1, 16<<10 - 1, 16 << 10, 16<<10 + 1, 1 << 20, 8 << 20} {
		sent := make([]byte, size)
		_, _ = rand.Read(sent)
		want += float64(size)
		c := dial(t, at)
		var writing sync.WaitGroup
		writing.Go(func() {
			for rest := sent; len(rest) > 0; {
				n := min(len(rest), 1+len(rest)/3)
				if _, err := c.Write(rest[:n]); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
			}
			_ = c.CloseWrite()
		})
		got, err := io.ReadAll(c)
		writing.Wait()
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("of %d bytes %d came back, equal: %t, %v", size, len(got), bytes.Equal(got, sent), err)
		}
	}
	if m := metricsOf(t, f); m["relayed_bytes_total in"] != want || m["relayed_bytes_total out"] != want {
		t.Errorf("counted %v bytes in and %v out, want %v", m["relayed_bytes_total in"], m["relayed_bytes_total out"], want)
	}
}

func TestMetricsEndWithTheirService(t *testing.T) {
	f := start(t, userspace.Options{Address6: netip.IPv6Loopback()})
	p := web(corev1.ProtocolTCP, refuses(t), says(t, "a"))
	at := set(t, f, p)
	for range 2 {
		ask(t, at, "xyz")
	}
	second := web(corev1.ProtocolTCP) // of the same port
	second.IPv6 = true
	set(t, f, second)
	m := metricsOf(t, f)
	for name, want := range map[string]float64{
		"relayed_connections_total": 2, "connections_refused_total": 0, "relayed_bytes_total in": 6, "relayed_bytes_total out": 8,
		"dial_failures_total": 1, "dial_retries_total": 1, "dial_duration_seconds count": 2,
	} {
		if m[name] != want {
			t.Errorf("%s is %v, want %v", name, m[name], want)
		}
	}
	f.Remove(p.PoolID)
	f.Remove(second.PoolID)
	if m := metricsOf(t, f); len(m) != 0 {
		t.Errorf("after the Service is gone there are %v", m)
	}
}

func TestSettleWaitsForConnectionsOfARemovedPool(t *testing.T) {
	f := start(t, userspace.Options{})
	accepted, speak := make(chan struct{}), make(chan struct{})
	p := web(corev1.ProtocolTCP, backend(t, func(c *net.TCPConn) {
		close(accepted)
		<-speak
		_, _ = io.WriteString(c, "old")
	}))
	c := dial(t, set(t, f, p))
	<-accepted
	f.Remove(p.PoolID)
	f.Remove(p.PoolID) // there is none
	close(speak)
	f.Settle(t.Context())
	if b, err := io.ReadAll(c); string(b) != "old" || err != nil {
		t.Errorf("answer %q, %v, want old", b, err)
	}
	f.Settle(t.Context())
}

func TestSetRefusesImpossiblePools(t *testing.T) {
	f := start(t, userspace.Options{})
	good := web(corev1.ProtocolTCP, says(t, "a"))
	at := set(t, f, good)
	change := func(do func(p *proxy.Pool)) proxy.Pool { p := good; do(&p); return p }
	for want, p := range map[string]proxy.Pool{
		"kernel mode only":   change(func(p *proxy.Pool) { p.Protocol = corev1.ProtocolSCTP }),
		"PROXY protocol":     change(func(p *proxy.Pool) { p.ProxyProtocol = 3 }),
		"is for TCP":         change(func(p *proxy.Pool) { p.Protocol, p.ProxyProtocol = corev1.ProtocolUDP, 2 }),
		"at most -1":         change(func(p *proxy.Pool) { p.MaxConnections = -1 }),
		"family of the pool": change(func(p *proxy.Pool) { p.IPv6 = true }),
		"no address":         change(func(p *proxy.Pool) { p.IPv6, p.Backends = true, nil }),
		"backend 127.0.0.1:0": change(func(p *proxy.Pool) {
			p.Backends = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}
		}),
	} {
		if _, err := f.Set(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Set = %v, want an error that says %q", err, want)
		}
	}
	if got := ask(t, at, "!"); got != "a!" {
		t.Errorf("after them the answer is %q, want a!", got)
	}
}

func TestTheClientIsNamedInAHeader(t *testing.T) {
	f := start(t, userspace.Options{})
	at := map[int]netip.AddrPort{}
	for version := range 3 {
		p := web(corev1.ProtocolTCP, backend(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }))
		p.Port, p.ProxyProtocol = fmt.Sprint(version), version
		at[version] = set(t, f, p)
	}
	for version, at := range at {
		c := dial(t, at)
		_, _ = c.Write([]byte("hello"))
		_ = c.CloseWrite()
		b, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		from := c.LocalAddr().(*net.TCPAddr).AddrPort()
		want := map[int]string{
			0: "hello",
			1: fmt.Sprintf("PROXY TCP4 127.0.0.1 127.0.0.1 %d %d\r\nhello", from.Port(), at.Port()),
			2: "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x7f\x00\x00\x01\x7f\x00\x00\x01" +
				string([]byte{byte(from.Port() >> 8), byte(from.Port()), byte(at.Port() >> 8), byte(at.Port())}) + "hello",
		}[version]
		if string(b) != want {
			t.Errorf("with version %d the backend gets %q, want %q", version, b, want)
		}
	}
}
