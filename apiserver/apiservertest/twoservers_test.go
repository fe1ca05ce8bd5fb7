package apiservertest_test

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
)

// A mutant is a store that ignores a condition of writes. The zero mutant ignores none.
type mutant struct {
	claims bool
	spoil  func(w *store.Write) // nil: nothing
}

type spoiledStore struct {
	*store.Store
	spoil func(w *store.Write)
}

func (s spoiledStore) Commit(ctx context.Context, w store.Write) (store.Record, error) {
	if s.spoil != nil {
		s.spoil(&w)
	}
	return s.Store.Commit(ctx, w)
}

// A pair is two API servers over one store, as clients of an administrator.
type pair struct {
	*testing.T
	apis [2]*apiserver.Local
}

// openPair opens two servers that share nothing but a store on disk. Change, which may be nil, adds to the plug-ins of a server.
func openPair(t *testing.T, m mutant, change func(plugins []admission.Plugin) []admission.Plugin) *pair {
	t.Helper()
	c := apiservertest.Kinds(t)
	backend, err := disk.Open(t.TempDir(), disk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	opts := store.Options{Decode: apiserver.NewLoader(c).Decode, Terms: apiserver.Terms(c)}
	opened, err := store.Open(t.Context(), backend, opts)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(ctx context.Context) { _ = opened.Run(ctx) })
	t.Cleanup(g.Stop)
	<-opened.Ready()
	st := spoiledStore{opened, m.spoil}
	p := &pair{T: t}
	for i := range p.apis {
		s := apiservertest.Open(t, func(o *apiserver.Options) {
			o.Store, o.Catalog = st, c
			r := operation.NewReader(c, st)
			addresses, err := admission.NewServiceAddresses(admission.AddressesOptions{
				Reader: r, Networks: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, NodePorts: admission.PortRange{First: 30000, Last: 30999},
			})
			if err != nil {
				t.Fatal(err)
			}
			o.Admission = []admission.Plugin{admission.NewNamespaceLifecycle(r), addresses, admission.NewResourceQuota(r)}
			if change != nil {
				o.Admission = change(o.Admission)
			}
		})
		p.apis[i] = s.As(auth.User{Name: "admin", Groups: []string{auth.GroupMasters}})
	}
	return p
}

func (p *pair) create(server int, resource, namespace string, obj runtime.Object) (runtime.Object, error) {
	return p.apis[server].Create(p.Context(), corev1.SchemeGroupVersion.WithResource(resource), namespace, "", obj, metav1.CreateOptions{}, "")
}

func (p *pair) must(resource, namespace string, obj runtime.Object) {
	p.Helper()
	if _, err := p.create(0, resource, namespace, obj); err != nil {
		p.Fatal(err)
	}
}

