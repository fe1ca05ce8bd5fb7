package cache

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
)

// Served returns the resources that are served now, and a channel that is closed when there are others.
type Served func() (all []client.Resource[client.Object], changed <-chan struct{})

// A Dynamic has the metadata of all objects of resources that come and go: custom resources. It follows each resource for as
// long as that is served. Several parts of a process can share one.
type Dynamic struct {
	client  client.Interface
	served  Served
	indexes Indexes[client.Object]
	log     *slog.Logger
	changed []func(r client.Resource[client.Object], before, after client.Object)
	moved   []func(r client.Resource[client.Object], served bool)

	mu  sync.RWMutex
	all map[schema.GroupResource]*Followed // guarded by mu
}

// A Followed is one resource of a [Dynamic].
type Followed struct {
	client.Resource[client.Object]
	*Cache[client.Object]

	stop context.CancelFunc
}

// NewDynamic returns a Dynamic without resources. Indexes are those of each cache. A nil log means slog.Default.
func NewDynamic(c client.Interface, served Served, indexes Indexes[client.Object], log *slog.Logger) *Dynamic {
	return &Dynamic{client: c, served: served, indexes: indexes, log: log, all: map[schema.GroupResource]*Followed{}}
}

// Subscribe has f called after each change of an object, as [Cache.Subscribe], and moved, which may be nil, after a resource
// came and all of its objects were read, or went. It must be called before Run.
func (d *Dynamic) Subscribe(f func(r client.Resource[client.Object], before, after client.Object), moved func(r client.Resource[client.Object], served bool)) {
	d.changed = append(d.changed, f)
	if moved != nil {
		d.moved = append(d.moved, moved)
	}
}

// All returns the resources whose objects are there, in no order.
func (d *Dynamic) All() []*Followed {
	if d == nil {
		return nil
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	all := make([]*Followed, 0, len(d.all))
	for _, f := range d.all {
		select {
		case <-f.Ready():
			all = append(all, f)
		default:
		}
	}
	return all
}

// Run follows what is served until ctx is over.
func (d *Dynamic) Run(ctx context.Context) error {
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	for {
		served, changed := d.served()
		d.follow(ctx, g, served)
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// follow starts to follow what is new, and stops following what is gone.
func (d *Dynamic) follow(ctx context.Context, g *run.Group, served []client.Resource[client.Object]) {
	want := make(map[schema.GroupResource]client.Resource[client.Object], len(served))
	for _, r := range served {
		want[r.GroupResource()] = r
	}
	d.mu.Lock()
	var gone []*Followed
	for name, f := range d.all {
		if r, ok := want[name]; !ok || r != f.Resource {
			delete(d.all, name)
			gone = append(gone, f)
		} else {
			delete(want, name)
		}
	}
	var begun []*Followed
	for name, r := range want {
		f := &Followed{Resource: r, Cache: New(d.client, r, Options[client.Object]{Indexes: d.indexes, Keep: metadata, Optional: true, Log: d.log})}
		for _, notify := range d.changed {
			f.Subscribe(func(before, after client.Object) { notify(r, before, after) })
		}
		d.all[name] = f
		begun = append(begun, f)
	}
	d.mu.Unlock()
	for _, f := range gone {
		f.stop()
		objs := f.Cache.List("")
		for _, notify := range d.changed {
			for _, obj := range objs {
				notify(f.Resource, obj, nil) // the last ones may have gone together with their kind
			}
		}
		if !slices.ContainsFunc(begun, func(b *Followed) bool { return b.GroupResource() == f.GroupResource() }) {
			d.tell(f.Resource, false)
		}
	}
	for _, f := range begun {
		life, stop := context.WithCancel(ctx)
		f.stop = stop
		g.Go(func(context.Context) { _ = f.Cache.Run(life) })
		g.Go(func(context.Context) {
			select {
			case <-f.Ready():
				d.tell(f.Resource, true)
			case <-life.Done():
			}
		})
	}
}

func (d *Dynamic) tell(r client.Resource[client.Object], served bool) {
	for _, f := range d.moved {
		f(r, served)
	}
}

// metadata returns what all objects have.
func metadata(obj client.Object) client.Object {
	gvk := client.KindOf(obj)
	out := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
		DeletionTimestamp: obj.GetDeletionTimestamp(), Finalizers: obj.GetFinalizers(), OwnerReferences: obj.GetOwnerReferences(),
	}}
	out.SetGroupVersionKind(gvk)
	return out
}
