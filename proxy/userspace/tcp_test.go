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
	home := netip.MustParseAddr("127.0.0.1")
	f, err := New(Options{Address: home})
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLoop(f)
	if err != nil {
		t.Fatal(err)
	}
	defer l.closeAll()
	f.loops = []*loop{l}
	server, err := listen(home, unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(server) }()
	backend, err := localAddress(server)
	if err != nil {
		t.Fatal(err)
	}
	p := &pool{f: f, balancer: newBalancer(), id: proxy.PoolID{PortID: proxy.PortID{Protocol: corev1.ProtocolTCP}}}
	p.most.Store(10)
	p.balancer.set([]netip.AddrPort{backend}, 0)
	if err := p.open(); err != nil {
		t.Fatal(err)
	}
	defer p.stop()
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