// each runs do with both servers at the same time.
func (p *pair) each(do func(server int)) {
	var wg sync.WaitGroup
	for i := range p.apis {
		wg.Go(func() { do(i) })
	}
	wg.Wait()
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// races are what two servers may do at the same time for the same thing. A round returns what went wrong, or nothing.
var races = []struct {
	name   string
	mutant mutant // of which the race finds the fault
	round  func(p *pair, n int) string
}{
	{"the end of a namespace", mutant{spoil: func(w *store.Write) { w.Guards = nil }}, endOfNamespace},
}

// Whatever two servers do at the same time, the result is one that a server alone could have.
func TestTwoServers(t *testing.T) {
	for _, r := range races {
		t.Run(r.name, func(t *testing.T) {
			p := openPair(t, mutant{}, nil)
			for n := range 100 {
				if fault := r.round(p, n); fault != "" {
					t.Errorf("round %d: %s", n, fault)
				}
			}
		})
	}
}

// The races find the faults of a store that ignores a condition.
func TestTwoServersMutants(t *testing.T) {
	for _, r := range races {
		t.Run(r.name, func(t *testing.T) {
			p := openPair(t, r.mutant, nil)
			for n := range 500 {
				if r.round(p, n) != "" {
					return
				}
			}
			t.Error("no fault was found")
		})
	}
}

// endOfNamespace: no object is stored in a namespace after its deletion has begun.
func endOfNamespace(p *pair, n int) string {
	ns, namespaces := fmt.Sprint("end", n), corev1.SchemeGroupVersion.WithResource("namespaces")
	p.must("namespaces", "", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Finalizers: []string{"example.com/stay"}}})
	var made uint64
	p.each(func(server int) {
		if server == 0 {
			if err := p.apis[0].Delete(p.Context(), namespaces, "", ns, metav1.DeleteOptions{}); err != nil {
				p.Error(err)
			}
			return
		}
		for k := range 50 {
			obj, err := p.create(server, "configmaps", ns, &corev1.ConfigMap{ObjectMeta: named(fmt.Sprint("c", k))})
			if err != nil {
				if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
					p.Errorf("a creation in a namespace that ends: %v", err)
				}
				return
			}
			made, _ = strconv.ParseUint(obj.(*corev1.ConfigMap).ResourceVersion, 10, 64)
		}
	})
	obj, err := p.apis[0].Get(p.Context(), namespaces, "", ns, "")
	if err != nil {
		p.Fatal(err)
	}
	gone, _ := strconv.ParseUint(obj.(*corev1.Namespace).ResourceVersion, 10, 64)
	if made > gone {
		return fmt.Sprintf("an object was stored at revision %d, after the deletion of its namespace at %d", made, gone)
	}
	return ""
}

// A meddler is a plug-in that does something the first times that it is asked about a ConfigMap, and counts the questions.
type meddler struct {
	meddle func(n int)
	asked  int
}

func (*meddler) Name() string { return "Meddler" }

func (m *meddler) Validate(_ context.Context, a *admission.Attributes) error {
	if a.Kind.Resource == "configmaps" {
		m.asked++
		m.meddle(m.asked)
	}
	return nil
}

// What a write rests on may change after admission. If the write may be made still, it is, and no plug-in is asked again.
func TestChangesBetweenAdmissionAndTheWrite(t *testing.T) {
	m := &meddler{}
	p := openPair(t, mutant{}, func(plugins []admission.Plugin) []admission.Plugin { return append(plugins, m) })
	namespaces := corev1.SchemeGroupVersion.WithResource("namespaces")
	p.must("namespaces", "", &corev1.Namespace{ObjectMeta: named("a")})
	m.meddle = func(int) {
		_, err := p.apis[1].Patch(t.Context(), namespaces, "", "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{}, "")
		if err != nil {
			t.Error(err)
		}
	}
	p.must("configmaps", "a", &corev1.ConfigMap{ObjectMeta: named("a")})
	if m.asked != 1 {
		t.Errorf("the plug-ins were asked %d times", m.asked)
	}
	m.meddle = func(int) {
		if err := p.apis[1].Delete(t.Context(), namespaces, "", "a", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
	_, err := p.create(0, "configmaps", "a", &corev1.ConfigMap{ObjectMeta: named("b")})
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("a creation in a namespace that was deleted meanwhile: %v", err)
	}
	// Without content and a controller it has only to be finalized to be gone.
	p.must("namespaces", "", &corev1.Namespace{ObjectMeta: named("b")})
	m.meddle = func(int) {
		if err := p.apis[1].Delete(t.Context(), namespaces, "", "b", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		_, err := p.apis[1].Update(t.Context(), namespaces, "", "b", &corev1.Namespace{ObjectMeta: named("b")}, metav1.UpdateOptions{}, "finalize")
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := p.create(0, "configmaps", "b", &corev1.ConfigMap{ObjectMeta: named("b")}); !apierrors.IsNotFound(err) {
		t.Errorf("a creation in a namespace that went meanwhile: %v", err)
	}
}
