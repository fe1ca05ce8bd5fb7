package userspace

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/proxy"
)

// A lockedBuilder is a strings.Builder for several goroutines.
type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder // guarded by mu
}

func (l *lockedBuilder) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// running returns a forwarder that runs until stop is called.
func running(t *testing.T, o Options) (f *Forwarder, stop func()) {
	t.Helper()
	o.Address = netip.MustParseAddr("127.0.0.1")
	f, err := New(o)
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
	stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(stop)
	return f, stop
}

var webTCP = proxy.PoolID{PortID: proxy.PortID{Service: types.NamespacedName{Namespace: "default", Name: "web"}, Protocol: corev1.ProtocolTCP}}

// TestPanicEndsOneConnection has a balancer without its endpoints, which panics, for one connection.
func TestPanicEndsOneConnection(t *testing.T) {
	var out lockedBuilder
	f, stop := running(t, Options{Log: slog.New(slog.NewTextHandler(&out, nil))})
	at, err := f.Set(proxy.Pool{PoolID: webTCP})
	if err != nil {
		t.Fatal(err)
	}
	b := f.pools[webTCP].balancer
	b.mu.Lock()
	b.endpoints, b.suspects = []*endpoint{nil}, 1
	b.mu.Unlock()
	read := func() error {
		c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_, err = io.ReadAll(c)
		return err
	}
	if err := read(); err == nil {
		t.Error("the connection ended, want a reset")
	}
	b.mu.Lock()
	b.endpoints, b.suspects = nil, 0
	b.mu.Unlock()
	if err := read(); err == nil {
		t.Error("the second connection ended, want a reset")
	}
	stop()
	if log := out.b.String(); strings.Count(log, "panic, going on") != 1 || f.descriptors.Load() != 0 {
		t.Errorf("%d descriptors are taken; the log says %s", f.descriptors.Load(), log)
	}
}

// TestPipesOfStreamsAreBounded has more long streams than pipes, which stop in the middle: a stream that pauses keeps no
// pipe.
func TestPipesOfStreamsAreBounded(t *testing.T) {
	f, stop := running(t, Options{Descriptors: 100})
	f.maxPipes = 2
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	at, err := f.Set(proxy.Pool{PoolID: webTCP, Backends: []netip.AddrPort{l.Addr().(*net.TCPAddr).AddrPort()}})
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 20
	var writing sync.WaitGroup
	for range 5 {
		c, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(at))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		writing.Go(func() { _, _ = c.Write(make([]byte, size)) })
		server, err := l.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = server.Close() }()
		if n, err := io.CopyN(io.Discard, server, size); n != size {
			t.Errorf("%d bytes came, %v, want %d", n, err, size)
		}
		if n := f.pipes.Load(); n > f.maxPipes+1 { // one more is counted while it is refused
			t.Errorf("%d pipes, want %d", n, f.maxPipes)
		}
	}
	writing.Wait()
	for f.pipes.Load() > 0 { // all connections are open
		runtime.Gosched()
	}
	stop()
}

// TestBuffersOfStalledPeersAreSmall takes more buffers than there are large ones.
func TestBuffersOfStalledPeersAreSmall(t *testing.T) {
	var b buffers
	sizes := map[int]int{}
	var taken [][]byte
	for range manyBuffers + 10 {
		buf := b.get()
		sizes[len(buf)]++
		taken = append(taken, buf)
	}
	if sizes[largeBuffer] != manyBuffers || sizes[smallBuffer] != 10 {
		t.Errorf("buffers by size: %v", sizes)
	}
	for _, buf := range taken {
		b.put(buf)
	}
	if buf := b.get(); len(buf) != largeBuffer || b.lent.Load() != 1 {
		t.Errorf("afterwards a buffer has %d bytes, and %d are in use", len(buf), b.lent.Load())
	}
}
