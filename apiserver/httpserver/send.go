package httpserver

import (
	"bufio"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/sampan-io/sampan/apiserver/fairness"
)

// An outgoing is the state of the pace of an answer.
type outgoing struct {
	pace     *pace // nil while the answer is small
	sent     int   // bytes of an answer that has no pace yet
	unearned int   // bytes that have not let the client send more
	long     bool  // it is a watch, a stream or a blocking read
}

// Header implements [http.ResponseWriter].
func (x *exchange) Header() http.Header { return x.w.Header() }

// WriteHeader implements [http.ResponseWriter].
func (x *exchange) WriteHeader(code int) {
	if x.code == 0 || x.code < 200 {
		x.begun(code)
	}
	x.w.WriteHeader(code)
}

// begun notes the code of the answer, before its header is written.
func (x *exchange) begun(code int) {
	x.code = code
	if x.audit != nil && (code >= 200 || code == http.StatusSwitchingProtocols) {
		x.audit.Started(code)
	}
}

// Write implements [http.ResponseWriter].
func (x *exchange) Write(b []byte) (int, error) {
	if x.code == 0 {
		x.begun(http.StatusOK)
	}
	x.size += len(b)
	if x.out.pace == nil {
		// A complete answer has given back its seat, and if it is small answerTimeout is enough.
		if x.out.sent += len(b); x.out.sent <= smallAnswer && !x.seat.taken.Load() {
			x.allowReads(len(b))
			return x.w.Write(b)
		}
		x.paceAnswer()
	}
	written := 0
	for {
		x.out.pace.beginStep()
		n, err := x.w.Write(b[written:min(written+pieceOfAnswer, len(b))])
		x.out.pace.endStep(n)
		x.allowReads(n)
		runtime.Gosched() // the client may read as fast as we write: other requests come first
		if written += n; err != nil || written == len(b) {
			return written, err
		}
	}
}

// allowReads lets the client send more on the connection, for n bytes of an answer. Frames of HTTP/2 itself, such as the replies to
// PING, counts for nothing: clients ask for it as fast as they like.
func (x *exchange) allowReads(n int) {
	if x.out.unearned += n; x.conn != nil && x.out.unearned >= earnedBytes {
		x.out.unearned = 0
		x.conn.earned.Add(1)
	}
}

const (
	smallAnswer   = 64 << 10 // the size up to which a complete answer has no pace
	pieceOfAnswer = 64 << 10 // written at once, so that progress shows
)

// paceAnswer replaces the deadline that every answer has by a pace, for one that is large.
func (x *exchange) paceAnswer() {
	x.out.pace = &pace{cut: x.cutWrite, patience: stallTimeout}
	if x.seat.taken.Load() {
		x.out.pace.slow = func() bool { return x.seat.giveUp(x.flow) }
	}
	// Where the connection has no deadlines, in tests, no client is slow either.
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Time{})
	x.out.pace.begin()
}

// beginLong begins an answer that goes on for as long as the client wants: it has no deadline, but its client must read.
func (x *exchange) beginLong(kind fairness.Resource) (end func(), err error) {
	if err := x.flow.Take(kind, 1); err != nil {
		return nil, err
	}
	x.out.long = true
	x.out.pace = &pace{cut: x.cutWrite, patience: stallTimeout, stalls: true}
	if x.seat.taken.Load() { // it is about to send the first state of a watch
		x.out.pace.slow = func() bool { x.seat.release(); return true }
	}
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Time{})
	return func() {
		x.endPace()
		x.flow.Return(kind, 1)
	}, nil
}

// endPace ends the pace of the answer. Buffered bytes have a deadline again.
func (x *exchange) endPace() {
	if x.out.pace != nil {
		x.out.pace.stop()
		x.out.pace = nil
		_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(stallTimeout))
	}
}

// Unwrap lets an [http.ResponseController] reach the wrapped writer.
func (x *exchange) Unwrap() http.ResponseWriter { return x.w }

// Hijack implements [http.Hijacker], for streams that become another protocol. Their reads are no requests.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(x.w).Hijack()
	if err == nil {
		x.begun(http.StatusSwitchingProtocols)
		if x.conn != nil {
			x.conn.upgraded.Store(true)
		}
	}
	return c, rw, err
}

// Flush sends the written bytes.
func (x *exchange) Flush() {
	if x.code == 0 {
		x.begun(http.StatusOK)
	}
	if x.out.pace != nil {
		x.out.pace.beginStep()
		defer x.out.pace.endStep(0)
	}
	// Both protocols can flush; an error is that of a lost connection, which the
	// next write finds, too.
	_ = http.NewResponseController(x.w).Flush()
}
