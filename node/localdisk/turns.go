package localdisk

import (
	"sync"

	"github.com/sampan-io/sampan/controller"
)

// perNode is how many requests an agent gets at a time: as many as a loop of controllers works on by default.
const perNode = 4

// turns limits the requests to each node, so that a node that does not answer holds only as many workers. A key that gets
// no turn waits without a worker until one of the node's requests ends.
type turns struct {
	mu    sync.Mutex
	nodes map[string]*turn // that have requests; guarded by mu
}

type turn struct {
	requests int
	waiting  map[controller.Key]bool
}

// take reports whether a request for a key may be sent to a node now. If so, [turns.give] has to follow; otherwise give
// returns the key later.
func (t *turns) take(node string, key controller.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nodes == nil {
		t.nodes = map[string]*turn{}
	}
	n := t.nodes[node]
	if n == nil {
		n = &turn{waiting: map[controller.Key]bool{}}
		t.nodes[node] = n
	}
	if n.requests == perNode {
		n.waiting[key] = true
		return false
	}
	n.requests++
	return true
}

// give ends a request to a node, and returns keys that have waited for that: one, or all of them if it was the last request,
// because a key whose object does not need a request any more sends none.
func (t *turns) give(node string) (waited []controller.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[node]
	n.requests--
	for key := range n.waiting {
		waited = append(waited, key)
		delete(n.waiting, key)
		if n.requests > 0 {
			return waited
		}
	}
	if n.requests == 0 {
		delete(t.nodes, node)
	}
	return waited
}
