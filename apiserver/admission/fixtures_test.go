package admission_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/core"
	"github.com/sampan-io/sampan/store"
)

// memory is a store for tests: a Reader with a way to write.
type memory struct {
	mu      sync.Mutex
	objects map[string]catalog.Object // guarded by mu; by "resource/namespace/name"
	history []written                 // guarded by mu; the writes after revision 1
	changed chan struct{}             // guarded by mu; closed at the next write
}

type written struct {
	resource string
	change   admission.Change
}

func newMemory(objects map[string]catalog.Object) *memory {
	if objects == nil {
		objects = map[string]catalog.Object{}
	}
	for _, o := range objects {
		o.SetResourceVersion("1")
	}
	return &memory{objects: objects}
}

func (m *memory) Get(_ context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.objects[gvr.Resource+"/"+namespace+"/"+name]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(gvr.GroupResource(), name)
}

func (m *memory) Await(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (catalog.Object, error) {
	for {
		m.mu.Lock()
		if m.changed == nil {
			m.changed = make(chan struct{})
		}
		changed := m.changed
		m.mu.Unlock()
		o, err := m.Get(ctx, gvr, namespace, name)
		if err == nil || ctx.Err() != nil {
			return o, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

func (m *memory) List(_ context.Context, gvr schema.GroupVersionResource, namespace string, _ fields.Set) ([]catalog.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []catalog.Object
	for key, o := range m.objects {
		if key == gvr.Resource+"/"+o.GetNamespace()+"/"+o.GetName() && (namespace == "" || o.GetNamespace() == namespace) {
			found = append(found, o)
		}
	}
	return found, nil
}

func (m *memory) Holders(_ context.Context, gvr schema.GroupVersionResource, what string) ([]catalog.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []catalog.Object
	for _, k := range core.Kinds() {
		if k.Resource != gvr.Resource || k.Sole == nil {
			continue
		}
		for key, o := range m.objects {
			if strings.HasPrefix(key, gvr.Resource+"/") && slices.Contains(k.Sole(o), what) {
				found = append(found, o)
			}
		}
	}
	return found, nil
}

// Changes knows all changes after revision 1.
func (m *memory) Changes(ctx context.Context, gvr schema.GroupVersionResource, namespace string, since store.Revision) (admission.Changes, error) {
	changes := admission.Changes{Whole: since == 0}
	if changes.Whole {
		all, _ := m.List(ctx, gvr, namespace, nil)
		for _, o := range all {
			changes.List = append(changes.List, admission.Change{Object: o})
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	changes.Now = store.Revision(1 + len(m.history))
	if !changes.Whole {
		for _, w := range m.history[since-1:] {
			if w.resource == gvr.Resource && w.change.Object.GetNamespace() == namespace {
				changes.List = append(changes.List, w.change)
			}
		}
	}
	return changes, nil
}

// note gives a write its revision. The caller holds mu.
func (m *memory) note(resource string, o catalog.Object, gone bool) {
	m.history = append(m.history, written{resource, admission.Change{Object: o, Gone: gone}})
	o.SetResourceVersion(fmt.Sprint(1 + len(m.history)))
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

func (m *memory) put(resource string, o catalog.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(resource, o, false)
	m.objects[resource+"/"+o.GetNamespace()+"/"+o.GetName()] = o
}

// claim stores a service unless another one has something that belongs to one alone, as a store does.
func (m *memory) claim(svc *corev1.Service) bool {
	for _, k := range core.Kinds() {
		if k.Resource != "services" {
			continue
		}
		for _, what := range k.Sole(svc) {
			others, _ := m.Holders(context.Background(), k.GVR(), what)
			if slices.ContainsFunc(others, func(o catalog.Object) bool { return o.GetName() != svc.Name }) {
				return false
			}
		}
	}
	m.put("services", svc)
	return true
}

func (m *memory) remove(resource, namespace, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.objects[resource+"/"+namespace+"/"+name]; o != nil {
		m.note(resource, o, true)
	}
	delete(m.objects, resource+"/"+namespace+"/"+name)
}

func kind(group, resource, name string, namespaced bool) *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: group, Version: "v1", Kind: name},
		Resource:         resource, Namespaced: namespaced,
	}
}

func podKind() *catalog.Kind       { return kind("", "pods", "Pod", true) }
func serviceKind() *catalog.Kind   { return kind("", "services", "Service", true) }
func namespaceKind() *catalog.Kind { return kind("", "namespaces", "Namespace", false) }
func nodeKind() *catalog.Kind      { return kind("", "nodes", "Node", false) }
func accountKind() *catalog.Kind   { return kind("", "serviceaccounts", "ServiceAccount", true) }
func leaseKind() *catalog.Kind     { return kind("coordination.k8s.io", "leases", "Lease", true) }

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)}
}

func creating(k *catalog.Kind, o catalog.Object) *admission.Attributes {
	return &admission.Attributes{Operation: admission.Create, Kind: k, Namespace: o.GetNamespace(), Name: o.GetName(), Object: o, User: &auth.User{Name: "jane"}}
}

func updating(k *catalog.Kind, o, old catalog.Object) *admission.Attributes {
	a := creating(k, o)
	a.Operation, a.Old = admission.Update, old
	return a
}

func deleting(k *catalog.Kind, old catalog.Object) *admission.Attributes {
	return &admission.Attributes{Operation: admission.Delete, Kind: k, Namespace: old.GetNamespace(), Name: old.GetName(), Old: old, User: &auth.User{Name: "jane"}}
}
