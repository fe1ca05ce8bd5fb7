package garbage

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// ended has the custom objects that the collector has seen and that are gone, as long as others name them as owners: their kind may
// go with them, and then the server cannot be asked for them. Upstream's collector has them in its cache of absent owners.
type ended struct {
	mu      sync.Mutex
	objects map[types.UID]coordinates // guarded by mu
}

// coordinates say, beside the UID, which object an owner reference means.
type coordinates struct {
	kind            schema.GroupKind
	resource        schema.GroupResource
	namespace, name string
}

func newEnded() *ended { return &ended{objects: map[types.UID]coordinates{}} }

func (e *ended) add(it item) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.objects[it.GetUID()] = coordinates{it.kind.res.GVK().GroupKind(), it.kind.res.GroupResource(), it.GetNamespace(), it.GetName()}
}

func (e *ended) forget(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.objects, uid)
}

func (e *ended) has(uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.objects[uid]
	return ok
}

// find returns the resource of the owner that a dependent names, if that is one of the objects.
func (e *ended) find(dependent item, ref metav1.OwnerReference) (schema.GroupResource, bool) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return schema.GroupResource{}, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c, ok := e.objects[ref.UID]
	if !ok || c.kind != (schema.GroupKind{Group: gv.Group, Kind: ref.Kind}) || c.name != ref.Name ||
		c.namespace != "" && c.namespace != dependent.GetNamespace() {
		return schema.GroupResource{}, false
	}
	return c.resource, true
}
