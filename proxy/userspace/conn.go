package userspace

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/run"
)

// The two sides of a connection, and the directions in which bytes flow: a direction
// has the number of the side that it comes from.
const (
	clientSide = 0
	serverSide = 1
)

// freshLimit is the time after which the server counts as having taken a connection,
// although it has not sent anything: it may wait for the client to speak first.
const freshLimit = time.Second

// A conn is one TCP connection of a client. Its goroutine dials backends and then copies
// what the server sends; a second goroutine copies the client's bytes.
type conn struct {
	pool   *pool
	client netip.AddrPort
	in     *net.TCPConn

	early []byte // bytes that were read from the client and not sent to a backend
}

// serve forwards a connection until it ends, and closes it. It blocks.
func (p *pool) serve(ctx context.Context, in *net.TCPConn) {
	p.count.connections.Add(1)
	if !p.admit() {
		p.count.refused.Add(1)
		reset(in)
		return
	}
	defer p.release()
	client, _ := in.RemoteAddr().(*net.TCPAddr) // nil after a reset
	c := &conn{pool: p, in: in, client: unmapped(client.AddrPort())}
	if client == nil || !c.forward(ctx) {
		p.count.refused.Add(1)
		reset(in)
	}
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// forward dials backends in rounds and carries the connection. It returns false, with
// c.in still open, if no backend accepted it (userspace-U1, U2).
func (c *conn) forward(ctx context.Context) bool {
	p, began := c.pool, time.Now()
	first := true
	for _, timeout := range p.f.opts.DialTimeouts {
		deadline := time.Now().Add(timeout)
		var tried []*endpoint // in this round
		for {
			changed := p.balancer.changes()
			e := p.balancer.begin(c.client.Addr(), time.Now(), tried)
			if e == nil {
				if p.balancer.count() == 0 || ctx.Err() != nil {
					return false
				}
				if !awaitChange(ctx, changed, deadline) {
					break
				}
				continue
			}
			if !first {
				p.count.retries.Add(1)
			}
			first = false
			out, err := p.dial(ctx, e, c.client, deadline)
			if err == nil {
				p.balancer.answered(e)
				p.count.dials.observe(time.Since(began))
				if done := c.carry(ctx, out, e); done {
					return true
				}
				deadline = time.Now().Add(timeout) // another one gets the time that the first one had
			} else {
				p.balancer.done(e)
			}
			p.count.failures.Add(1)
			if ctx.Err() != nil {
				return false
			}
			if local(err) {
				p.warn("connecting to a backend of a service", err)
				return false
			}
			if !errors.Is(err, unix.EADDRNOTAVAIL) { // no free local port: not the backend's fault
				p.balancer.failed(e, c.client.Addr(), time.Now())
			}
			tried = append(tried, e)
			if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
				break
			}
		}
	}
	return false
}

// local reports whether dialing failed for a reason on this node, so that another backend
// would fail as well.
func local(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM) || errors.Is(err, errOption)
}

// errOption reports that a socket option of the pool could not be set.
var errOption = errors.New("preparing the socket to a backend")

