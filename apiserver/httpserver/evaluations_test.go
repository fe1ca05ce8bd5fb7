package httpserver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/priority"
	"github.com/sampan-io/sampan/internal/run"
)

// TestEvaluationsTakeTurns has thirty requests that compute without an end. One has its turn at a time, none starves, all
// are in seats, an administrator waits for none of them, and each ends with its request.
func TestEvaluationsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{priority: newDispatcher(600), evaluations: make(evaluations, 1)}
		class := func(u auth.User) priority.Class {
			return s.priority.User(nil, &u).Classify(&priority.Request{Verb: "list", Resource: "pods", Namespace: "a"})
		}
		view := class(auth.User{Name: "view", Groups: []string{"system:authenticated"}})
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the client has gone")
		const requests = 30
		turns := make([]int, requests)
		at := 0 // the requests that have a turn
		g := run.NewGroup(t.Context(), 0)
		for n := range requests {
			g.Go(func(context.Context) {
				e, err := s.enterEvaluation(ctx, view)
				if err != nil {
					t.Error(err)
					return
				}
				defer e.Leave()
				for {
					if at++; at > 1 {
						t.Errorf("%d requests have a turn", at)
					}
					time.Sleep(evaluationSlice) // an evaluation
					turns[n]++
					at--
					if err := e.Yield(ctx); err != nil {
						if !errors.Is(err, gone) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		time.Sleep(3 * time.Second)
		start := time.Now()
		admin, err := s.enterEvaluation(t.Context(), class(auth.User{Name: "boss", Groups: []string{auth.GroupMasters}}))
		if took := time.Since(start); err != nil || took > 0 {
			t.Errorf("an administrator waited %s: %v", took, err)
		}
		admin.Leave()
		cancel(gone)
		start = time.Now()
		g.Wait()
		if took := time.Since(start); took > evaluationSlice {
			t.Errorf("they ended after %s", took)
		}
		for n, got := range turns {
			if got < 15 || got > 25 {
				t.Errorf("request %d had %d turns of 600", n, got)
			}
		}
	})
}
