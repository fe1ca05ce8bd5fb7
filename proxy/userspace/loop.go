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

// A loop is one goroutine that carries many connections. It waits for all of their sockets
// together: a goroutine and two parked copiers for each connection would cost more than what they
// carry. Go's poller waits for its epoll instance, so that a waiting loop holds no thread.
//
// All sockets are registered edge-triggered, once, for both directions: their owner remembers what
// is possible until the kernel returns EAGAIN.
type loop struct {
	f      *Forwarder
	epoll  *os.File
	raw    syscall.RawConn
	fd     int // of epoll
	alarm  int // an eventfd that wakes the loop
	spare  int // a descriptor to close when there are no others, or -1; belongs to the goroutine of the loop
	events [128]unix.EpollEvent

	// The fields below belong to the goroutine of the loop.
	now        time.Time // when it woke
	pipes      []*pipe   // empty ones
	made       int       // number of pipes, empty or not
	unfinished []*conn   // connections with more to do than one turn allows
	fresh      ring      // connections that were made in the last moment, see freshLimit
	batch      *batch    // nil until there are packets
	scratch    []byte    // nil until it is needed
	relays     map[*relay]bool
	sweep      time.Time   // when to sweep silent flows; zero if there are none
	stuck      []*listener // listeners that could not accept for want of memory
	retry      time.Time   // when to retry those; zero if there are none

	mu      sync.Mutex
	slots   []slot    // guarded by mu
	free    []int32   // guarded by mu; indexes of slots
	rounds  []ring    // guarded by mu; connections that look for an endpoint, for each round ordered by its end
	armed   time.Time // guarded by mu; when the poller wakes the loop; zero if not
	inbox   []func()  // guarded by mu; to be called by the loop
	stopped bool      // guarded by mu; nothing is added any more
}

// A slot is the recipient of events of a socket. Descriptors are reused at once, so events carry
// slots and their generation.
type slot struct {
	owner      handler
	generation int32
}

// A handler owns sockets of a loop.
type handler interface {
	// ready handles events of one of its two sockets. It is called by the loop.
	ready(l *loop, side int, events uint32)

	// close closes the sockets when the loop ends.
	close(l *loop)
}

const (
	edges    = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLPRI | unix.EPOLLET
	canRead  = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	canWrite = unix.EPOLLOUT | unix.EPOLLHUP | unix.EPOLLERR
	uneven   = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR | unix.EPOLLPRI
)

// pipesPerLoop bounds the number of connections with bytes between their sockets, because one side
// does not read. Connections above it use no pipe.
const pipesPerLoop = 256

func newLoop(f *Forwarder) (*loop, error) {
	l := &loop{f: f, spare: -1, relays: map[*relay]bool{}, rounds: make([]ring, len(f.opts.DialTimeouts))}
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
		l.spare, err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
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

func (alarm) ready(*loop, int, uint32) {}
func (alarm) close(*loop)              {}

// run works until ctx is cancelled, then closes everything in the loop.
func (l *loop) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, l.wake)
	defer stop()
	work := func(uintptr) (over bool) { return l.work(ctx) }
	for ctx.Err() == nil {
		// All work is done inside the poller's callback, so that it remembers new events, and the
		// loop need not poll again before it waits.
		if err := l.raw.Read(work); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			l.f.opts.Log.Error("waiting for sockets of services", "err", err) // unexpected: the file is open
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
			if h := l.owner(e.Fd>>1, e.Pad); h != nil {
				h.ready(l, int(e.Fd&1), e.Events)
			}
		}
		l.finish()
		l.answer()
		l.deadlines()
		if n < len(l.events) && len(l.unfinished) == 0 {
			return false
		}
	}
}

// finish gives unfinished connections another turn.
func (l *loop) finish() {
	again := l.unfinished
	l.unfinished = nil
	for _, c := range again {
		c.queued = false
		c.carry(l)
	}
	if l.unfinished == nil {
		clear(again)
		l.unfinished = again[:0]
	}
}

// answer runs the functions in the inbox.
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

// leave frees a slot. Its pending events are dropped.
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

// register waits for events of a socket, for the handler in a slot. l.mu is held, or the caller is
// the loop.
func (l *loop) register(index int32, generation int32, side, fd int) error {
	return unix.EpollCtl(l.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: edges, Fd: index<<1 | int32(side), Pad: generation})
}

// watch gives a handler a slot and registers its first socket. It may be called from any goroutine.
func (l *loop) watch(h handler, fd int) (index int32, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return -1, errStopped
	}
	index = l.place(h)
	if err := l.register(index, l.slots[index].generation, 0, fd); err != nil {
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

// armAt is arm for callers that do not hold l.mu.
func (l *loop) armAt(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arm(at)
}

// deadlines does what is due.
func (l *loop) deadlines() {
	l.mu.Lock()
	due := !l.armed.IsZero() && !l.now.Before(l.armed)
	l.mu.Unlock()
	if !due {
		return
	}
	for {
		l.mu.Lock()
		var late *conn
		for i := range l.rounds {
			if c := l.rounds[i].first; c != nil && !l.now.Before(c.until) {
				late = c
				break
			}
		}
		l.mu.Unlock()
		if late == nil {
			break
		}
		late.roundIsOver(l)
	}
	l.growUp()
	if !l.retry.IsZero() && !l.now.Before(l.retry) {
		stuck := l.stuck
		l.stuck, l.retry = nil, time.Time{}
		for _, s := range stuck {
			s.ready(l, 0, canRead)
		}
	}
	if !l.sweep.IsZero() && !l.now.Before(l.sweep) {
		l.sweepFlows()
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	var next time.Time
	sooner := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for i := range l.rounds {
		if c := l.rounds[i].first; c != nil {
			sooner(c.until)
		}
	}
	if l.fresh.first != nil {
		sooner(l.fresh.first.until)
	}
	sooner(l.retry)
	sooner(l.sweep)
	l.armed = next
	_ = l.epoll.SetReadDeadline(next) // can't fail: newLoop tried
}

// takePipe returns an empty pipe, or nil if there can't be more.
func (l *loop) takePipe() *pipe {
	if n := len(l.pipes); n > 0 {
		p := l.pipes[n-1]
		l.pipes = l.pipes[:n-1]
		return p
	}
	if l.made >= l.f.pipes {
		return nil
	}
	p, err := newPipe()
	if err != nil {
		return nil
	}
	l.made++
	return p
}

// keptPipes is the number of empty pipes that a loop keeps, as many as are usually in use at a
// time.
const keptPipes = 16

// givePipe returns a pipe.
func (l *loop) givePipe(p *pipe) {
	if p.held > 0 || len(l.pipes) >= keptPipes {
		p.close()
		l.made--
		return
	}
	l.pipes = append(l.pipes, p)
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
	for _, p := range l.pipes {
		p.close()
	}
	if l.spare >= 0 {
		_ = unix.Close(l.spare)
	}
	l.mu.Lock() // other goroutines check stopped and use these under mu
	defer l.mu.Unlock()
	_ = unix.Close(l.alarm)
	if l.epoll != nil {
		_ = l.epoll.Close()
	} else {
		_ = unix.Close(l.fd)
	}
}