// awaitChange waits until the backends change and returns true, or false at the deadline.
func awaitChange(ctx context.Context, changed <-chan struct{}, deadline time.Time) bool {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-changed:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// dial connects to an endpoint for a client.
func (p *pool) dial(ctx context.Context, e *endpoint, client netip.AddrPort, deadline time.Time) (*net.TCPConn, error) {
	if p.isOwn(e) {
		return nil, unix.ECONNREFUSED
	}
	d := net.Dialer{Deadline: deadline, KeepAlive: 15 * time.Second}
	d.Control = func(_, _ string, raw syscall.RawConn) error {
		errno := unix.Errno(0)
		err := raw.Control(func(fd uintptr) {
			urgentInline(int(fd))
			errno = p.prepare(int(fd), e, client)
		})
		if err == nil && errno != 0 {
			err = errors.Join(errOption, errno)
		}
		return err
	}
	out, err := d.DialContext(ctx, "tcp", e.name)
	if err != nil {
		return nil, err
	}
	return out.(*net.TCPConn), nil // package net promises it
}

// A carrier is a connection between a client and a backend that has accepted it.
type carrier struct {
	c   *conn
	out *net.TCPConn
	e   *endpoint

	settled atomic.Bool // the server is known to have accepted the connection
	broken  atomic.Bool // one direction has failed and the other one must stop
	up      direction
	down    direction
}

// A direction is the state of copying from one side to the other.
type direction struct {
	moved int64
	ended atomic.Bool // the side has ended its stream
	err   error       // what broke it
}

// carry copies in both directions until the connection ends, closes both sockets and returns
// true. It returns false, with c.in still open, if the server reset the connection before any
// byte was carried, so that another backend can be dialed.
func (c *conn) carry(ctx context.Context, out *net.TCPConn, e *endpoint) (done bool) {
	k := &carrier{c: c, out: out, e: e}
	defer k.settle()
	stop := context.AfterFunc(ctx, func() { reset(c.in); reset(out) })
	defer stop()
	if err := c.pool.introduce(c.in, out, c.client); err != nil {
		reset(out)
		return false
	}
	ended := make(chan struct{})
	if !c.pool.f.group.Go(func(context.Context) {
		defer close(ended)
		k.up.err = run.Catch(k.carryUp)
		if k.up.err != nil {
			k.broken.Store(true)
			_ = out.CloseRead()
			_ = c.in.SetWriteDeadline(aLongTimeAgo)
		}
	}) {
		reset(out)
		return false // ctx is cancelled
	}
	k.down.err = run.Catch(k.carryDown)
	if k.down.err != nil {
		k.broken.Store(true)
		_ = c.in.SetReadDeadline(aLongTimeAgo)
		_ = out.SetWriteDeadline(aLongTimeAgo)
	}
	<-ended
	for _, err := range []error{k.up.err, k.down.err} {
		if fault, ok := errors.AsType[*run.PanicError](err); ok {
			c.pool.f.opts.Log.Error("panic, ending a connection to a service", "service", c.pool.id.Service, "err", fault)
		}
	}
	switch {
	case k.up.err == nil && k.down.err == nil:
		_ = c.in.Close()
		_ = out.Close()
		return true
	case k.up.moved == 0 && k.down.moved == 0 && !k.down.ended.Load() && ctx.Err() == nil && k.brokenByServer():
		reset(out)
		_ = c.in.SetDeadline(time.Time{})
		return false
	}
	reset(c.in)
	reset(out)
	return true
}

// errInterrupted stops a direction after the other one has failed.
var errInterrupted = errors.New("interrupted")

var aLongTimeAgo = time.Unix(1, 0)

// A readError wraps an error of reading from one side, as opposed to writing to the other one.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

// brokenByServer reports whether the server's socket failed, and not the client's.
func (k *carrier) brokenByServer() bool {
	_, fromClient := errors.AsType[readError](k.up.err)
	_, fromServer := errors.AsType[readError](k.down.err)
	toServer := k.up.err != nil && !fromClient && !errors.Is(k.up.err, os.ErrDeadlineExceeded) && !errors.Is(k.up.err, errInterrupted)
	return fromServer || toServer
}

// carryUp copies from the client to the server.
func (k *carrier) carryUp() error {
	return k.pump(clientSide, k.c.in, k.out, &k.up, &k.down, &k.c.early, func() {})
}

// carryDown copies from the server to the client. The first read has a deadline: after freshLimit
// the server counts as having accepted the connection even if it has sent nothing (userspace-U7).
func (k *carrier) carryDown() error {
	_ = k.out.SetReadDeadline(time.Now().Add(freshLimit))
	for {
		err := k.pump(serverSide, k.out, k.c.in, &k.down, &k.up, nil, k.settle)
		if errors.Is(err, os.ErrDeadlineExceeded) && !k.settled.Load() {
			k.settle()
			continue
		}
		return err
	}
}

// settle records that the server has accepted the connection.
func (k *carrier) settle() {
	if !k.settled.Swap(true) {
		k.c.pool.balancer.done(k.e)
		_ = k.out.SetReadDeadline(time.Time{})
	}
}

// pump copies in one direction until the stream ends or fails. If early is not nil, it is written
// first; bytes that were read and of which none could be written are left in it. pump calls first
// after the first successful read.
func (k *carrier) pump(side int, from, to *net.TCPConn, d, other *direction, early *[]byte, first func()) error {
	p := k.c.pool
	if early != nil && len(*early) > 0 {
		if err := p.write(side, to, *early, d); err != nil {
			return err
		}
		*early = nil
	}
	r, err := newReader(from, &p.f.buffers)
	if err != nil {
		return readError{err}
	}
	for {
		buf, n, err := r.next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err != nil {
			return readError{err}
		}
		if first != nil {
			first()
			first = nil
		}
		if n == 0 && k.broken.Load() {
			return errInterrupted
		}
		if n == 0 && !other.ended.Load() && r.closed() {
			return readError{unix.ECONNRESET} // a write of the other direction got the error
		}
		if n == 0 {
			d.ended.Store(true)
			_ = to.CloseWrite()
			return k.awaitReset(r, to, other)
		}
		err = p.write(side, to, buf[:n], d)
		if err != nil && early != nil && d.moved == 0 {
			*early = append([]byte(nil), buf[:n]...)
		}
		p.f.buffers.put(buf)
		if err == nil && n == largeBuffer { // there is probably more
			err = k.splice(side, from, to, d)
		}
		if err != nil {
			return err
		}
	}
}

// awaitReset waits, after one side has ended its stream, until the other one has as well. It returns an error if the
// side that ended is reset meanwhile: nothing is read from it any more, so no other call would notice.
func (k *carrier) awaitReset(r *reader, to *net.TCPConn, other *direction) error {
	if other.ended.Load() { // it waits here, or will look at this direction
		_ = to.SetReadDeadline(aLongTimeAgo)
		return nil
	}
	reset := false
	err := r.raw.Read(func(fd uintptr) bool {
		reset = isClosed(fd)
		return reset || k.broken.Load() || other.ended.Load()
	})
	switch {
	case other.ended.Load():
		return nil
	case k.broken.Load():
		return errInterrupted
	case reset:
		return readError{unix.ECONNRESET}
	}
	return err
}

// A stretch of splicing moves up to spliced bytes before they are counted, and ends when no byte came for spliceWait:
// the pipe that it uses has two descriptors and up to a MiB of memory.
const (
	spliced    = 1 << 20
	spliceWait = time.Second
)

// splice moves up to spliced bytes within the kernel: package net uses splice(2) between two TCP
// sockets. It does nothing if too many pipes are in use.
func (k *carrier) splice(side int, from, to *net.TCPConn, d *direction) error {
	f := k.c.pool.f
	if f.pipes.Add(1) > f.maxPipes {
		f.pipes.Add(-1)
		return nil
	}
	defer f.pipes.Add(-1)
	_ = from.SetReadDeadline(time.Now().Add(spliceWait))
	if k.broken.Load() {
		return errInterrupted // that call may have replaced the deadline that interrupts
	}
	n, err := to.ReadFrom(&io.LimitedReader{R: from, N: spliced})
	d.moved += n
	k.c.pool.count.bytes[side].Add(uint64(n))
	_ = from.SetReadDeadline(time.Time{})
	switch {
	case k.broken.Load():
		return errInterrupted
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	}
	return err
}

func (p *pool) write(side int, to *net.TCPConn, b []byte, d *direction) error {
	n, err := to.Write(b)
	d.moved += int64(n)
	p.count.bytes[side].Add(uint64(n))
	return err
}

// A reader reads from a socket. It takes a buffer only when there are bytes to read, so that
// an idle connection has none.
type reader struct {
	raw     syscall.RawConn
	buffers *buffers
	try     func(fd uintptr) bool
	buf     []byte
	n       int
	fail    error
}

func newReader(c *net.TCPConn, from *buffers) (*reader, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	r := &reader{raw: raw, buffers: from}
	r.try = r.attempt
	return r, nil
}

// next waits for bytes and returns them in a buffer that the caller puts back; n is 0 and the
// buffer nil at the end of the stream.
func (r *reader) next() ([]byte, int, error) {
	err := r.raw.Read(r.try)
	if err == nil {
		err = r.fail
	}
	return r.buf, r.n, err
}

// attempt reads without blocking. It returns false if there is nothing to read.
func (r *reader) attempt(fd uintptr) bool {
	buf := r.buffers.get()
	for {
		n, err := unix.Read(int(fd), buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			r.buffers.put(buf)
			return false
		case n <= 0:
			r.buffers.put(buf)
			r.buf, r.n, r.fail = nil, 0, err
			return true
		}
		r.buf, r.n, r.fail = buf, n, nil
		return true
	}
}

// closed reports whether the kernel has closed the socket. It has after a reset; it has not after
// the peer ended its stream, unless this side has ended its own stream as well.
func (r *reader) closed() (closed bool) {
	_ = r.raw.Control(func(fd uintptr) { closed = isClosed(fd) })
	return closed
}

func isClosed(fd uintptr) bool {
	info, err := unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO)
	return err == nil && info.State == unix.BPF_TCP_CLOSE
}

// reset closes a connection with a TCP reset, so that the peer sees a failure and not an end.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// keepAlive enables TCP keep-alives with the values of package net.
func keepAlive(fd int) {
	set(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
	set(fd, unix.SOL_TCP, unix.TCP_KEEPIDLE, 15)
	set(fd, unix.SOL_TCP, unix.TCP_KEEPINTVL, 15)
	set(fd, unix.SOL_TCP, unix.TCP_KEEPCNT, 9)
}

// urgentInline leaves urgent bytes in the stream: otherwise they would be lost.
func urgentInline(fd int) { set(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1) }
