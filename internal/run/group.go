package run

import (
	"context"
	"sync"
)

// A Group is a set of goroutines with one owner, for use inside a component's
// Run. The zero Group is not usable; make one with [NewGroup] and end it with
// [Group.Stop].
type Group struct {
	ctx    context.Context //nolint:containedctx // it is the life of the group itself, ended by Stop
	cancel context.CancelFunc
	slots  chan struct{} // nil when unbounded
	wg     sync.WaitGroup
}

// NewGroup returns an empty group whose goroutines are stopped when ctx is cancelled. At most limit
// of them run at the same time; 0 means any number.
func NewGroup(ctx context.Context, limit int) *Group {
	g := &Group{}
	g.ctx, g.cancel = context.WithCancel(ctx)
	if limit > 0 {
		g.slots = make(chan struct{}, limit)
	}
	return g
}

// Go runs f on a goroutine of its own. In a bounded group that is full it blocks
// until another f returns, or does nothing once the group is being stopped; it
// reports whether f was started. It must not be called at the same time as
// Wait or Stop by anyone but the group's own goroutines.
func (g *Group) Go(f func(ctx context.Context)) bool {
	if g.ctx.Err() != nil {
		return false
	}
	if g.slots != nil {
		select {
		case g.slots <- struct{}{}:
		case <-g.ctx.Done():
			return false
		}
	}
	g.wg.Go(func() {
		if g.slots != nil {
			defer func() { <-g.slots }()
		}
		f(g.ctx)
	})
	return true
}

// Wait blocks until every goroutine of the group has returned by itself.
func (g *Group) Wait() { g.wg.Wait() }

// Stop cancels the context of the group's goroutines and waits for them.
func (g *Group) Stop() {
	g.cancel()
	g.wg.Wait()
}
