package userspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A loop is one goroutine that relays the packets of many UDP flows. It waits for all
// their sockets together with epoll. Go's poller waits for the epoll instance, so a
// waiting loop holds no thread.
//
// Sockets are registered once, edge-triggered: a handler reads until the kernel returns
// EAGAIN.
type loop struct {
	f      *Forwarder
	epoll  *os.File
	raw    syscall.RawConn
	fd     int // of epoll
	alarm  int // an eventfd that wakes the loop
	events [128]unix.EpollEvent

	// Below belongs to the goroutine of the loop.
	now     time.Time // when it woke
	batch   *batch    // nil until there are packets
	scratch []byte    // nil until it is needed
	relays  map[*relay]bool
	sweep   time.Time // when to look for silent flows; zero if there are none

	mu      sync.Mutex
	slots   []slot    // guarded by mu
	free    []int32   // guarded by mu; indexes of slots
	armed   time.Time // guarded by mu; when the poller wakes the loop; zero if not
	inbox   []func()  // guarded by mu; to be called by the loop
	stopped bool      // guarded by mu; nothing is added any more
}

// A slot holds the handler of a socket. The kernel reuses descriptors at once, so events
// carry the slot and its generation.
type slot struct {
	owner      handler
	generation int32
}

// A handler owns a socket of a loop.
type handler interface {
	// ready handles events of the socket. The loop calls it.
	ready(l *loop, events uint32)

	// close closes the sockets when the loop ends.
	close(l *loop)
}

const (
	edges   = unix.EPOLLIN | unix.EPOLLET
	canRead = unix.EPOLLIN | unix.EPOLLHUP | unix.EPOLLERR
)

func newLoop(f *Forwarder) (*loop, error) {
	l := &loop{f: f, relays: map[*relay]bool{}}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making an epoll instance: %w", err)
	}
	l.fd = fd
	if l.alarm, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("making an eventfd: %w", err)
	}
	// Go's poller accepts only non-blocking descriptors.
	if err = unix.SetNonblock(fd, true); err == nil {
		l.epoll = os.NewFile(uintptr(fd), "epoll")
		l.raw, err = l.epoll.SyscallConn()
	}
	if err == nil {
		err = l.epoll.SetReadDeadline(time.Time{}) // an error if the poller does not support it
	}
	if err == nil {
		_, err = l.watch(alarm{}, l.alarm)
	}
	if err != nil {
		l.closeAll()
		return nil, fmt.Errorf("waiting for sockets: %w", err)
	}
	return l, nil
}

// alarm is the handler of the eventfd: waking the loop is enough, and an edge needs no reading.
type alarm struct{}

func (alarm) ready(*loop, uint32) {}
func (alarm) close(*loop)         {}

// run works until ctx is cancelled, then closes everything in the loop.
func (l *loop) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, l.wake)
	defer stop()
	work := func(uintptr) (over bool) { return l.work(ctx) }
	for ctx.Err() == nil {
		// work runs inside Read and returns false for "not ready": the poller then records
		// events that arrive during work, so none is missed before the loop waits.
		if err := l.raw.Read(work); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			l.f.opts.Log.Error("waiting for sockets of UDP services", "err", err) // can't be: the file is open
			break
		}
		l.now = time.Now()
		l.deadlines()
		l.answer()
	}
	l.closeAll()
}

// work does all pending work, and reports whether ctx is cancelled.
func (l *loop) work(ctx context.Context) (over bool) {
	for {
		n, err := unix.EpollWait(l.fd, l.events[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if ctx.Err() != nil {
			return true
		}
		l.now = time.Now()
		for i := range l.events[:max(n, 0)] {
			e := &l.events[i]
			if h := l.owner(e.Fd, e.Pad); h != nil {
				h.ready(l, e.Events)
			}
		}
		l.answer()
		l.deadlines()
		if n < len(l.events) {
			return false
		}
	}
}

// answer performs the requests of other goroutines.
func (l *loop) answer() {
	l.mu.Lock()
	asked := l.inbox
	l.inbox = nil
	l.mu.Unlock()
	for _, do := range asked {
		do()
	}
}

// ask has the loop call do, unless it ends before.
func (l *loop) ask(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	if l.inbox = append(l.inbox, do); len(l.inbox) == 1 {
		l.wakeLocked()
	}
}

func (l *loop) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped {
		l.wakeLocked()
	}
}

// wakeLocked does the work of wake. l.mu is held, and the loop has not stopped.
func (l *loop) wakeLocked() {
	one := [8]byte{1}
	_, _ = unix.Write(l.alarm, one[:]) // the only possible error is an overflow of the counter
}

// owner returns the handler of an event, or nil if that was removed.
func (l *loop) owner(index, generation int32) handler {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.slots[index]; s.generation == generation {
		return s.owner
	}
	return nil
}

// place gives a handler a slot. l.mu is held, and the loop has not stopped.
func (l *loop) place(h handler) int32 {
	if n := len(l.free); n > 0 {
		index := l.free[n-1]
		l.free = l.free[:n-1]
		l.slots[index].owner = h
		return index
	}
	l.slots = append(l.slots, slot{owner: h})
	return int32(len(l.slots) - 1)
}

// leave takes back a slot. Events that are still queued for it are ignored.
func (l *loop) leave(index int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaveLocked(index)
}

func (l *loop) leaveLocked(index int32) {
	l.slots[index].owner = nil
	l.slots[index].generation++
	l.free = append(l.free, index)
}

// watch gives a handler a slot and registers its socket. It may be called from any
// goroutine.
func (l *loop) watch(h handler, fd int) (index int32, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return -1, errStopped
	}
	index = l.place(h)
	event := unix.EpollEvent{Events: edges, Fd: index, Pad: l.slots[index].generation}
	if err := unix.EpollCtl(l.fd, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		l.leaveLocked(index)
		return -1, err
	}
	return index, nil
}

var errStopped = errors.New("the forwarder is not running")

// arm has the loop woken at a time or before. l.mu is held.
func (l *loop) arm(at time.Time) {
	if l.armed.IsZero() || at.Before(l.armed) {
		l.armed = at
		_ = l.epoll.SetReadDeadline(at) // can't fail: newLoop tried
	}
}

// armAt is arm without l.mu held.
func (l *loop) armAt(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arm(at)
}

// deadlines performs the work that is due.
func (l *loop) deadlines() {
	l.mu.Lock()
	due := !l.armed.IsZero() && !l.now.Before(l.armed)
	l.mu.Unlock()
	if !due {
		return
	}
	if !l.sweep.IsZero() && !l.now.Before(l.sweep) {
		l.sweepFlows()
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = l.sweep
	_ = l.epoll.SetReadDeadline(l.sweep) // can't fail: newLoop tried
}

// buffer returns memory for bytes that are carried without a pipe.
func (l *loop) buffer() []byte {
	if l.scratch == nil {
		l.scratch = make([]byte, 64<<10)
	}
	return l.scratch
}

// packets returns memory for packets.
func (l *loop) packets() *batch {
	if l.batch == nil {
		l.batch = newBatch()
	}
	return l.batch
}

func (l *loop) closeAll() {
	l.mu.Lock()
	l.stopped = true
	var all []handler
	for _, s := range l.slots {
		if s.owner != nil {
			all = append(all, s.owner)
		}
	}
	l.mu.Unlock()
	for _, h := range all {
		h.close(l)
	}
	l.mu.Lock() // callers that saw stopped unset have finished
	defer l.mu.Unlock()
	_ = unix.Close(l.alarm)
	if l.epoll != nil {
		_ = l.epoll.Close()
	} else {
		_ = unix.Close(l.fd)
	}
}
