package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// DialLoopback connects to a TCP port on the loopback addresses of a network namespace, first that of IPv4, then that
// of IPv6. netns is the path of the namespace; "" means that of this process. It does not hold a thread while it waits.
// The error has the reasons of both families.
func DialLoopback(ctx context.Context, netns string, port uint16) (*net.TCPConn, error) {
	conn, err4 := dial(ctx, netns, unix.AF_INET, &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}})
	if err4 == nil {
		return conn, nil
	}
	conn, err6 := dial(ctx, netns, unix.AF_INET6, &unix.SockaddrInet6{Port: int(port), Addr: [16]byte(net.IPv6loopback)})
	if err6 == nil {
		return conn, nil
	}
	// containerd's text
	return nil, fmt.Errorf("IPv4: dial tcp4 127.0.0.1:%d: %w IPv6 dial tcp6 [::1]:%d: %w", port, err4, port, err6)
}

// dial makes the socket in the namespace, where it stays, and waits for the connection outside.
func dial(ctx context.Context, netns string, domain int, to unix.Sockaddr) (*net.TCPConn, error) {
	fd := -1
	err := inside(netns, func() error {
		var err error
		fd, err = unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "port-forward")
	defer f.Close()
	if err := connect(ctx, f, to); err != nil {
		return nil, err
	}
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

func connect(ctx context.Context, f *os.File, to unix.Sockaddr) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })()
	begun, failed := false, error(nil)
	err = rc.Write(func(fd uintptr) bool {
		if !begun {
			begun = true
			failed = unix.Connect(int(fd), to)
			return !errors.Is(failed, unix.EINPROGRESS)
		}
		// Writable now: connected, or not.
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if failed = err; err == nil && code != 0 {
			failed = unix.Errno(code)
		}
		return true
	})
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return os.NewSyscallError("connect", failed)
}

// inside calls f on a thread that is in the network namespace at path; "" means that of this process.
func inside(path string, f func() error) error {
	if path == "" {
		return f()
	}
	there, err := os.Open(path)
	if err != nil {
		return err
	}
	defer there.Close()
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("entering the network namespace %s: %w", path, err)
	}
	err = f()
	if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread() // otherwise the thread ends with this goroutine
	}
	return err
}
