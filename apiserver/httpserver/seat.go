package httpserver

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/sampan-io/sampan/apiserver/fairness"
	"github.com/sampan-io/sampan/apiserver/priority"
)

// A seating is the state of a request in its priority level.
type seating struct {
	asked    priority.Request
	class    priority.Class  // of the request
	count    int             // of seats that it takes; 0 means one
	ticket   priority.Ticket // of the seats
	waited   time.Duration   // for them
	inFlight *atomic.Int64   // counts the request while it is seated
	taken    atomic.Bool     // it holds seats, see package priority
	slow     bool            // it is counted among the slow answers of its user instead; written before taken is false
}

// release gives back the seats. Requests that use the processors only would otherwise be executed one after the other on
// each processor and never wait for seats, but all of them for the processors, and those of administrators behind them. So
// others are executed before the seats are free again: once, or all that are ready if requests of the same level wait for
// the seats, see [priority.Ticket.Leave].
func (s *seating) release() {
	if s.taken.CompareAndSwap(true, false) {
		if !s.class.Exempt() {
			runtime.Gosched()
		}
		s.inFlight.Add(-1)
		s.ticket.Leave()
	}
}

// giveUp turns an answer whose client is slow into one that holds no seat. It reports false if the user has too many of these.
func (s *seating) giveUp(flow *fairness.Flow) bool {
	if flow.Take(fairness.Answers, 1) != nil {
		return false
	}
	s.slow = true
	s.release()
	return true
}

// end gives back everything.
func (s *seating) end(flow *fairness.Flow) {
	s.release()
	if s.slow {
		s.slow = false
		flow.Return(fairness.Answers, 1)
	}
}
