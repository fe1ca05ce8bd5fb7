package clienttest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/client"
)

// A Request is a request to a [Server].
type Request struct {
	Verb string // get, list, watch, create, update, patch, delete
	schema.GroupVersionResource
	Namespace, Name, Subresource string

	Object  runtime.Object        // of create and update; must not be changed
	Patch   []byte                // of patch
	Options *metav1.DeleteOptions // of delete
}

// String returns the request as a line: "update replicationcontrollers/status default/web".
func (r Request) String() string {
	s := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		s += "/" + r.Subresource
	}
	if r.Namespace != "" || r.Name != "" {
		s += " "
	}
	if r.Namespace != "" {
		s += r.Namespace + "/"
	}
	return s + r.Name
}

// change is one write.
type change struct {
	revision  uint64
	obj, prev client.Object // obj is the last state of a deleted object; prev is nil for a created one
	deleted   bool
}

// collection holds the objects of one resource.
type collection struct {
	*kind
	objects map[types.NamespacedName]client.Object
	history []change
	floor   uint64 // changes up to here are forgotten
}

// A Server is an API server in memory; see the package comment. It is safe for
// concurrent use. The zero Server is not usable; call [New].
type Server struct {
	mu          sync.Mutex
	collections map[schema.GroupVersionResource]*collection
	revision    uint64              // guarded by mu
	changed     chan struct{}       // guarded by mu; closed and replaced by each change
	broken      map[uint64]error    // guarded by mu; why watches of an epoch ended
	epoch       uint64              // guarded by mu; of new watches
	requests    []Request           // guarded by mu
	intercept   func(Request) error // guarded by mu
	pages       map[string]page     // guarded by mu; continue tokens
	frozen      []frozen            // guarded by mu
	noInitial   bool                // guarded by mu
}

// page is the rest of a list that was cut.
type page struct {
	items    []runtime.Object
	revision uint64
}

// frozen remembers what a shared object was like.
type frozen struct {
	obj  client.Object
	json []byte
}

var _ client.Interface = (*Server)(nil)

// New returns a server with the namespaces that every cluster has and the given
// objects, as [Server.Set] puts them there. When the test ends it fails the test if
// an object that the server had given out was changed (C1 of package client).
func New(t testing.TB, objs ...client.Object) *Server {
	s := &Server{
		collections: map[schema.GroupVersionResource]*collection{},
		changed:     make(chan struct{}),
		broken:      map[uint64]error{},
		pages:       map[string]page{},
	}
	for _, k := range kinds() {
		s.collections[k.gvr] = &collection{kind: k, objects: map[types.NamespacedName]client.Object{}}
	}
	for _, name := range protected {
		s.Set(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	s.Set(t, objs...)
	s.mu.Lock()
	s.requests = nil
	s.mu.Unlock()
	t.Cleanup(func() { s.checkFrozen(t) })
	return s
}

// Set stores objects exactly as they are (status, timestamps, finalizers and all), replaces
// existing ones, and notifies watchers. Missing UIDs and creation times are set.
func (s *Server) Set(t testing.TB, objs ...client.Object) {
	t.Helper()
	for _, o := range objs {
		sh := s.collectionOf(t, o)
		obj := o.DeepCopyObject().(client.Object) // a copy has the same type
		s.mu.Lock()
		old := sh.objects[keyOf(obj)]
		s.born(sh.kind, obj)
		if ns, ok := obj.(*corev1.Namespace); ok && ns.Status.Phase == "" {
			activate(ns)
		}
		s.commit(sh, obj, old)
		s.mu.Unlock()
	}
}

// Remove deletes objects at once, despite finalizers, and notifies watchers.
func (s *Server) Remove(t testing.TB, objs ...client.Object) {
	t.Helper()
	for _, o := range objs {
		sh := s.collectionOf(t, o)
		s.mu.Lock()
		if old := sh.objects[keyOf(o)]; old != nil {
			s.drop(sh, old)
		}
		s.mu.Unlock()
	}
}

func (s *Server) collectionOf(t testing.TB, obj client.Object) *collection {
	t.Helper()
	gvk := client.KindOf(obj)
	for _, sh := range s.collections {
		if sh.gvk == gvk {
			return sh
		}
	}
	t.Fatalf("clienttest: a %T is not served", obj)
	return nil
}

// Intercept makes f look at every request before it is carried out; an error
// is the request's answer. A nil f ends that.
func (s *Server) Intercept(f func(Request) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = f
}

// Writes returns the requests that asked for a change since the last call, including failed ones.
func (s *Server) Writes() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var writes []Request
	for _, r := range s.requests {
		if r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
			writes = append(writes, r)
		}
	}
	s.requests = nil
	return writes
}

// BreakWatches ends all present watches with err, as a lost connection does.
func (s *Server) BreakWatches(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[s.epoch] = err
	s.epoch++
	s.wake()
}

// Forget drops the history: a watch that has not seen everything yet gets 410.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.collections {
		sh.history, sh.floor = nil, s.revision
	}
	s.wake()
}

