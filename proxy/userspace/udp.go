package userspace

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/run"
)

// maxFlows bounds the UDP clients of one port that are served at a time; packets
// of further ones are dropped, as UDP allows.
const maxFlows = 4096

// flows are the clients of one UDP port.
type flows struct {
	mu sync.Mutex
	by map[netip.AddrPort]*flow // guarded by mu
}

// A flow is a client and the socket through which its packets go to a backend.
type flow struct {
	backend netip.AddrPort
	conn    *net.UDPConn
}

// serveUDP carries the packets of a socket until it is closed.
func (f *Forwarder) serveUDP(group *run.Group, in *net.UDPConn, b *balancer) {
	fs := &flows{by: map[netip.AddrPort]*flow{}}
	defer fs.closeAll()
	buf := make([]byte, 65535)
	for {
		n, client, err := in.ReadFromUDPAddrPort(buf)
		if err != nil {
			return // closed: nothing else ends a UDP socket
		}
		fl := f.flow(group, fs, in, client, b)
		if fl == nil {
			continue
		}
		_ = fl.conn.SetReadDeadline(time.Now().Add(f.opts.IdleTimeout))
		if _, err := fl.conn.Write(buf[:n]); err != nil {
			fs.remove(client, fl)
		}
	}
}

// flow returns the flow of a client, made anew if there is none or its backend
// is gone; nil drops the packet.
func (f *Forwarder) flow(group *run.Group, fs *flows, in *net.UDPConn, client netip.AddrPort, b *balancer) *flow {
	fs.mu.Lock()
	fl, n := fs.by[client], len(fs.by)
	fs.mu.Unlock()
	if fl != nil && b.has(fl.backend) {
		return fl
	}
	if fl != nil {
		fs.remove(client, fl)
	}
	if n >= maxFlows {
		return nil
	}
	backend, _, ok := b.pick(client.Addr().Unmap(), time.Now(), false)
	if !ok {
		return nil
	}
	conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(backend))
	if err != nil {
		f.opts.Log.Debug("opening a flow to a backend", "backend", backend, "err", err)
		return nil
	}
	fl = &flow{backend: backend, conn: conn}
	fs.mu.Lock()
	fs.by[client] = fl
	fs.mu.Unlock()
	if !group.Go(func(ctx context.Context) { f.answers(ctx, fs, in, client, fl) }) {
		fs.remove(client, fl)
		return nil
	}
	return fl
}

// answers carries what a backend sends back, until the flow is silent or closed.
func (f *Forwarder) answers(ctx context.Context, fs *flows, in *net.UDPConn, client netip.AddrPort, fl *flow) {
	defer fs.remove(client, fl)
	stop := context.AfterFunc(ctx, func() { _ = fl.conn.Close() })
	defer stop()
	raw, err := fl.conn.SyscallConn()
	if err != nil {
		return
	}
	for {
		// Memory for a packet is taken only when there is one: most flows wait
		// most of the time, and there may be many.
		var carried error
		err := raw.Read(func(fd uintptr) bool {
			buf := f.packets.Get().(*packet) // there is nothing else in it
			defer f.packets.Put(buf)
			n, _, err := unix.Recvfrom(int(fd), buf[:], 0)
			for errors.Is(err, unix.EINTR) {
				n, _, err = unix.Recvfrom(int(fd), buf[:], 0)
			}
			switch {
			case errors.Is(err, unix.EAGAIN):
				return false
			case err == nil:
				_, err = in.WriteToUDPAddrPort(buf[:n], client)
			}
			carried = err
			return true
		})
		if err != nil || carried != nil {
			return
		}
		_ = fl.conn.SetReadDeadline(time.Now().Add(f.opts.IdleTimeout))
	}
}

// A packet has room for the largest one that UDP knows.
type packet [65535]byte

func (fs *flows) remove(client netip.AddrPort, fl *flow) {
	_ = fl.conn.Close()
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.by[client] == fl {
		delete(fs.by, client)
	}
}

func (fs *flows) closeAll() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, fl := range fs.by {
		_ = fl.conn.Close()
	}
}
