package streaming

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Limits of forwarded connections. Each one costs the runtime a file descriptor, three more while it is made, and about 11 KiB.
const (
	mostForwards    = 8192
	descriptorShare = 4 // one of so many descriptors is for forwarded connections; containers cannot be started without any

	// leastShare is of how many connections a pod may have one whatever other pods have. A node has 110 pods by default, so that is less
	// than a quarter more for all pods together.
	leastShare = 500

	// pairsForForward is how many pairs of streams may be open for each connection that may be forwarded. A pair costs 4 KiB while it
	// waits for its second stream, or for a client to read why its connection is refused.
	pairsForForward = 2
)

// forwards counts the forwarded connections of all clients, or the pairs of streams for these.
type forwards struct {
	most int

	mu   sync.Mutex
	used int            // guarded by mu
	pods map[string]int // guarded by mu; used by each pod
}

func newForwards(most int) *forwards { return &forwards{most: most, pods: map[string]int{}} }

// begin counts a connection to a pod, until end is called. A pod has at most half of what other pods leave. As nothing is left if a
// dozen pods have all that they can, there is something for each pod that does not depend on the others.
func (f *forwards) begin(pod string) (end func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pods[pod] >= max(f.most-f.used, f.least()) {
		return nil, fmt.Errorf("too many forwarded connections: the pod has %d, and all pods of the node have %d of %d; "+
			"a pod can have half of what other pods leave, and at least %d", f.pods[pod], f.used, f.most, f.least())
	}
	f.used++
	f.pods[pod]++
	return func() { f.end(pod) }, nil
}

// least returns how many connections a pod may have whatever other pods have.
func (f *forwards) least() int { return max(1, f.most/leastShare) }

func (f *forwards) end(pod string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used--
	if f.pods[pod]--; f.pods[pod] == 0 {
		delete(f.pods, pod)
	}
}

// forwardLimit returns how many connections a process with this limit of file descriptors forwards.
func forwardLimit(descriptors uint64) int { return int(min(descriptors/descriptorShare, mostForwards)) }

// descriptorLimit returns how many file descriptors the process may have. Go raises the soft limit to the hard one when a program
// starts.
func descriptorLimit() uint64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return unix.RLIM_INFINITY
	}
	return r.Cur
}
