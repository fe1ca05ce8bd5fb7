package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// A Catalog is the set of kinds that are served, which can change. It is safe for concurrent use.
type Catalog struct {
	mu      sync.Mutex // serialises changes
	current atomic.Pointer[Snapshot]
}

// New returns a catalog of the given kinds. A duplicate kind, or one that lacks its names, is an
// error.
func New(groups ...[]*Kind) (*Catalog, error) {
	s, err := newSnapshot(slices.Concat(groups...), &Snapshot{})
	if err != nil {
		return nil, err
	}
	c := &Catalog{}
	c.current.Store(s)
	return c, nil
}

// Snapshot returns the kinds that are served now. A caller with more than one question about
// kinds asks one snapshot.
func (c *Catalog) Snapshot() *Snapshot { return c.current.Load() }

// Replace adds kinds and takes out others, at once. Kinds that are already served keep their
// values. If the result is not a catalog, nothing changes.
func (c *Catalog) Replace(out, add []*Kind) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.current.Load()
	leaving := make(map[*Kind]bool, len(out))
	for _, k := range out {
		leaving[k] = true
	}
	hubs := slices.DeleteFunc(slices.Clone(old.hubs), func(k *Kind) bool { return leaving[k] })
	s, err := newSnapshot(append(hubs, add...), old)
	if err != nil {
		return err
	}
	s.ending = maps.Clone(old.ending)
	maps.DeleteFunc(s.ending, func(k *Kind, _ bool) bool { return leaving[k] })
	c.current.Store(s)
	close(old.replaced)
	for _, k := range out {
		if k.retire != nil {
			k.retire()
		}
	}
	return nil
}

// End notes that the definition of a kind is being deleted: see [Snapshot.Ending]. The kind goes on being served.
func (c *Catalog) End(kind *Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.current.Load()
	if old.ending[kind.Hub()] {
		return
	}
	s := *old
	s.generation++
	s.replaced = make(chan struct{})
	s.ending = maps.Clone(old.ending)
	if s.ending == nil {
		s.ending = map[*Kind]bool{}
	}
	s.ending[kind.Hub()] = true
	c.current.Store(&s)
	close(old.replaced)
}

// Kinds returns the kinds of the snapshot of now.
func (c *Catalog) Kinds() []*Kind { return c.Snapshot().Kinds() }

// Resource returns the kind that serves a resource now, or nil.
func (c *Catalog) Resource(gvr schema.GroupVersionResource) *Kind { return c.Snapshot().Resource(gvr) }

// Kind returns the kind of a body now, or nil.
func (c *Catalog) Kind(gvk schema.GroupVersionKind) *Kind { return c.Snapshot().Kind(gvk) }

// Scheme returns the Go types of now: see [Snapshot.Scheme].
func (c *Catalog) Scheme() *runtime.Scheme { return c.Snapshot().Scheme() }

// A Snapshot is the set of kinds that a catalog has at one time. It never changes.
type Snapshot struct {
	generation uint64
	replaced   chan struct{}
	hubs       []*Kind
	kinds      []*Kind
	versions   []schema.GroupVersion
	byVersion  map[schema.GroupVersion][]*Kind
	byGVR      map[schema.GroupVersionResource]*Kind
	byGVK      map[schema.GroupVersionKind]*Kind
	scheme     *runtime.Scheme
	ending     map[*Kind]bool // hubs
}

// newSnapshot returns the snapshot of hubs and their further versions, which follows another.
func newSnapshot(hubs []*Kind, old *Snapshot) (*Snapshot, error) {
	s := &Snapshot{
		generation: old.generation + 1,
		replaced:   make(chan struct{}),
		byVersion:  map[schema.GroupVersion][]*Kind{},
		hubs:       hubs,
		byGVR:      make(map[schema.GroupVersionResource]*Kind, len(old.byGVR)+1),
		byGVK:      make(map[schema.GroupVersionKind]*Kind, len(old.byGVK)+1),
	}
	for _, k := range hubs {
		if k.further == nil {
			for i := range k.Versions {
				k.further = append(k.further, k.in(&k.Versions[i]))
			}
		}
		if k.Unserved {
			if err := k.check(); err != nil {
				return nil, err
			}
		}
		for _, served := range k.Served() {
			if err := s.add(served, old); err != nil {
				return nil, err
			}
		}
	}
	for _, k := range hubs {
		if k.Untyped() && k.life == nil {
			k.life, k.retire = context.WithCancel(context.Background()) //nolint:forbidigo // it ends with the kind
		}
	}
	if s.scheme = old.scheme; s.scheme == nil || !slices.Equal(typed(s.kinds), typed(old.kinds)) {
		s.scheme = schemeOf(s.kinds)
	}
	return s, nil
}

