package userspace

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A listener is the socket of a TCP pool.
type listener struct {
	pool  *pool
	loop  *loop
	index int32 // slot in the loop

	mu     sync.Mutex
	fd     int  // guarded by mu
	closed bool // guarded by mu
}

// acceptAtOnce is the number of connections that are accepted before others have their turn.
const acceptAtOnce = 64

// ready implements handler.
func (s *listener) ready(l *loop, _ int, _ uint32) {
	for range acceptAtOnce {
		if more := s.accept(l, l.now); !more {
			return
		}
	}
	l.ask(func() { s.ready(l, 0, canRead) })
}

// accept serves the next connection and reports whether there may be more. The loop, if not nil, is
// the caller, which lends its spare descriptor.
func (s *listener) accept(l *loop, now time.Time) (more bool) {
	var from address
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false
	}
	fd, errno := accept(s.fd, &from)
	s.mu.Unlock()
	switch {
	case errno == 0:
		s.pool.serve(fd, from.addrPort(), now)
		return true
	case errno == unix.EAGAIN:
		return false
	case !exhausted(errno):
		return true // a connection that broke before it was accepted: man 2 accept says to go on
	case l != nil:
		return s.turnAway(l, errno)
	}
	return false
}

// exhausted reports whether a call failed for want of a resource that may become free.
func exhausted(errno unix.Errno) bool {
	switch errno {
	case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
		return true
	default:
		return false
	}
}

// retryAccept is the pause after which a listener is retried that could not accept for want of
// memory or descriptors, which may be free by then.
const retryAccept = 50 * time.Millisecond

// turnAway resets a connection for which there is no descriptor. Otherwise it would wait, and the
// listener be ready, for ever. It reports whether there may be more.
func (s *listener) turnAway(l *loop, why unix.Errno) (more bool) {
	if l.spare >= 0 {
		_ = unix.Close(l.spare)
		l.spare = -1
		var from address
		s.mu.Lock()
		fd, errno := -1, unix.EAGAIN
		if !s.closed {
			fd, errno = accept(s.fd, &from)
		}
		s.mu.Unlock()
		if errno == 0 {
			s.pool.count.connections.Add(1)
			s.pool.count.refused.Add(1)
			reset(fd)
		}
		if spare, again := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); again == nil {
			l.spare = spare
		}
		if errno == 0 || errno == unix.EAGAIN {
			return errno == 0
		}
	} else if spare, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		l.spare = spare
		return true
	}
	s.pool.warn("accepting a connection to a service", why)
	if !slices.Contains(l.stuck, s) {
		l.stuck = append(l.stuck, s)
	}
	if l.retry.IsZero() {
		l.retry = l.now.Add(retryAccept)
		l.armAt(l.retry)
	}
	return false
}

// stop accepts the waiting connections and closes the socket. Connections go on.
func (s *listener) stop() {
	for s.accept(nil, time.Now()) {
	}
	s.mu.Lock()
	closed := s.closed
	if s.closed = true; !closed {
		_ = unix.Close(s.fd)
	}
	s.mu.Unlock()
	if !closed {
		s.loop.leave(s.index)
		s.pool.f.give(1)
	}
}

// close implements handler.
func (s *listener) close(*loop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		_ = unix.Close(s.fd)
	}
}
