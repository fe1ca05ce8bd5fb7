package userspace

import (
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
)

// A budget is the number of TCP connections that the pools of a Service may have together: of all
// its ports, both families, and both PoolIDs. It is safe for concurrent use except where noted.
type budget struct {
	most    atomic.Int64
	open    atomic.Int64
	limited atomic.Uint64 // connections that were refused for it

	pools int // guarded by the mu of the forwarder
}

// take takes one connection, and reports whether the limit allows it.
func (b *budget) take() bool {
	if b.open.Add(1) > b.most.Load() {
		b.open.Add(-1)
		b.limited.Add(1)
		return false
	}
	return true
}

func (b *budget) give() { b.open.Add(-1) }

// over is why a connection is refused.
func (b *budget) over() error {
	return fmt.Errorf("the service has %d connections, and may have no more (annotation sampan.dev/max-connections)", b.most.Load())
}

// budgetOf returns the budget for one more pool of a Service. f.mu is held.
func (f *Forwarder) budgetOf(service types.NamespacedName) *budget {
	b := f.budgets[service]
	if b == nil {
		b = &budget{}
		f.budgets[service] = b
	}
	b.pools++
	return b
}

// leaveBudget removes a pool of a Service. Its connections go on, and count as long as the Service
// has other pools. f.mu is held.
func (f *Forwarder) leaveBudget(service types.NamespacedName) {
	b := f.budgets[service]
	if b.pools--; b.pools == 0 {
		delete(f.budgets, service)
	}
}
