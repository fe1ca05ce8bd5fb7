package userspace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/proxy/userspace"
)

// openFiles returns the number of descriptors of this process whose target begins with prefix.
func openFiles(t *testing.T, prefix string) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, prefix) {
			n++
		}
	}
	return n
}

// idle waits until a forwarder has no connections.
func idle(t *testing.T, f *userspace.Forwarder) {
	t.Helper()
	for metricsOf(t, f)["connections_open"] > 0 {
		runtime.Gosched()
	}
}

// TestHostilePeersLeaveNothing has clients and backends that end, reset, stall and half-close at random moments, while
// the Service changes. Afterwards there are as many descriptors and goroutines as before, and the forwarder works.
func TestHostilePeersLeaveNothing(t *testing.T) {
	f := start(t, userspace.Options{DialTimeouts: []time.Duration{20 * time.Millisecond, time.Second}})
	stall := make(chan struct{})
	// One round of a peer: it does a few random things and closes or resets.
	misbehave := func(c *net.TCPConn) {
		_ = c.SetDeadline(time.Now().Add(50 * time.Millisecond))
		for range rand.N(4) {
			switch rand.N(6) {
			case 0:
				_, _ = c.Write(make([]byte, 1+rand.N(300_000)))
			case 1, 2:
				_, _ = c.Read(make([]byte, 1+rand.N(100_000)))
			case 3:
				_ = c.CloseWrite()
			case 4:
				_ = c.CloseRead()
			case 5:
				runtime.Gosched()
			}
		}
		if rand.N(2) == 0 {
			_ = c.SetLinger(0)
		}
		_ = c.Close()
	}
	hostile := []netip.AddrPort{
		backend(t, misbehave),
		backend(t, misbehave),
		backend(t, func(c *net.TCPConn) { _ = c.SetLinger(0) }),
		backend(t, func(*net.TCPConn) { <-stall }), // accepts, and does nothing
		refuses(t),
	}
	good := says(t, "good")
	p := web(corev1.ProtocolTCP, sorted(hostile)...)
	p.MaxConnections = 400
	at := set(t, f, p)
	p.Backends = []netip.AddrPort{good}
	set(t, f, p)
	ask(t, at, "")
	idle(t, f)
	descriptors, goroutines := openFiles(t, "socket:"), runtime.NumGoroutine()

	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			for range 40 {
				c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
				if err != nil {
					continue
				}
				misbehave(c)
			}
		})
	}
	over := make(chan struct{})
	var changes sync.WaitGroup
	changes.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-over:
				return
			default:
			}
			p := p
			p.ProxyProtocol = n % 3
			p.Backends = sorted(hostile[n%2 : 2+rand.N(len(hostile)-1)])
			if _, err := f.Set(p); err != nil {
				t.Error(err)
				return
			}
			runtime.Gosched()
		}
	})
	clients.Wait()
	close(over)
	changes.Wait()
	close(stall)
	idle(t, f)
	set(t, f, p)
	if got := ask(t, at, "!"); got != "good!" {
		t.Errorf("afterwards the answer is %q, want good!", got)
	}
	deadline := time.Now().Add(time.Minute)
	for openFiles(t, "socket:") > descriptors+2 || runtime.NumGoroutine() > goroutines+2 { // those of ask
		if time.Now().After(deadline) {
			stack := make([]byte, 1<<20)
			t.Fatalf("%d sockets and %d goroutines, before: %d and %d\n%s", openFiles(t, "socket:"), runtime.NumGoroutine(),
				descriptors, goroutines, stack[:runtime.Stack(stack, true)])
		}
		runtime.Gosched()
	}
}

