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

// A Resource is a resource that comes and goes.
type Resource struct {
	client.Resource[client.Object]

	// Elsewhere says that another server has the objects, behind an APIService: they stay when the resource is not served any
	// more.
	Elsewhere bool

	// Creatable says that clients can create objects.
	Creatable bool
}

// Served returns the resources that are served now, and a channel that is closed when there are others.
type Served func() (all []Resource, changed <-chan struct{})

// A Dynamic has the metadata of all objects of resources that come and go: custom resources and those of other servers. It
// follows each resource for as long as that is served. A server that does not answer delays its own resources alone. Several
// parts of a process can share one.
type Dynamic struct {
	client  client.Interface
	sources []Served
	indexes Indexes[client.Object]
	log     *slog.Logger
	changed []func(r Resource, before, after client.Object)
	moved   []func(r Resource, served bool)

	turn   sync.Mutex // held by follow
	mu     sync.RWMutex
	served [][]Resource                       // guarded by mu; each source's last result
	all    map[schema.GroupResource]*Followed // guarded by mu
}

// A Followed is one resource of a [Dynamic].
type Followed struct {
	Resource
	*Cache[client.Object]

	stop context.CancelFunc
}

// NewDynamic returns a Dynamic without resources. A resource that several sources have is that of the last one. Indexes are
// those of each cache. A nil log means slog.Default.
func NewDynamic(c client.Interface, sources []Served, indexes Indexes[client.Object], log *slog.Logger) *Dynamic {
	return &Dynamic{
		client: c, sources: sources, indexes: indexes, log: log,
		served: make([][]Resource, len(sources)), all: map[schema.GroupResource]*Followed{},
	}
}

// Subscribe has f called after each change of an object, as [Cache.Subscribe], and moved, which may be nil, after a resource
// came and all of its objects were read, or went. It must be called before Run.
func (d *Dynamic) Subscribe(f func(r Resource, before, after client.Object), moved func(r Resource, served bool)) {
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

// Run follows the served resources until ctx is over.
func (d *Dynamic) Run(ctx context.Context) error {
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	for i, source := range d.sources {
		g.Go(func(context.Context) {
			for {
				served, changed := source()
				d.follow(ctx, g, i, served)
				select {
				case <-changed:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	<-ctx.Done()
	return nil
}

// follow takes a source's result: it starts to follow new resources, and stops following resources that are gone.
func (d *Dynamic) follow(ctx context.Context, g *run.Group, source int, served []Resource) {
	d.turn.Lock() // subscribers receive what went before what came, from one caller at a time
	defer d.turn.Unlock()
	d.mu.Lock()
	d.served[source] = served
	want := map[schema.GroupResource]Resource{}
	for _, all := range d.served {
		for _, r := range all {
			want[r.GroupResource()] = r
		}
	}
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
		f := &Followed{Resource: r, Cache: New(d.client, r.Resource, Options[client.Object]{
			Indexes: d.indexes, Keep: metadataOf(r.GVK()), Optional: !r.Elsewhere, Foreign: r.Elsewhere, Log: d.log,
		})}
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

func (d *Dynamic) tell(r Resource, served bool) {
	for _, f := range d.moved {
		f(r, served)
	}
}

// metadata returns the common metadata of all objects.
func metadata(obj client.Object) client.Object { return metadataOf(client.KindOf(obj))(obj) }

// metadataOf returns a function that returns the metadata of objects of a kind.
func metadataOf(gvk schema.GroupVersionKind) func(client.Object) client.Object {
	return func(obj client.Object) client.Object { return onlyMetadata(obj, gvk) }
}

func onlyMetadata(obj client.Object, gvk schema.GroupVersionKind) client.Object {
	out := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
		DeletionTimestamp: obj.GetDeletionTimestamp(), Finalizers: obj.GetFinalizers(), OwnerReferences: obj.GetOwnerReferences(),
	}}
	out.SetGroupVersionKind(gvk)
	return out
}
