package cluster

import (
	"slices"
	"sync"
)

// warnings are facts for the user about a cluster or node that runs: parts of it that other programs on the host, or its
// settings, keep from working in full. They are in its state file, so that `sampan up`, `join` and `status` print them. The zero
// value is ready for use, and safe for concurrent use.
type warnings struct {
	mu  sync.Mutex
	all []string // guarded by mu
}

func (w *warnings) add(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// list returns the warnings, sorted.
func (w *warnings) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(slices.Values(w.all))
}
