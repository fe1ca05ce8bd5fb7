package probe

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/proxy/trace"
)

// A dialler makes connections from one network namespace.
type dialler struct {
	namespace string // path; "" is that of this process
}

// dial tries one address of a server.
func (d *dialler) dial(ctx context.Context, at netip.AddrPort, protocol corev1.Protocol) trace.Answer {
	begin := time.Now()
	f, err := d.connect(ctx, at, protocol)
	if err != nil {
		return failure(err, time.Since(begin))
	}
	defer f.Close()
	a := trace.Answer{Result: trace.Answered, Seconds: time.Since(begin).Seconds()}
	if protocol != corev1.ProtocolUDP {
		return a
	}
	return datagram(f, begin)
}

// datagram sends an empty packet, and waits for an ICMP error.
func datagram(f *os.File, begin time.Time) trace.Answer {
	if err := control(f, func(fd int) error { _, err := unix.SendmsgN(fd, nil, nil, nil, 0); return err }); err != nil {
		return failure(err, time.Since(begin))
	}
	_, err := receive(f, refusalLimit)
	switch {
	case err == nil:
		return trace.Answer{Result: trace.Answered, Seconds: time.Since(begin).Seconds()}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return trace.Answer{Result: trace.Silent, Seconds: time.Since(begin).Seconds()}
	}
	return failure(err, time.Since(begin))
}

// frontend tries an address of a Service. A forwarder accepts connections before it has a backend,
// and resets them if there is none: after dialling a relayed frontend it waits for that, longer if
// no backend answered.
func (d *dialler) frontend(ctx context.Context, at netip.AddrPort, protocol corev1.Protocol, relayed, some bool) trace.Answer {
	if !relayed || protocol != corev1.ProtocolTCP {
		return d.dial(ctx, at, protocol)
	}
	begin := time.Now()
	f, err := d.connect(ctx, at, protocol)
	if err != nil {
		return failure(err, time.Since(begin))
	}
	defer f.Close()
	a := trace.Answer{Result: trace.Answered, Seconds: time.Since(begin).Seconds()}
	limit := relayLimit
	if some {
		limit = refusalLimit
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	n, err := receive(f, limit)
	if err == nil && n == 0 && !some || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return trace.Answer{Result: trace.Closed, Seconds: time.Since(begin).Seconds()}
	}
	return a
}

// receive waits for data. 0 bytes of a stream are its end.
func receive(f *os.File, limit time.Duration) (n int, err error) {
	if err := f.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return 0, err
	}
	c, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = c.Read(func(fd uintptr) bool {
		var b [1]byte
		n, _, failed = unix.Recvfrom(int(fd), b[:], 0)
		return !errors.Is(failed, unix.EAGAIN)
	})
	return n, errors.Join(err, failed)
}

func control(f *os.File, do func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = c.Control(func(fd uintptr) { failed = do(int(fd)) })
	return errors.Join(err, failed)
}

// connect returns a socket that is connected to an address. The socket stays in the namespace in
// which it was made, whichever goroutine uses it.
func (d *dialler) connect(ctx context.Context, at netip.AddrPort, protocol corev1.Protocol) (*os.File, error) {
	fd, err := d.socket(ctx, at.Addr(), protocol)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "connection to "+at.String()) // it is polled, because the socket does not block
	if err := establish(ctx, f, at); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func establish(ctx context.Context, f *os.File, at netip.AddrPort) error {
	if err := f.SetDeadline(time.Now().Add(dialLimit)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err := control(f, func(fd int) error { return unix.Connect(fd, sockaddr(at)) })
	if !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = c.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			failed = err
		case code != 0:
			failed = unix.Errno(code)
		default:
			_, err := unix.Getpeername(int(fd))
			return err == nil // otherwise it is not connected yet
		}
		return true
	})
	return errors.Join(err, failed)
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
}

// socket makes a socket in the namespace.
func (d *dialler) socket(ctx context.Context, to netip.Addr, protocol corev1.Protocol) (int, error) {
	if d.namespace == "" {
		return newSocket(to, protocol)
	}
	type made struct {
		fd  int
		err error
	}
	done := make(chan made, 1)
	visit := run.NewGroup(ctx, 0)
	defer visit.Stop()
	visit.Go(func(context.Context) {
		// The thread is never unlocked, so that it ends with this goroutine (probe-R3): returning
		// to the old namespace could fail.
		runtime.LockOSThread()
		ns, err := unix.Open(d.namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			done <- made{-1, fmt.Errorf("the network namespace of the pod: %w", err)}
			return
		}
		defer unix.Close(ns)
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			done <- made{-1, fmt.Errorf("entering the network namespace of the pod: %w", err)}
			return
		}
		fd, err := newSocket(to, protocol)
		done <- made{fd, err}
	})
	visit.Wait()
	select {
	case m := <-done:
		return m.fd, m.err
	default: // ctx was cancelled before it began
		return -1, context.Cause(ctx)
	}
}

func newSocket(to netip.Addr, protocol corev1.Protocol) (int, error) {
	family, kind, number := unix.AF_INET, unix.SOCK_STREAM, 0
	if to.Is6() {
		family = unix.AF_INET6
	}
	switch protocol {
	case corev1.ProtocolTCP:
	case corev1.ProtocolUDP:
		kind = unix.SOCK_DGRAM
	case corev1.ProtocolSCTP:
		number = unix.IPPROTO_SCTP
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, number)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return -1, fmt.Errorf("the kernel of this node has no %s", protocol)
	}
	return fd, os.NewSyscallError("socket", err)
}

// source returns the source address of packets to another address, or none if there is no route.
func source(to netip.AddrPort) netip.Addr {
	if !to.IsValid() {
		return netip.Addr{}
	}
	fd, err := newSocket(to.Addr(), corev1.ProtocolUDP)
	if err != nil {
		return netip.Addr{}
	}
	defer unix.Close(fd)
	if unix.Connect(fd, sockaddr(to)) != nil { // connecting UDP sends nothing
		return netip.Addr{}
	}
	own, err := unix.Getsockname(fd)
	if err != nil {
		return netip.Addr{}
	}
	switch own := own.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(own.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(own.Addr)
	}
	return netip.Addr{}
}

// failure returns the Result of an error.
func failure(err error, after time.Duration) trace.Answer {
	a := trace.Answer{Result: trace.Failed, Seconds: after.Seconds(), Error: err.Error()}
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		a.Result, a.Error = trace.Refused, ""
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH):
		a.Result = trace.NoRoute
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		a.Result, a.Error = trace.TimedOut, ""
	case errors.Is(err, unix.ECONNRESET):
		a.Result = trace.Closed
	}
	return a
}
