package garbage

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller"
)

// foreign finds the objects that name an owner of a kind that can come and go, a custom resource. They are few: most
// owners are of built-in kinds. Without it the collector would look at all objects whenever a kind comes, a thousand times
// in a start with a thousand of them.
type foreign struct {
	builtin map[schema.GroupKind]bool

	mu      sync.Mutex
	objects map[schema.GroupKind]map[controller.Key]bool // guarded by mu; by the kind of an owner
}

func newForeign(builtin []client.Resource[client.Object]) *foreign {
	f := &foreign{builtin: map[schema.GroupKind]bool{}, objects: map[schema.GroupKind]map[controller.Key]bool{}}
	for _, r := range builtin {
		f.builtin[r.GVK().GroupKind()] = true
	}
	return f
}

// of returns the keys of the objects that name an owner of a kind.
func (f *foreign) of(kind schema.GroupKind) []controller.Key {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := make([]controller.Key, 0, len(f.objects[kind]))
	for key := range f.objects[kind] {
		keys = append(keys, key)
	}
	return keys
}

// inGroup returns the keys of the objects that name an owner of any kind in the group of a definition, by the definition's name.
func (f *foreign) inGroup(definition string) (keys []controller.Key) {
	_, group, _ := strings.Cut(definition, ".")
	f.mu.Lock()
	defer f.mu.Unlock()
	for kind, objects := range f.objects {
		if kind.Group == group {
			keys = slices.AppendSeq(keys, maps.Keys(objects))
		}
	}
	return keys
}

// changed records a change of an object: before is nil for a new one, after for one that is gone.
func (f *foreign) changed(k *kindCache, before, after client.Object) {
	old, now := f.owners(before), f.owners(after)
	if len(old)+len(now) == 0 {
		return
	}
	obj := after
	if obj == nil {
		obj = before
	}
	key := item{k, obj}.key()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, kind := range old {
		if delete(f.objects[kind], key); len(f.objects[kind]) == 0 {
			delete(f.objects, kind)
		}
	}
	for _, kind := range now {
		if f.objects[kind] == nil {
			f.objects[kind] = map[controller.Key]bool{}
		}
		f.objects[kind][key] = true
	}
}

// owners returns the kinds of the owners of an object, without built-in kinds.
func (f *foreign) owners(obj client.Object) (kinds []schema.GroupKind) {
	if obj == nil {
		return nil
	}
	for _, ref := range obj.GetOwnerReferences() {
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if kind := (schema.GroupKind{Group: gv.Group, Kind: ref.Kind}); err == nil && !f.builtin[kind] {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}
