package clienttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/apiserver/httpserver"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/kinds"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/store"
)

// protected are the namespaces that every cluster has.
var protected = [...]string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

// A Server is an API server for tests; see the package comment. It is safe for concurrent use. The
// zero Server is not usable; call [New].
type Server struct {
	api     *apiserver.Server
	local   client.Interface
	catalog *catalog.Catalog
	store   *noticed

	mu        sync.Mutex
	requests  []Request                // guarded by mu
	intercept func(Request) error      // guarded by mu
	link      context.Context          //nolint:containedctx // guarded by mu; ends with the present watches
	breakLink context.CancelCauseFunc  // guarded by mu; ends link
	floor     store.Revision           // guarded by mu; watches from before it are refused
	given     map[client.Object][]byte // guarded by mu; what shared objects were like

	writing sync.RWMutex // held for reading by the test's writes, for writing by its end
	ended   bool         // guarded by writing
}

var _ client.Interface = (*Server)(nil)

// New returns a server with the namespaces that every cluster has and the given objects, as
// [Server.Set] puts them there. It works until the test ends; then it fails the test if an object
// that it had given out was changed (C1 of package client).
func New(t testing.TB, objs ...client.Object) *Server {
	t.Helper()
	s := &Server{given: map[client.Object][]byte{}}
	s.link, s.breakLink = context.WithCancelCause(context.WithoutCancel(t.Context()))
	s.api = apiservertest.OpenBare(t, func(o *apiserver.Options) {
		s.catalog = o.Catalog
		s.store = &noticed{Store: o.Store, changed: make(chan struct{})}
		o.Store = s.store
	})
	s.local = s.api.As(auth.User{Name: "test"})
	for _, name := range protected {
		s.Set(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	s.Set(t, objs...)
	t.Cleanup(func() {
		s.endWrites()
		s.checkGiven(t)
	})
	return s
}

// endWrites waits for the writes of the test that are under way. A timer of the test may make one while the test ends;
// later writes do nothing.
func (s *Server) endWrites() {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.ended = true
}

// Handler serves the API over HTTP. What [Server.Intercept] and [Server.BreakWatches] do does not
// concern its requests.
func (s *Server) Handler() http.Handler { return s.api.Handler() }

// Resources returns the resources that a [Server] serves and stores.
func Resources() (all []client.Resource[client.Object]) {
	for _, k := range kinds.All() {
		if !k.Answered() {
			all = append(all, client.Resource[client.Object]{GroupVersionResource: k.GVR(), Kind: k.Kind, Namespaced: k.Namespaced})
		}
	}
	return all
}

// Set stores objects exactly as they are (status, timestamps, finalizers and all), replaces
// existing ones, and notifies watchers. Missing UIDs and creation times are set.
func (s *Server) Set(t testing.TB, objs ...client.Object) {
	t.Helper()
	for _, o := range objs {
		obj := o.DeepCopyObject().(client.Object) // a copy has the same type
		kind := s.kindOf(t, obj)
		if obj.GetUID() == "" {
			obj.SetUID(uuid.NewUUID())
		}
		if t := obj.GetCreationTimestamp(); t.IsZero() {
			obj.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
		}
		if kind.Generation && obj.GetGeneration() == 0 {
			obj.SetGeneration(1)
		}
		if ns, ok := obj.(*corev1.Namespace); ok && ns.Status.Phase == "" {
			ns.Status.Phase = corev1.NamespaceActive
			ns.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
		}
		item, err := codec.NewItem(kind, obj)
		if err != nil {
			t.Fatal(err)
		}
		s.put(t, kind, o, func(store.Record) store.Write { return store.Write{Value: item} })
	}
}

// Remove deletes objects at once, despite finalizers, and notifies watchers.
func (s *Server) Remove(t testing.TB, objs ...client.Object) {
	t.Helper()
	for _, o := range objs {
		s.put(t, s.kindOf(t, o), o, func(old store.Record) store.Write {
			if old.Value == nil {
				return store.Write{}
			}
			return store.Write{Delete: true, Value: apiserver.Restate(old.Value)}
		})
	}
}

// put makes the write that f returns, given the stored value of the name of obj; a write without
// a value is none.
func (s *Server) put(t testing.TB, kind *catalog.Kind, obj client.Object, f func(old store.Record) store.Write) {
	t.Helper()
	s.writing.RLock()
	defer s.writing.RUnlock()
	if s.ended {
		return
	}
	key := kind.Key(obj.GetNamespace(), obj.GetName())
	for {
		old, err := s.store.Get(key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		w := f(old)
		if w.Value == nil {
			return
		}
		w.Key, w.Expect = key, old.Revision
		if _, err = s.store.Commit(context.WithoutCancel(t.Context()), w); err == nil {
			return
		}
		if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
	}
}

func (s *Server) kindOf(t testing.TB, obj client.Object) *catalog.Kind {
	t.Helper()
	k := s.catalog.Kind(client.KindOf(obj))
	if k == nil {
		t.Fatalf("clienttest: a %T is not served", obj)
	}
	return k
}

// Intercept makes f look at every request before it is carried out, at several at once if they are made at once; an error
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
	s.breakLink(err)
	s.link, s.breakLink = context.WithCancelCause(context.WithoutCancel(s.link))
}

// Forget makes new watches from a revision before the present one get 410.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.floor = s.store.Revision()
}

// Await blocks until check returns nil. It calls check now and after every
// change in the server, and fails the test if that does not come to pass in 30
// seconds.
func (s *Server) Await(t testing.TB, check func() error) {
	t.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for {
		changed := s.store.next()
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
	var none T
	rec, err := s.store.Get(s.catalog.Resource(r.GroupVersionResource).Key(namespace, name))
	if err != nil {
		return none
	}
	return s.give(rec.Value.(*codec.Item).Object()).(T) // the store holds the API server's values
}

// All returns all objects of a namespace, or of all if it is empty, by name.
func All[T client.Object](s *Server, r client.Resource[T], namespace string) (all []T) {
	got, err := s.store.List(store.Query{Prefix: s.catalog.Resource(r.GroupVersionResource).Prefix(namespace)}, store.Page{})
	if err != nil {
		panic(fmt.Sprintf("clienttest: list %s: %v", r.Resource, err))
	}
	for _, rec := range got.Records {
		all = append(all, s.give(rec.Value.(*codec.Item).Object()).(T)) // as in Find
	}
	return all
}

// enter begins a request: it notes it and asks the interceptor.
func (s *Server) enter(ctx context.Context, r Request) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	s.requests = append(s.requests, r)
	f := s.intercept
	s.mu.Unlock()
	if f != nil {
		return f(r)
	}
	return nil
}

// give records the state of a shared object, and returns it.
func (s *Server) give(o runtime.Object) runtime.Object {
	obj, ok := o.(client.Object)
	if !ok {
		return o
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given[obj] == nil {
		s.given[obj] = encode(obj)
	}
	return o
}

func (s *Server) checkGiven(t testing.TB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for obj, was := range s.given {
		if is := encode(obj); !bytes.Equal(is, was) {
			t.Errorf("a shared object was changed (C1 of package client):\nwas %s\nis  %s", was, is)
		}
	}
}

func encode(obj client.Object) []byte {
	data, err := json.Marshal(obj)
	if err != nil {
		panic(fmt.Sprintf("clienttest: encode %T: %v", obj, err))
	}
	return data
}

// expired is the answer to a watch from a revision that is forgotten.
func expired(after store.Revision) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", after))
}

// noticed is a store that reports its writes.
type noticed struct {
	httpserver.Store
	mu      sync.Mutex
	changed chan struct{} // guarded by mu; closed and replaced by each write
}

// next returns the channel that the next write closes.
func (n *noticed) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

// Commit implements [httpserver.Store].
func (n *noticed) Commit(ctx context.Context, w store.Write) (store.Record, error) {
	rec, err := n.Store.Commit(ctx, w)
	if err == nil {
		n.mu.Lock()
		close(n.changed)
		n.changed = make(chan struct{})
		n.mu.Unlock()
	}
	return rec, err
}
