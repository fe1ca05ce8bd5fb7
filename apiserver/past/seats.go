package past

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// How many requests read the history at the same time: each takes a processor while it reads files, and memory until
// its client has the answer. A user who reads slowly takes no seats of others.
const (
	mostReaders = 4
	mostPerUser = 2
)

// seats bound the requests that read the history.
type seats struct {
	mu    sync.Mutex
	taken map[string]int // guarded by mu; by the name of the user
	all   int            // guarded by mu
	freed chan struct{}  // guarded by mu; closed and replaced when one is given back
}

func newSeats() *seats { return &seats{taken: map[string]int{}, freed: make(chan struct{})} }

// take blocks until there is a seat for a user, who has it until release is called.
func (s *seats) take(ctx context.Context, user string) (release func(), err error) {
	for {
		s.mu.Lock()
		free := s.all < mostReaders && s.taken[user] < mostPerUser
		if free {
			s.all++
			s.taken[user]++
		}
		freed := s.freed
		s.mu.Unlock()
		if free {
			return sync.OnceFunc(func() { s.give(user) }), nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, apierrors.NewTimeoutError("the request ended before the history was read", 0)
		}
	}
}

func (s *seats) give(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.taken[user]--; s.taken[user] == 0 {
		delete(s.taken, user)
	}
	close(s.freed)
	s.freed = make(chan struct{})
}
