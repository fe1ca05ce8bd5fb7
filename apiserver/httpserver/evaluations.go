package httpserver

import (
	"context"
	"runtime"
	"time"

	"github.com/sampan-io/sampan/apiserver/blocking"
	"github.com/sampan-io/sampan/apiserver/priority"
)

// evaluationSlice is how long a request evaluates expressions before another one has its turn.
const evaluationSlice = 5 * time.Millisecond

// evaluations are the turns of requests that evaluate expressions over many objects: half of the processors at a time, at least
// one. Seats alone bound how many requests are executed, not how much of the processors they use: thirty requests that compute
// for minutes leave a short one a thirtieth.
type evaluations chan struct{}

func newEvaluations() evaluations { return make(evaluations, max(1, runtime.GOMAXPROCS(0)/2)) }

// An evaluation is a request that evaluates expressions, in a seat of its priority level. It implements [blocking.Seat].
type evaluation struct {
	turns  evaluations // nil: the request does not wait for turns
	held   bool        // a turn is
	ticket priority.Ticket
	began  time.Time // of the turn
}

// enterEvaluation takes a seat and a turn. Requests of the exempt level wait for neither.
func (s *Server) enterEvaluation(ctx context.Context, class priority.Class) (blocking.Seat, error) {
	ticket, err := s.priority.Enter(ctx, class, 1)
	if err != nil {
		return nil, err
	}
	e := &evaluation{ticket: ticket}
	if class.Exempt() {
		return e, nil
	}
	e.turns = s.evaluations
	if err := e.takeTurn(ctx); err != nil {
		e.Leave()
		return nil, err
	}
	return e, nil
}

// takeTurn waits for a turn.
func (e *evaluation) takeTurn(ctx context.Context) error {
	select {
	case e.turns <- struct{}{}:
		e.held, e.began = true, time.Now()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Yield implements [blocking.Seat].
func (e *evaluation) Yield(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !e.held || time.Since(e.began) < evaluationSlice {
		return nil
	}
	<-e.turns
	e.held = false
	runtime.Gosched() // requests that are ready come first
	return e.takeTurn(ctx)
}

// Leave implements [blocking.Seat].
func (e *evaluation) Leave() {
	if e.held {
		<-e.turns
		e.held = false
	}
	e.ticket.Leave()
}
