package garbage

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/controller"
)

const (
	// othersTimeout is how long the requests for one object may take together.
	othersTimeout = 10 * time.Second

	// othersPause is how long a server that has not answered in time is left alone. It is as long as upstream's aggregator and
	// that of this program take to find out that a server is not available.
	othersPause = 30 * time.Second
)

// others is the part of the collector for which other servers must be asked, behind APIServices: for objects that they have, and
// for objects with owners there. It has a loop of its own, so that a server that hangs does not delay other objects. A version
// whose server has not answered in time is not asked again for a while, so that it does not take all workers of this loop either.
type others struct {
	collector *collector
	loop      *controller.Loop

	mu   sync.Mutex
	slow map[schema.GroupVersion]time.Time // guarded by mu; until when a version is not asked
}

func newOthers(opts Options, g *collector) *others {
	o := &others{collector: g, slow: map[schema.GroupVersion]time.Time{}}
	o.loop = controller.New(controller.Options{
		Name: "garbage-collector-others", Reconcile: o.reconcile, Workers: max(opts.Workers, 8), Log: opts.Log, Needs: g.all.ready(),
	})
	return o
}

func (o *others) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	it, ok := o.collector.all.find(key)
	if !ok {
		return controller.Result{}, nil
	}
	if pause := o.pause(o.collector.serversOf(it), time.Now()); pause > 0 {
		return controller.Result{After: pause}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, othersTimeout)
	defer cancel()
	return controller.Result{}, o.collector.process(ctx, it)
}

// pause returns how long none of these versions may be asked, or 0.
func (o *others) pause(versions []schema.GroupVersion, now time.Time) (longest time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, gv := range versions {
		if left := o.slow[gv].Sub(now); left > 0 {
			longest = max(longest, left)
		} else {
			delete(o.slow, gv)
		}
	}
	return longest
}

// answered records, after a request for an object of a kind, whether its server has answered before ctx ended.
func (o *others) answered(ctx context.Context, kind *kindCache) {
	if !kind.elsewhere || ctx.Err() == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.slow[kind.res.GroupVersion()] = time.Now().Add(othersPause)
}

// serversOf returns the versions whose servers must be asked to process an item.
func (g *collector) serversOf(it item) (versions []schema.GroupVersion) {
	add := func(k *kindCache) {
		if k != nil && k.elsewhere && !slices.Contains(versions, k.res.GroupVersion()) {
			versions = append(versions, k.res.GroupVersion())
		}
	}
	add(it.kind)
	for _, ref := range it.GetOwnerReferences() {
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err == nil && !g.foreign.builtin[schema.GroupKind{Group: gv.Group, Kind: ref.Kind}] {
			add(g.all.kindOf(ref))
		}
	}
	if orphaning(it) {
		for _, d := range g.all.dependents(string(it.GetUID())) {
			add(d.kind)
		}
	}
	return versions
}
