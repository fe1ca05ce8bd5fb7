package garbage_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/garbage"
	"github.com/sampan-io/sampan/internal/run"
)

// An away is another server, which has the Leases.
type away struct {
	client.Interface
	hangs atomic.Bool
	asked atomic.Int64 // while it hangs
	fails atomic.Pointer[error]

	mu      sync.Mutex
	served  []cache.Resource // guarded by mu
	changed chan struct{}    // guarded by mu
}

func (a *away) serve(served ...cache.Resource) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed != nil {
		close(a.changed)
	}
	a.served, a.changed = served, make(chan struct{})
}

func (a *away) Served() ([]cache.Resource, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.served, a.changed
}

var leases = cache.Resource{Resource: client.Resource[client.Object](client.Leases), Elsewhere: true}

// tasks makes the collector, with Leases at the other server.
func (a *away) tasks(c client.Interface, caches *cache.Shared) []run.Task {
	a.Interface = c
	a.serve(leases)
	own := slices.DeleteFunc(clienttest.Resources(), func(r client.Resource[client.Object]) bool { return r == leases.Resource })
	custom := cache.NewDynamic(a, []cache.Served{a.Served}, garbage.Indexes(), nil)
	all := garbage.Tasks(garbage.Options{Config: controllertest.Config(a, caches), Resources: own, Custom: custom})
	return append(all, run.Task{Name: "custom", Run: custom.Run})
}

// answer waits until ctx ends if the server hangs.
func (a *away) answer(ctx context.Context, gvr schema.GroupVersionResource) error {
	if gvr != leases.GroupVersionResource {
		return nil
	}
	if a.hangs.Load() {
		a.asked.Add(1)
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if err := a.fails.Load(); err != nil {
		return *err
	}
	return nil
}

func (a *away) Get(ctx context.Context, gvr schema.GroupVersionResource, namespace, name, subresource string) (runtime.Object, error) {
	if err := a.answer(ctx, gvr); err != nil {
		return nil, err
	}
	return a.Interface.Get(ctx, gvr, namespace, name, subresource)
}

func (a *away) Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	if err := a.answer(ctx, gvr); err != nil {
		return err
	}
	return a.Interface.Delete(ctx, gvr, namespace, name, opts)
}

func lease(m metav1.ObjectMeta) *coordinationv1.Lease { return &coordinationv1.Lease{ObjectMeta: m} }

func hasLease(s *clienttest.Server, name string) bool {
	return clienttest.Find(s, client.Leases, "default", name) != nil
}

// ofLease returns the metadata of an object whose owner is at the other server.
func ofLease(name, owner string) metav1.ObjectMeta {
	m := ownedBy(meta(name), owner, true)
	m.OwnerReferences[0].APIVersion, m.OwnerReferences[0].Kind = "coordination.k8s.io/v1", "Lease"
	return m
}

func TestOwnersAndDependentsAtOtherServers(t *testing.T) {
	a := &away{}
	held := lease(ownedBy(meta("held"), "foreground", true))
	held.Finalizers = []string{"example.com/hold"}
	controllertest.Controlling(t, a.tasks, func(t *testing.T, s *clienttest.Server) {
		remove(t, s, "background", metav1.DeletePropagationBackground)
		if hasLease(s, "there") || has(s, "back") {
			t.Errorf("dependent there %v, dependent of that here %v: want none", hasLease(s, "there"), has(s, "back"))
		}
		remove(t, s, "orphan", metav1.DeletePropagationOrphan)
		if l := clienttest.Find(s, client.Leases, "default", "free"); l == nil || len(l.OwnerReferences) > 0 || has(s, "orphan") {
			t.Errorf("the orphan is %+v; owner %v", l, has(s, "orphan"))
		}
		remove(t, s, "foreground", metav1.DeletePropagationForeground)
		if l := clienttest.Find(s, client.Leases, "default", "held"); !has(s, "foreground") || l == nil || l.DeletionTimestamp == nil {
			t.Errorf("an owner waits %v for its dependent at the other server %+v", has(s, "foreground"), l)
		}
		l := clienttest.Find(s, client.Leases, "default", "held").DeepCopy()
		l.Finalizers = nil
		if _, err := client.Leases.Update(t.Context(), s, l, ""); err != nil {
			t.Fatal(err)
		}
		controllertest.Rest()
		if has(s, "foreground") {
			t.Error("the owner still waits")
		}
	}, &corev1.ConfigMap{ObjectMeta: meta("background")}, &corev1.ConfigMap{ObjectMeta: meta("orphan")}, &corev1.ConfigMap{ObjectMeta: meta("foreground")},
		lease(ownedBy(meta("there"), "background", true)), &corev1.ConfigMap{ObjectMeta: ofLease("back", "there")},
		lease(ownedBy(meta("free"), "orphan", true)), held)
}

// TestOwnersAtServersThatAreGoneAreNotAbsent has an APIService that is deleted, and a server that does not know its own paths.
func TestOwnersAtServersThatAreGoneAreNotAbsent(t *testing.T) {
	a := &away{}
	controllertest.Controlling(t, a.tasks, func(t *testing.T, s *clienttest.Server) {
		a.serve()
		time.Sleep(time.Hour)
		if !has(s, "child") {
			t.Error("a dependent was deleted with the APIService of its owner")
		}
		a.serve(leases)
		time.Sleep(time.Hour)
		unknown := error(apierrors.NewGenericServerResponse(404, "get", leases.GroupResource(), "", "404 page not found", 0, true))
		a.fails.Store(&unknown)
		s.Remove(t, lease(meta("owner")))
		time.Sleep(time.Hour)
		if !has(s, "child") {
			t.Error("a dependent was deleted because a server does not know a path")
		}
		a.fails.Store(nil)
		time.Sleep(time.Hour)
		if has(s, "child") {
			t.Error("the dependent of an owner that the server does not have is still there")
		}
	}, lease(meta("owner")), &corev1.ConfigMap{ObjectMeta: ofLease("child", "owner")})
}

// TestServerThatHangsDelaysItsOwnObjectsAlone has more objects at such a server than there are workers.
func TestServerThatHangsDelaysItsOwnObjectsAlone(t *testing.T) {
	a := &away{}
	var objs []client.Object
	for i := range 50 {
		name := "l" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		objs = append(objs, lease(ownedBy(meta(name), "owner", true)))
	}
	objs = append(objs, &corev1.ConfigMap{ObjectMeta: meta("owner")}, &corev1.ConfigMap{ObjectMeta: ownedBy(meta("child"), "owner", true)})
	controllertest.Controlling(t, a.tasks, func(t *testing.T, s *clienttest.Server) {
		a.hangs.Store(true)
		remove(t, s, "owner", metav1.DeletePropagationBackground)
		time.Sleep(5 * time.Second) // less than a request to the server may take
		if has(s, "child") {
			t.Error("an object waits for those of another server")
		}
		time.Sleep(time.Hour)
		if n := a.asked.Load(); n < 50 || n > 2000 {
			t.Errorf("the server was asked %d times in an hour", n)
		}
		a.hangs.Store(false)
		time.Sleep(time.Hour)
		if n := len(clienttest.All(s, client.Leases, "default")); n > 0 {
			t.Errorf("%d objects are left at a server that answers again", n)
		}
	}, objs...)
}