// TestEndedConnectionsTakeNoMemory has many connections, one after the other.
func TestEndedConnectionsTakeNoMemory(t *testing.T) {
	f := start(t, userspace.Options{})
	at := set(t, f, web(corev1.ProtocolTCP, backend(t, func(*net.TCPConn) {})))
	connect := func(times int) (heap uint64) {
		for range times {
			_, _ = request(at, "")
		}
		idle(t, f)
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := connect(200)
	const times, most = 2000, 100
	if after := connect(times); after > before+times*most {
		t.Errorf("a connection that has ended takes %d bytes, want less than %d", (after-before)/times, most)
	}
}

// TestResetAfterAnEndIsPassedOn has one side end its stream and then reset the connection, while the other one is
// silent: nothing is copied that could fail.
func TestResetAfterAnEndIsPassedOn(t *testing.T) {
	f := start(t, userspace.Options{})
	t.Run("of the client", func(t *testing.T) {
		ended := make(chan error, 1)
		at := set(t, f, web(corev1.ProtocolTCP, backend(t, func(c *net.TCPConn) {
			_, _ = io.ReadAll(c)
			ended <- nil
			ended <- c.SetReadDeadline(time.Time{})
			for closedSocket(c) == nil {
				runtime.Gosched()
			}
			ended <- nil
		})))
		c := dial(t, at)
		_, _ = c.Write([]byte("x"))
		_ = c.CloseWrite()
		<-ended
		_ = c.SetLinger(0)
		_ = c.Close()
		<-ended
		<-ended // it hangs here if the server is not reset
	})
	t.Run("of the server", func(t *testing.T) {
		leave := make(chan struct{})
		at := set(t, f, web(corev1.ProtocolTCP, backend(t, func(c *net.TCPConn) {
			_, _ = c.Write([]byte("x"))
			_ = c.CloseWrite()
			<-leave
			_ = c.SetLinger(0)
		})))
		c := dial(t, at)
		if b, err := io.ReadAll(c); string(b) != "x" || err != nil {
			t.Fatalf("read %q, %v", b, err)
		}
		close(leave)
		for closedSocket(c) == nil {
			runtime.Gosched()
		}
	})
	idle(t, f)
}

// closedSocket returns an error if the kernel has closed a socket, as it does after a reset.
func closedSocket(c *net.TCPConn) (err error) {
	raw, fault := c.SyscallConn()
	if fault != nil {
		return fault
	}
	fault = raw.Control(func(fd uintptr) {
		if info, _ := unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO); info == nil || info.State == unix.BPF_TCP_CLOSE {
			err = unix.ECONNRESET
		}
	})
	return errors.Join(fault, err)
}

// TestUrgentBytesStayInTheStream has a byte that is marked as urgent in the middle of a stream that is spliced.
func TestUrgentBytesStayInTheStream(t *testing.T) {
	f := start(t, userspace.Options{})
	at := set(t, f, web(corev1.ProtocolTCP, backend(t, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		_, _ = fmt.Fprintf(c, "%d %d", len(b), bytes.IndexByte(b, '!'))
	})))
	c := dial(t, at)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const half = 1 << 20
	_, _ = c.Write(make([]byte, half))
	if err := raw.Write(func(fd uintptr) bool {
		return !errors.Is(unix.Sendto(int(fd), []byte("!"), unix.MSG_OOB|unix.MSG_DONTWAIT, nil), unix.EAGAIN)
	}); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write(make([]byte, half))
	_ = c.CloseWrite()
	if b, err := io.ReadAll(c); string(b) != fmt.Sprintf("%d %d", 2*half+1, half) {
		t.Errorf("the server received %q (bytes, place of the urgent one), %v, want %d %d", b, err, 2*half+1, half)
	}
}

// TestSetWhileTheForwarderEnds adds pools while Run ends, which must not wait for ever.
func TestSetWhileTheForwarderEnds(t *testing.T) {
	for range 100 {
		f, err := userspace.New(userspace.Options{Address: loopback4()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if err := f.Run(ctx); err != nil {
				t.Errorf("Run = %v", err)
			}
		})
		<-f.Ready()
		all.Go(func() {
			for n := 0; ; n++ {
				p := web(corev1.ProtocolTCP)
				p.Port = fmt.Sprint(n)
				if _, err := f.Set(p); err != nil {
					return
				}
				if n == 5 {
					cancel()
				}
			}
		})
		all.Wait()
		cancel()
	}
}

// TestClientsGetPlainTCP has a client that asks for MPTCP, for which the kernel reports no original destination.
func TestClientsGetPlainTCP(t *testing.T) {
	f := start(t, userspace.Options{})
	at := set(t, f, web(corev1.ProtocolTCP, says(t, "a")))
	var d net.Dialer
	d.SetMultipathTCP(true)
	c, err := d.DialContext(t.Context(), "tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if multi, err := c.(*net.TCPConn).MultipathTCP(); multi || err != nil {
		t.Errorf("the connection has MPTCP: %t, %v", multi, err)
	}
}

// TestHeaderThatABackendResetsGoesToAnotherOne has a backend that resets a connection before or after it received the
// PROXY header.
func TestHeaderThatABackendResetsGoesToAnotherOne(t *testing.T) {
	rude := backend(t, func(c *net.TCPConn) { _ = c.SetLinger(0) })
	polite := says(t, "polite")
	for range 100 {
		f := start(t, userspace.Options{}) // which does not know yet which is which
		p := web(corev1.ProtocolTCP, rude, polite)
		p.ProxyProtocol = 1
		at := set(t, f, p)
		for range 2 {
			if got := ask(t, at, ""); !strings.HasPrefix(got, "politePROXY TCP4 ") {
				t.Fatalf("answer %q, want that of the polite one", got)
			}
		}
	}
}
