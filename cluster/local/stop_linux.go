//go:build !portable

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// End sends SIGTERM to a process and blocks until it has exited. After patience it sends
// SIGKILL; it returns early when ctx is cancelled. A process that does not exist is not
// an error.
func End(ctx context.Context, p Process, patience time.Duration) error {
	if p.PID == 0 {
		return nil
	}
	fd, err := p.hold()
	if fd < 0 {
		return err
	}
	defer unix.Close(fd)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("stopping process %d: %w", p.PID, err)
		}
		gone, err := awaitExit(ctx, fd, patience)
		if gone || err != nil {
			return err
		}
	}
	return fmt.Errorf("process %d does not exit after SIGKILL", p.PID)
}

// hold returns a descriptor of the process, or -1 if it is gone or can't be had.
func (p Process) hold() (int, error) {
	if p.PID == 0 {
		return -1, nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		// Of a process that is being reaped just now the kernel says one thing
		// or another, depending on its version.
		if !p.Alive() {
			return -1, nil
		}
		return -1, fmt.Errorf("process %d: %w", p.PID, err)
	}
	if !p.there() { // the pid belongs to another process by now
		_ = unix.Close(fd)
		return -1, nil
	}
	return fd, nil
}

// Wait blocks until the process is gone with all that it held, and returns nil, or until ctx is over, and
// returns its cause.
func (p Process) Wait(ctx context.Context) error {
	fd, err := p.hold()
	if fd < 0 {
		return err
	}
	defer unix.Close(fd)
	_, err = awaitExit(ctx, fd, -1)
	return err
}

// awaitExit blocks until the process behind a pidfd is gone, which makes the
// descriptor readable. A negative patience is without end.
func awaitExit(ctx context.Context, fd int, patience time.Duration) (bool, error) {
	// A pipe of ours in the same poll makes the wait end with ctx.
	r, w, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer r.Close()
	stop := context.AfterFunc(ctx, func() { _ = w.Close() })
	defer func() {
		if stop() {
			_ = w.Close()
		}
	}()
	deadline := time.Now().Add(patience)
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(r.Fd()), Events: unix.POLLIN}}
		timeout := -1
		if patience >= 0 {
			timeout = int(max(0, time.Until(deadline).Milliseconds()))
		}
		n, err := unix.Poll(fds, timeout)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return false, fmt.Errorf("waiting for a process to end: %w", err)
		case fds[0].Revents != 0:
			return true, nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case n == 0:
			return false, nil
		}
	}
}