// check returns an error if the kind lacks a part of every kind.
func (k *Kind) check() error {
	switch {
	case k.Resource == "" || k.Singular == "" || k.Kind == "" || k.Version == "" || k.New == nil || (k.NewList == nil) != (k.Answer != ""):
		return fmt.Errorf("catalog: kind %v lacks a name or a constructor", k.GroupVersionKind)
	case k.version != nil && (k.version.ToHub == nil || k.version.FromHub == nil):
		return fmt.Errorf("catalog: kind %v lacks a conversion", k.GroupVersionKind)
	}
	return nil
}

func (s *Snapshot) add(k *Kind, old *Snapshot) error {
	if err := k.check(); err != nil {
		return err
	}
	if s.byGVR[k.GVR()] != nil || s.byGVK[k.GroupVersionKind] != nil {
		return fmt.Errorf("catalog: duplicate kind %v", k.GroupVersionKind)
	}
	if old.byGVK[k.GroupVersionKind] != k { // otherwise it is in use
		k.deprecation = deprecationOf(k)
	}
	s.kinds = append(s.kinds, k)
	gv := k.GroupVersion()
	if s.byVersion[gv] == nil {
		s.versions = append(s.versions, gv)
	}
	s.byVersion[gv] = append(s.byVersion[gv], k)
	s.byGVR[k.GVR()] = k
	s.byGVK[k.GroupVersionKind] = k
	return nil
}

// typed returns the kinds that have Go types.
func typed(kinds []*Kind) []*Kind {
	return slices.DeleteFunc(slices.Clone(kinds), (*Kind).Untyped)
}

// schemeOf returns the Go types of those kinds that have some.
func schemeOf(kinds []*Kind) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, k := range typed(kinds) {
		scheme.AddKnownTypeWithName(k.GroupVersionKind, k.New())
		if k.NewList != nil {
			scheme.AddKnownTypeWithName(k.GroupVersion().WithKind(k.Kind+"List"), k.NewList())
		}
		for _, sub := range k.Subresources {
			if b := sub.Body(); b != nil {
				scheme.AddKnownTypeWithName(b.Kind, b.New())
			}
		}
		metav1.AddToGroupVersion(scheme, k.GroupVersion())
	}
	utilruntime.Must(metav1.AddMetaToScheme(scheme))
	return scheme
}

// Generation is 1 for the first snapshot of a catalog, and one more for each that replaces another.
func (s *Snapshot) Generation() uint64 { return s.generation }

// Replaced is closed when the catalog has another snapshot.
func (s *Snapshot) Replaced() <-chan struct{} { return s.replaced }

// Kinds returns all kinds, in all versions, in the order in which they were given. The slice must
// not be changed.
func (s *Snapshot) Kinds() []*Kind { return s.kinds }

// GroupVersions returns the groups and versions of the kinds, each once, in the order of the kinds. The slice must not be
// changed.
func (s *Snapshot) GroupVersions() []schema.GroupVersion { return s.versions }

// In returns the kinds of one version of a group, in their order. The slice must not be changed.
func (s *Snapshot) In(gv schema.GroupVersion) []*Kind { return s.byVersion[gv] }

// Ending reports whether the definition of a kind is being deleted: its objects are, and no others can be created.
func (s *Snapshot) Ending(kind *Kind) bool { return s.ending[kind.Hub()] }

// Hubs returns the kinds in the versions in which their objects are stored, even if these are not served. The slice must
// not be changed.
func (s *Snapshot) Hubs() []*Kind { return s.hubs }

// Resource returns the kind that serves a resource, or nil.
func (s *Snapshot) Resource(gvr schema.GroupVersionResource) *Kind { return s.byGVR[gvr] }

// Kind returns the kind of a body, or nil.
func (s *Snapshot) Kind(gvk schema.GroupVersionKind) *Kind { return s.byGVK[gvk] }

// Scheme maps the kinds that have Go types, their lists, the bodies of their subresources and the
// meta kinds to these types. It must not be changed.
func (s *Snapshot) Scheme() *runtime.Scheme { return s.scheme }

// Subresource returns the subresource of that name, or nil.
func (k *Kind) Subresource(name string) *Subresource {
	for i := range k.Subresources {
		if k.Subresources[i].Name == name {
			return &k.Subresources[i]
		}
	}
	return nil
}
