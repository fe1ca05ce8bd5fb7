package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// step is one call of a client on one key.
type step struct {
	key    string
	read   bool
	delete bool
	expect store.Revision
}

// answer is what came back.
type answer struct {
	ok       bool
	revision store.Revision // after a write: its own; of a read or a conflict: that of the key
}

// Linear runs clients against one store at the same time and checks that their results are possible
// results of a store that does one thing after the other (linearizability).
func Linear(t *testing.T, make func(t *testing.T) Medium) {
	const clients, each = 8, 60
	s := open(t, make(t), store.Options{})
	var (
		mu      sync.Mutex
		history []porcupine.Operation
		begin   = time.Now()
	)
	g := run.NewGroup(t.Context(), 0)
	for c := range clients {
		g.Go(func(ctx context.Context) {
			var last store.Revision
			for range each {
				in := step{key: fmt.Sprintf("pods/%d", rand.IntN(3)), read: rand.IntN(3) == 0, delete: rand.IntN(5) == 0, expect: last}
				call := time.Since(begin)
				out, err := s.do(ctx, in)
				if err != nil {
					t.Error(err)
					return
				}
				op := porcupine.Operation{ClientId: c, Input: in, Output: out, Call: int64(call), Return: int64(time.Since(begin))}
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
				if last = out.revision; in.delete && out.ok && !in.read {
					last = 0
				}
			}
		})
	}
	g.Wait()
	model := porcupine.Model{
		Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, op := range all {
				k := op.Input.(step).key
				byKey[k] = append(byKey[k], op)
			}
			var parts [][]porcupine.Operation
			for _, p := range byKey {
				parts = append(parts, p)
			}
			return parts
		},
		Init: func() any { return store.Revision(0) },
		Step: func(state, input, output any) (bool, any) {
			have, in, out := state.(store.Revision), input.(step), output.(answer)
			switch {
			case in.read || !out.ok:
				return out.revision == have && (in.read || in.expect != have || in.delete && have == 0), have
			case in.delete:
				return in.expect == have && have != 0, store.Revision(0)
			}
			return in.expect == have && out.revision > have, out.revision
		},
	}
	if result := porcupine.CheckOperationsTimeout(model, history, time.Minute); result != porcupine.Ok {
		t.Errorf("%d operations of %d clients: %s", len(history), clients, result)
	}
}

// do makes the call; the error is one that no client should get.
func (s *subject) do(ctx context.Context, in step) (answer, error) {
	if in.read {
		r, err := s.Get(in.key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return answer{}, err
		}
		return answer{err == nil, r.Revision}, nil
	}
	r, err := s.Commit(ctx, store.Write{
		Key: in.key, Value: &Text{Text: "x"}, Delete: in.delete, Expect: in.expect, Volatile: rand.IntN(3) == 0,
	})
	var c *store.ConflictError
	switch {
	case err == nil:
		return answer{true, r.Revision}, nil
	case errors.As(err, &c):
		return answer{false, c.Have}, nil
	case errors.Is(err, store.ErrNotFound):
		return answer{false, 0}, nil
	}
	return answer{}, err
}
