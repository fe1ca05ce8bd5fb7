package admission

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// gates keep creations in a namespace and the deletion of the namespace apart in time: a creation
// that the deletion has not seen cannot end after it. The namespace controller therefore finds
// every object that will ever be in the namespace.
type gates struct {
	mu    sync.Mutex
	gates map[string]*gate // guarded by mu; of the namespaces where something is under way
}

type gate struct {
	creating int           // creations under way
	deleting bool          // one deletion is under way, or waits for them
	users    int           // of this gate, waiting ones included
	moved    chan struct{} // closed when one of the above changes
}

// create enters for a creation, and returns the way out.
func (g *gates) create(ctx context.Context, namespace string) (leave func(), err error) {
	return g.enter(ctx, namespace,
		func(d *gate) bool { return !d.deleting },
		func(d *gate) { d.creating++ },
		func(d *gate) { d.creating-- })
}

// remove enters for a deletion: it keeps new creations out, and waits for the creations that are
// already inside.
func (g *gates) remove(ctx context.Context, namespace string) (leave func(), err error) {
	leave, err = g.enter(ctx, namespace,
		func(d *gate) bool { return !d.deleting },
		func(d *gate) { d.deleting = true },
		func(d *gate) { d.deleting = false })
	if err != nil {
		return nil, err
	}
	out, err := g.enter(ctx, namespace, func(d *gate) bool { return d.creating == 0 }, func(*gate) {}, func(*gate) {})
	if err != nil {
		leave()
		return nil, err
	}
	out()
	return leave, nil
}

// enter waits until the gate is open and passes.
func (g *gates) enter(ctx context.Context, namespace string, open func(*gate) bool, pass, leave func(*gate)) (func(), error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.gates[namespace]
	if d == nil {
		if g.gates == nil {
			g.gates = map[string]*gate{}
		}
		d = &gate{moved: make(chan struct{})}
		g.gates[namespace] = d
	}
	d.users++
	for !open(d) {
		moved := d.moved
		g.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
		}
		g.mu.Lock()
		if ctx.Err() != nil {
			g.leave(namespace, d)
			return nil, apierrors.NewTimeoutError("the request ended while it waited for others in namespace "+namespace, 1)
		}
	}
	pass(d)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		leave(d)
		close(d.moved)
		d.moved = make(chan struct{})
		g.leave(namespace, d)
	}, nil
}

// leave removes a gate that is no longer in use. The caller holds mu.
func (g *gates) leave(namespace string, d *gate) {
	if d.users--; d.users == 0 {
		delete(g.gates, namespace)
	}
}
