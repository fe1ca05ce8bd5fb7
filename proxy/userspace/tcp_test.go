package userspace

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/proxy"
)

// TestAConnectionAllocates pins what a connection may allocate, from the accept to the end:
// what is known of it, and nothing else. The test plays the loop.
func TestAConnectionAllocates(t *testing.T) {
	l, p, server := newCarrier(t)
	to, one := addressOf(p.at), make([]byte, 1)
	check := func(errno unix.Errno) {
		if errno != 0 {
			t.Fatal(errno)
		}
	}
	// until works until a socket has something to read.
	until := func(fd int) {
		for {
			if _, errno := receive(fd, one, unix.MSG_PEEK); errno == 0 {
				return
			}
			l.work(t.Context())
		}
	}
	once := func() {
		client, errno := socket(unix.AF_INET, unix.SOCK_STREAM)
		check(errno)
		connect(client, &to)
		var from address
		in := -1
		for in < 0 {
			l.work(t.Context())
			in, _ = accept(server, &from)
		}
		_, errno = send(client, one)
		check(errno)
		until(in)
		_, errno = receive(in, one, 0)
		check(errno)
		_, errno = send(in, one)
		check(errno)
		until(client)
		_, errno = receive(client, one, 0)
		check(errno)
		_ = unix.Close(client)
		until(in) // its end
		_ = unix.Close(in)
		for p.count.open.Load() > 0 {
			l.work(t.Context())
		}
	}
	once() // what is made once is made
	if got := testing.AllocsPerRun(200, once); got > 1 {
		t.Errorf("a connection allocates %v times, want once", got)
	}
}

// newCarrier makes a pool of TCP whose loop the test plays, and its backend, a socket that listens.
func newCarrier(t *testing.T) (l *loop, p *pool, server int) {
	t.Helper()
	home := netip.MustParseAddr("127.0.0.1")
	f, err := New(Options{Address: home})
	if err != nil {
		t.Fatal(err)
	}
	if l, err = newLoop(f); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.closeAll)
	f.loops = []*loop{l}
	if server, err = listen(home, unix.SOCK_STREAM); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(server) })
	backend, err := localAddress(server)
	if err != nil {
		t.Fatal(err)
	}
	p = &pool{f: f, balancer: newBalancer(), budget: &budget{}, id: proxy.PoolID{PortID: proxy.PortID{Protocol: corev1.ProtocolTCP}}}
	p.budget.most.Store(10)
	p.balancer.set([]netip.AddrPort{backend}, 0)
	if err := p.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	return l, p, server
}

// A server may have said all, and ended, before the loop learns that it has taken the connection.
func TestAServerMayBeFasterThanTheLoop(t *testing.T) {
	l, p, server := newCarrier(t)
	client, errno := socket(unix.AF_INET, unix.SOCK_STREAM)
	if errno != 0 {
		t.Fatal(errno)
	}
	defer func() { _ = unix.Close(client) }()
	to := addressOf(p.at)
	connect(client, &to)
	p.listener.accept(l, l.now) // which dials
	var from address
	in, errno := accept(server, &from)
	if errno != 0 {
		t.Fatal(errno)
	}
	if _, errno := send(in, []byte("bye")); errno != 0 {
		t.Fatal(errno)
	}
	_ = unix.Close(in)
	buf := make([]byte, 10)
	for _, want := range []int{3, 0} {
		l.work(t.Context()) // once: nothing else is going to happen
		if n, errno := receive(client, buf, 0); errno != 0 || n != want {
			t.Errorf("the client reads %d bytes, %v, want %d", n, errno, want)
		}
	}
}
