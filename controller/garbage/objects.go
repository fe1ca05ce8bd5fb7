package garbage

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
)

// objects is a cache of each resource, with indexes by which one finds who
// depends on whom. In process the objects are shared with the server, and the caches
// with the other controllers, so this costs little more than the indexes.
type objects struct {
	kinds  []*kindCache
	custom *cache.Dynamic // may be nil
}

type kindCache struct {
	res                         client.Resource[client.Object]
	*cache.Cache[client.Object] // nil for Events, which own nothing and are too many to follow

	custom    bool // it may go at any time, so its cache cannot be waited for
	elsewhere bool // another server has the objects
}

// Await is that of the cache.
func (k *kindCache) Await(ctx context.Context, revision string) error {
	if k.custom {
		return nil
	}
	return k.Cache.Await(ctx, revision)
}

// AwaitDeletion is that of the cache.
func (k *kindCache) AwaitDeletion(ctx context.Context, obj client.Object) error {
	if k.custom {
		return nil
	}
	return k.Cache.AwaitDeletion(ctx, obj)
}

// Indexes returns the indexes that the caches of custom resources need.
func Indexes() cache.Indexes[client.Object] {
	return cache.Indexes[client.Object]{
		byOwner: func(obj client.Object) (uids []string) {
			for _, ref := range obj.GetOwnerReferences() {
				if !slices.Contains(uids, string(ref.UID)) {
					uids = append(uids, string(ref.UID))
				}
			}
			return uids
		},
		byUID: func(obj client.Object) []string { return []string{string(obj.GetUID())} },
	}
}

// all returns the caches of all kinds.
func (o *objects) all() []*kindCache {
	custom := o.custom.All()
	if len(custom) == 0 {
		return o.kinds
	}
	all := slices.Clone(o.kinds)
	for _, f := range custom {
		all = append(all, &kindCache{res: f.Resource.Resource, Cache: f.Cache, custom: true, elsewhere: f.Elsewhere})
	}
	return all
}

const (
	byOwner = "owner" // UID, of every owner
	byUID   = "uid"
)

func newObjects(opts Options) *objects {
	o := &objects{custom: opts.Custom}
	for _, r := range opts.Resources {
		k := &kindCache{res: r}
		switch r.GroupResource() {
		case client.Events.GroupResource():
		case definitions:
			k.Cache = cache.MetadataOf(opts.Caches, r, Indexes())
		default:
			k.Cache = cache.Of(opts.Caches, r, Indexes())
		}
		o.kinds = append(o.kinds, k)
	}
	return o
}

func (o *objects) ready() (needs []<-chan struct{}) {
	for _, k := range o.kinds {
		if k.Cache != nil {
			needs = append(needs, k.Ready())
		}
	}
	return needs
}

// definitions are of custom resources. The server decodes one when it is read: a cache of decoded ones takes most of their
// memory.
var definitions = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}

// name is "pods" or "jobs.batch".
func (k *kindCache) name() string { return k.res.GroupResource().String() }

// An item is an object and the resource that it is of.
type item struct {
	kind *kindCache
	client.Object
}

// key is how the loop of the garbage collector names an item.
func (i item) key() controller.Key {
	return controller.Key{Namespace: i.GetNamespace(), Name: i.kind.name() + "/" + i.GetName()}
}

// find returns the item of a key, as the cache has it.
func (o *objects) find(key controller.Key) (item, bool) {
	resource, name, _ := strings.Cut(key.Name, "/")
	for _, k := range o.all() {
		if k.Cache != nil && k.name() == resource {
			obj, ok := k.Get(key.Namespace, name)
			return item{k, obj}, ok
		}
	}
	return item{}, false
}

// object returns the object of a key, or nil.
func (o *objects) object(key controller.Key) client.Object {
	if it, ok := o.find(key); ok {
		return it.Object
	}
	return nil
}

// dependents returns the items that name an owner of that UID.
func (o *objects) dependents(uid string) (items []item) {
	for _, k := range o.all() {
		if k.Cache == nil {
			continue
		}
		for _, obj := range k.ByIndex(byOwner, uid) {
			items = append(items, item{k, obj})
		}
	}
	return items
}

// byUID returns the item of that UID, of whatever kind and in whatever namespace.
func (o *objects) byUID(uid string) (item, bool) {
	for _, k := range o.all() {
		if k.Cache == nil {
			continue
		}
		if found := k.ByIndex(byUID, uid); len(found) > 0 {
			return item{k, found[0]}, true
		}
	}
	return item{}, false
}

// kindOf returns the kind that a reference names, in whatever version.
func (o *objects) kindOf(ref metav1.OwnerReference) *kindCache {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil
	}
	for _, k := range o.all() {
		if k.res.Group == gv.Group && k.res.Kind == ref.Kind {
			return k
		}
	}
	return nil
}
