package volumes

import "sync"

// A signal reports that something has changed, to any number of goroutines. The zero value is ready.
type signal struct {
	mu sync.Mutex
	ch chan struct{} // guarded by mu; closed by the next send; nil if no goroutine waits
}

// next returns a channel that is closed by the next send.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

// send closes the channels that next has returned.
func (s *signal) send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
