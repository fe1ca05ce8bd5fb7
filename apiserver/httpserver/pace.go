package httpserver

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds on the time that clients may take.
const (
	headerTimeout = 10 * time.Second // to send the header of a request over HTTP/1.1, and for the TLS handshake
	idleTimeout   = 90 * time.Second // of a connection without a request, as upstream's
	firstRequest  = 30 * time.Second // from the connection to its first request
	answerTimeout = 90 * time.Second // from a header to the end of a small answer; queueing and the largest body fit in
	stallTimeout  = 30 * time.Second // without progress of an answer
	bodyPatience  = 10 * time.Second // for a request body, beside the time for its size
	seatPatience  = time.Second      // that an answer may wait for its client before it gives back its seat
	unreadTimeout = 5 * time.Second  // to send the rest of a body that is not wanted, over HTTP/1.1
	clientRate    = 64 << 10         // bytes a second that a client must send of a body, and read of an answer
)

// A pace cuts off a client that does not keep up with an operation. Nothing but a timer that fires seldom looks at the
// clock: to set deadlines on the connection would cost a fifth of a small write, because HTTP/2 sets them on
// another goroutine.
//
// begin and end enclose what waits for the client; stop comes last, and after it cut is not called.
type pace struct {
	cut      func()        // makes the operation under way fail
	patience time.Duration // that the client may take beside what clientRate allows
	stalls   bool          // patience is for each operation, and the rate does not count
	slow     func() bool   // called once when nothing was moved for seatPatience: whether to go on; may be nil

	made  time.Time
	moved atomic.Int64 // bytes so far
	since atomic.Int64 // when the operation under way began, in nanoseconds after made; 0: none is
	armed atomic.Bool  // the timer runs

	mu    sync.Mutex
	timer *time.Timer // guarded by mu
	seen  int64       // guarded by mu; moved, when the timer fired last
	over  bool        // guarded by mu
}

// begin says that an operation begins.
func (p *pace) begin() {
	if p.made.IsZero() {
		p.made = time.Now()
	}
	p.since.Store(int64(time.Since(p.made)) + 1)
	if !p.armed.CompareAndSwap(false, true) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.over:
	case p.timer == nil:
		p.timer = time.AfterFunc(p.next(p.patience), p.cutIfSlow)
	default:
		p.timer.Reset(p.next(p.patience))
	}
}

// end says that the operation has ended.
func (p *pace) end() { p.since.Store(0) }

// beginStep begins a step of an answer: an operation of its own if the client may take its patience for each.
func (p *pace) beginStep() {
	if p.stalls {
		p.begin()
	}
}

// endStep ends a step that moved n bytes.
func (p *pace) endStep(n int) {
	p.moved.Add(int64(n))
	if p.stalls {
		p.end()
	}
}

// stop ends the pace.
func (p *pace) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
}

// next returns when to look again at an operation that has so much time left. The caller holds mu.
func (p *pace) next(left time.Duration) time.Duration {
	if p.slow != nil {
		return min(left, seatPatience)
	}
	return left
}

// cutIfSlow cuts the operation off if it takes too long.
func (p *pace) cutIfSlow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	since := p.since.Load()
	if since == 0 {
		p.armed.Store(false)
		if since = p.since.Load(); since == 0 || !p.armed.CompareAndSwap(false, true) {
			return // the next operation arms the timer
		}
	}
	allowed, moved := p.patience, p.moved.Load()
	if !p.stalls {
		allowed += time.Duration(moved) * time.Second / clientRate
	}
	left := allowed - (time.Since(p.made) - time.Duration(since-1))
	if p.slow != nil && moved == p.seen {
		if !p.slow() {
			left = 0
		}
		p.slow = nil
	}
	p.seen = moved
	if left <= 0 {
		p.over = true
		p.cut()
		return
	}
	p.timer.Reset(p.next(left))
}

// A pacedReader counts the bytes that are read of a body.
type pacedReader struct {
	from io.Reader
	pace *pace
	conn *connection // may be nil
}

func (r *pacedReader) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	r.pace.moved.Add(int64(n))
	if r.conn != nil && n >= earnedBytes {
		r.conn.earned.Add(1)
	}
	return n, err
}

// over is a time in the past: as a deadline it ends an operation at once, in HTTP/2 without waiting for the
// goroutine of the connection.
var over = time.Unix(1, 0)

// cutRead makes reads of the body fail.
func (x *exchange) cutRead() { _ = http.NewResponseController(x.w).SetReadDeadline(over) }

// cutWrite makes writes of the answer fail.
func (x *exchange) cutWrite() { _ = http.NewResponseController(x.w).SetWriteDeadline(over) }
