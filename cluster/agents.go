package cluster

import (
	"context"
	"net"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/inprocess"
)

// agents are the node agents in this process, by the names of their nodes. The API server reaches them without the network.
type agents struct {
	mu        sync.Mutex
	listeners map[string]*inprocess.Listener // guarded by mu
}

// listen returns the listener of a node.
func (a *agents) listen(node string) *inprocess.Listener {
	l := inprocess.New()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.listeners == nil {
		a.listeners = map[string]*inprocess.Listener{}
	}
	a.listeners[node] = l
	return l
}

// dial returns how to connect to the agent of a node, or nil if it is not in this process.
func (a *agents) dial(node *corev1.Node) func(context.Context) (net.Conn, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.listeners[node.Name]; l != nil {
		return l.Dial
	}
	return nil
}