// RefuseInitialEvents makes the server answer sendInitialEvents as one does that has no
// WatchList.
func (s *Server) RefuseInitialEvents() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noInitial = true
}

// Await blocks until check returns nil. It calls check now and after every
// change in the server, and fails the test if that does not come to pass in 30
// seconds.
func (s *Server) Await(t testing.TB, check func() error) {
	t.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		err := check()
		if err == nil {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			t.Fatalf("not in 30 seconds: %v", err)
		}
	}
}

// Find returns an object as it is now, or the zero T.
func Find[T client.Object](s *Server, r client.Resource[T], namespace, name string) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, _ := s.collections[r.GroupVersionResource].objects[types.NamespacedName{Namespace: namespace, Name: name}].(T)
	return obj
}

// All returns all objects of a namespace, or of all if it is empty, by name.
func All[T client.Object](s *Server, r client.Resource[T], namespace string) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []T
	for _, o := range s.collections[r.GroupVersionResource].sorted(namespace) {
		all = append(all, o.(T)) // a collection holds one type
	}
	return all
}

func (sh *collection) sorted(namespace string) []client.Object {
	var all []client.Object
	for k, o := range sh.objects {
		if namespace == "" || k.Namespace == namespace {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b client.Object) int {
		return bytes.Compare([]byte(a.GetNamespace()+"\x00"+a.GetName()), []byte(b.GetNamespace()+"\x00"+b.GetName()))
	})
	return all
}

// enter begins a request: it notes it, asks the interceptor and finds the collection.
// Without an error it returns with mu locked.
func (s *Server) enter(ctx context.Context, r Request) (*collection, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	s.requests = append(s.requests, r)
	f := s.intercept
	s.mu.Unlock()
	if f != nil {
		if err := f(r); err != nil {
			return nil, err
		}
	}
	sh := s.collections[r.GroupVersionResource]
	if sh == nil {
		return nil, apierrors.NewGenericServerResponse(404, r.Verb, r.GroupResource(), r.Name, "404 page not found", 0, true)
	}
	s.mu.Lock()
	return sh, nil
}

// wake wakes all that wait for a change. mu is held.
func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// born gives a new object what every object has. mu is held.
func (s *Server) born(k *kind, obj client.Object) {
	if obj.GetUID() == "" {
		obj.SetUID(uuid.NewUUID())
	}
	if t := obj.GetCreationTimestamp(); t.IsZero() {
		obj.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	if k.generation && obj.GetGeneration() == 0 {
		obj.SetGeneration(1)
	}
}

// commit stores obj, which is the server's from now on. mu is held.
func (s *Server) commit(sh *collection, obj, prev client.Object) client.Object {
	s.revision++
	obj.SetResourceVersion(strconv.FormatUint(s.revision, 10))
	obj.GetObjectKind().SetGroupVersionKind(sh.gvk)
	sh.objects[keyOf(obj)] = obj
	sh.history = append(sh.history, change{revision: s.revision, obj: obj, prev: prev})
	s.freeze(obj)
	s.wake()
	return obj
}

// drop removes an object and returns its last state. mu is held.
func (s *Server) drop(sh *collection, old client.Object) client.Object {
	last := old.DeepCopyObject().(client.Object) // a copy has the same type
	s.revision++
	last.SetResourceVersion(strconv.FormatUint(s.revision, 10))
	delete(sh.objects, keyOf(old))
	sh.history = append(sh.history, change{revision: s.revision, obj: last, prev: old, deleted: true})
	s.freeze(last)
	s.wake()
	return last
}

func (s *Server) freeze(obj client.Object) {
	data, err := json.Marshal(obj)
	if err != nil {
		panic(fmt.Sprintf("clienttest: encode %T: %v", obj, err))
	}
	s.frozen = append(s.frozen, frozen{obj, data})
}

func (s *Server) checkFrozen(t testing.TB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.frozen {
		if now, err := json.Marshal(f.obj); err != nil || !bytes.Equal(now, f.json) {
			t.Errorf("a shared object was changed (C1 of package client):\nwas %s\nis  %s", f.json, now)
		}
	}
}

func keyOf(obj client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

func activate(ns *corev1.Namespace) {
	ns.Status.Phase = corev1.NamespaceActive
	ns.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
}

// eventOf is the event of a change for a watcher who sees what matches, or nothing.
func eventOf(c change, match func(client.Object) bool) (watch.Event, bool) {
	is := !c.deleted && match(c.obj)
	was := c.prev != nil && match(c.prev)
	switch {
	case is && !was:
		return watch.Event{Type: watch.Added, Object: c.obj}, true
	case is:
		return watch.Event{Type: watch.Modified, Object: c.obj}, true
	case was && c.deleted:
		return watch.Event{Type: watch.Deleted, Object: c.obj}, true
	case was: // the event has the last state that matched, at the new revision
		last := c.prev.DeepCopyObject().(client.Object) // a copy has the same type
		last.SetResourceVersion(c.obj.GetResourceVersion())
		return watch.Event{Type: watch.Deleted, Object: last}, true
	}
	return watch.Event{}, false
}
