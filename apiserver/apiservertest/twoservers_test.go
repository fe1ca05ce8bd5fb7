package apiservertest_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/definitions"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
	"github.com/sampan-io/sampan/store/disk"
)

// A mutant is a store that ignores a condition of writes. The zero mutant ignores none.
type mutant struct {
	claims bool                 // it ignores claims
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
	apis      [2]*apiserver.Local
	handlers  [2]http.Handler
	followers [2]*definitions.Follower
	store     *store.Store
}

// judge lets a server judge definitions until stop is called, or the test ends.
func (p *pair) judge(server int) (stop func()) {
	g := run.NewGroup(context.WithoutCancel(p.Context()), 0)
	g.Go(func(ctx context.Context) { _ = p.followers[server].Judge(ctx) })
	p.Cleanup(g.Stop)
	return g.Stop
}

// openPair opens two servers that share nothing but a store on disk, of which none judges definitions. Change, which may
// be nil, adds plug-ins to a server.
func openPair(t *testing.T, m mutant, change func(plugins []admission.Plugin) []admission.Plugin) *pair {
	t.Helper()
	c := apiservertest.Kinds(t)
	backend, err := disk.Open(t.TempDir(), disk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	opts := store.Options{Decode: apiserver.NewLoader(c).Decode, Terms: apiserver.Terms(c), Claims: apiserver.Claims(c)}
	if m.claims {
		opts.Claims = nil
	}
	opened, err := store.Open(t.Context(), backend, opts)
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(ctx context.Context) { _ = opened.Run(ctx) })
	t.Cleanup(g.Stop)
	<-opened.Ready()
	st := spoiledStore{opened, m.spoil}
	p := &pair{T: t, store: opened}
	for i := range p.apis {
		c := apiservertest.Kinds(t)
		f := definitions.New(definitions.Options{Catalog: c})
		s := apiservertest.Open(t, func(o *apiserver.Options) {
			o.Store, o.Catalog = st, c
			r := operation.NewReader(c, st)
			addresses, err := admission.NewServiceAddresses(admission.AddressesOptions{
				Reader: r, Networks: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, NodePorts: admission.PortRange{First: 30000, Last: 30999},
			})
			if err != nil {
				t.Fatal(err)
			}
			o.Admission = []admission.Plugin{
				admission.NewNamespaceLifecycle(r), admission.NewServiceAccount(r), addresses, admission.NewResourceQuota(r), f.Await(),
			}
			if change != nil {
				o.Admission = change(o.Admission)
			}
		})
		admin := auth.User{Name: "admin", Groups: []string{auth.GroupMasters}}
		p.apis[i], p.handlers[i] = s.As(admin), s.HandlerAs(admin)
		f.Use(p.apis[i], s.Instances())
		g.Go(func(ctx context.Context) { _ = f.Run(ctx) })
		p.followers[i] = f
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
	mutant mutant // of which the race finds the fault; none if it needs no condition
	round  func(p *pair, n int) string
}{
	{"a node port", mutant{claims: true}, nodePort},
	{"a cluster IP", mutant{claims: true}, clusterIP},
	{"chosen node ports", mutant{claims: true}, chosenNodePorts},
	{"an IPAddress and a Service", mutant{claims: true}, address},
	{"the change of two services", mutant{claims: true}, changedNodePorts},
	{"a pod network", mutant{claims: true}, podNetwork},
	{"a quota", mutant{spoil: func(w *store.Write) { w.Charge = nil }}, quota},
	{"what a quota has left", mutant{spoil: func(w *store.Write) { w.Charge = nil }}, quotaLeft},
	{"the end of a definition", mutant{spoil: func(w *store.Write) { w.Guards = nil }}, endOfDefinition},
	{"a service account", mutant{}, serviceAccount},
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
		if !r.mutant.claims && r.mutant.spoil == nil {
			continue // it needs no condition
		}
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

// one makes a request to each server at the same time, of which one must succeed. The other is refused with these
// words.
func (p *pair) one(words string, do func(server int) error) string {
	var errs [2]error
	p.each(func(server int) { errs[server] = do(server) })
	switch {
	case errs[0] == nil && errs[1] == nil:
		return "both requests succeeded"
	case errs[0] != nil && errs[1] != nil:
		return fmt.Sprintf("no request succeeded: %v; %v", errs[0], errs[1])
	}
	if err := cmp.Or(errs[0], errs[1]); !strings.Contains(err.Error(), words) {
		p.Errorf("the other request was refused with %q, want %q", err, words)
	}
	return ""
}

func (p *pair) namespace(name string) {
	p.Helper()
	if _, err := p.create(0, "namespaces", "", &corev1.Namespace{ObjectMeta: named(name)}); err != nil && !apierrors.IsAlreadyExists(err) {
		p.Fatal(err)
	}
}

func serviceWith(name string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: named(name), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: ports}}
}

func nodePort(p *pair, n int) string {
	p.namespace("default")
	return p.one("provided port is already allocated", func(server int) error {
		_, err := p.create(server, "services", "default", serviceWith(fmt.Sprintf("port%d-%d", n, server), corev1.ServicePort{Port: 80, NodePort: int32(30000 + n)}))
		return err
	})
}

func clusterIP(p *pair, n int) string {
	p.namespace("default")
	return p.one("provided IP is already allocated", func(server int) error {
		svc := &corev1.Service{ObjectMeta: named(fmt.Sprintf("ip%d-%d", n, server)), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
		svc.Spec.ClusterIP = fmt.Sprintf("10.96.%d.%d", 200+n/250, 1+n%250)
		_, err := p.create(server, "services", "default", svc)
		return err
	})
}

// chosenNodePorts: services that name no port get different ones, even the last ones.
func chosenNodePorts(p *pair, n int) string {
	p.namespace("default")
	// Fewer are free with every round, and none in the last ones.
	var ports []corev1.ServicePort
	for i := range 6 {
		ports = append(ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(80 + i)})
	}
	p.each(func(server int) {
		_, err := p.create(server, "services", "default", serviceWith(fmt.Sprintf("chosen%d-%d", n, server), ports...))
		if err != nil && !strings.Contains(err.Error(), "range is full") {
			p.Error(err)
		}
	})
	return p.doubles()
}

// doubles returns what two services have.
func (p *pair) doubles() string {
	list, _, err := p.apis[0].List(p.Context(), corev1.SchemeGroupVersion.WithResource("services"), "", metav1.ListOptions{})
	if err != nil {
		p.Fatal(err)
	}
	has := map[string]string{}
	for _, o := range list {
		svc := o.(*corev1.Service)
		mine := slices.Clone(svc.Spec.ClusterIPs)
		for _, sp := range svc.Spec.Ports {
			if sp.NodePort > 0 {
				mine = append(mine, strconv.Itoa(int(sp.NodePort)))
			}
		}
		for _, what := range mine {
			if other, twice := has[what]; twice {
				return fmt.Sprintf("%s and %s have %s", other, svc.Name, what)
			}
			has[what] = svc.Name
		}
	}
	return ""
}

func address(p *pair, n int) string {
	p.namespace("default")
	ip := fmt.Sprintf("10.96.%d.%d", 100+n/250, 1+n%250)
	return p.one("already", func(server int) (err error) {
		if server == 0 {
			svc := &corev1.Service{ObjectMeta: named(fmt.Sprint("address", n)), Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}}}
			_, err = p.create(server, "services", "default", svc)
			return err
		}
		a := &networkingv1.IPAddress{ObjectMeta: named(ip), Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Group: "gateway.networking.k8s.io", Resource: "gateways", Namespace: "default", Name: "g"}}}
		_, err = p.apis[server].Create(p.Context(), networkingv1.SchemeGroupVersion.WithResource("ipaddresses"), "", "", a, metav1.CreateOptions{}, "")
		return err
	})
}

// changedNodePorts: updates compete for a port as creations do.
func changedNodePorts(p *pair, n int) string {
	p.namespace("default")
	services := corev1.SchemeGroupVersion.WithResource("services")
	name := func(server int) string { return fmt.Sprint("changed", server) }
	for server := range p.apis {
		if _, err := p.create(server, "services", "default", serviceWith(name(server), corev1.ServicePort{Port: 80, NodePort: int32(30001 + server)})); err != nil && !apierrors.IsAlreadyExists(err) {
			p.Fatal(err)
		}
	}
	return p.one("provided port is already allocated", func(server int) error {
		patch := fmt.Sprintf(`[{"op": "replace", "path": "/spec/ports/0/nodePort", "value": %d}]`, 30010+n)
		_, err := p.apis[server].Patch(p.Context(), services, "default", name(server), types.JSONPatchType, []byte(patch), metav1.PatchOptions{}, "")
		return err
	})
}

// podNetwork: of two nodes one gets the network. Where no plug-in has words for it, the refusal is a conflict that
// names both.
func podNetwork(p *pair, n int) string {
	network := fmt.Sprintf("10.%d.%d.0/24", 128+n/250, n%250)
	return p.one("podCIDR="+network+" belongs to nodes/", func(server int) error {
		node := &corev1.Node{ObjectMeta: named(fmt.Sprintf("n%d-%d", n, server)), Spec: corev1.NodeSpec{PodCIDR: network, PodCIDRs: []string{network}}}
		if n%2 == 0 {
			_, err := p.create(server, "nodes", "", node)
			return err
		}
		node.Spec = corev1.NodeSpec{}
		if _, err := p.create(server, "nodes", "", node); err != nil {
			p.Fatal(err)
		}
		patch := fmt.Sprintf(`{"spec": {"podCIDR": %q, "podCIDRs": [%[1]q]}}`, network)
		_, err := p.apis[server].Patch(p.Context(), corev1.SchemeGroupVersion.WithResource("nodes"), "", node.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "")
		return err
	})
}

func (p *pair) quota(ns, name, resourceName, hard string) {
	p.Helper()
	p.namespace(ns)
	p.must("resourcequotas", ns, &corev1.ResourceQuota{ObjectMeta: named(name), Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.ResourceName(resourceName): resource.MustParse(hard)},
	}})
}

func quota(p *pair, n int) string {
	ns := fmt.Sprint("quota", n)
	p.quota(ns, "q", "count/secrets", "1")
	return p.one("exceeded quota: q, requested: count/secrets=1, used: count/secrets=1, limited: count/secrets=1", func(server int) error {
		_, err := p.create(server, "secrets", ns, &corev1.Secret{ObjectMeta: named(fmt.Sprint("s", server))})
		return err
	})
}

// quotaLeft: many clients of both servers create and delete as much as they can. There is never more than the quota
// allows, and in the end exactly as much as it does.
func quotaLeft(p *pair, n int) (fault string) {
	const hard, clients, each = 5, 4, 6
	ns, secrets := fmt.Sprint("left", n), corev1.SchemeGroupVersion.WithResource("secrets")
	p.quota(ns, "q", "count/secrets", strconv.Itoa(hard))
	begin := p.store.Revision()
	p.each(func(server int) {
		g := run.NewGroup(p.Context(), 0)
		for c := range clients {
			g.Go(func(ctx context.Context) {
				for k := range each {
					name := fmt.Sprintf("s%d-%d-%d", server, c, k)
					_, err := p.create(server, "secrets", ns, &corev1.Secret{ObjectMeta: named(name)})
					switch {
					case err == nil && k%2 == 0:
						if err := p.apis[server].Delete(ctx, secrets, ns, name, metav1.DeleteOptions{}); err != nil {
							p.Error(err)
						}
					case err != nil && !apierrors.IsForbidden(err):
						p.Error(err)
					}
				}
			})
		}
		g.Wait()
	})
	for server := range p.apis {
		for k := range hard {
			_, _ = p.create(server, "secrets", ns, &corev1.Secret{ObjectMeta: named(fmt.Sprintf("rest%d-%d", server, k))})
		}
	}
	events, _, err := p.store.Changes(store.Query{Prefix: "secrets/" + ns + "/"}, begin)
	if err != nil {
		p.Fatal(err)
	}
	stored := 0
	for _, e := range events {
		switch {
		case e.Deleted:
			stored--
		case e.Prev.Key == "":
			stored++
		}
		if stored > hard {
			return fmt.Sprintf("%d objects in a quota of %d", stored, hard)
		}
	}
	if stored != hard {
		p.Errorf("in the end there are %d objects in a quota of %d", stored, hard)
	}
	return ""
}

// serviceAccount: a pod gets the default service account that another server is making.
func serviceAccount(p *pair, n int) string {
	ns := fmt.Sprint("account", n)
	p.namespace(ns)
	var fault error
	p.each(func(server int) {
		if server == 0 {
			p.must("serviceaccounts", ns, &corev1.ServiceAccount{ObjectMeta: named("default")})
			return
		}
		_, fault = p.create(server, "pods", ns, &corev1.Pod{ObjectMeta: named("p"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo"}}}})
	})
	if fault != nil {
		return fault.Error()
	}
	return ""
}

// endOfDefinition: no custom resource is stored after the deletion of its definition has begun.
func endOfDefinition(p *pair, n int) string {
	group := fmt.Sprintf("g%d.example.com", n)
	if n == 0 {
		p.judge(0)
	}
	name := p.define(0, group, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Finalizers = []string{"example.com/stay"}
	})
	create := func(server, k int) error {
		return p.widget(server, group, fmt.Sprintf("w%d-%d", server, k))
	}
	served := make(chan struct{})
	p.each(func(server int) {
		if server == 0 {
			<-served
			if err := p.apis[0].Delete(p.Context(), crds, "", name, metav1.DeleteOptions{}); err != nil {
				p.Error(err)
			}
			return
		}
		for k, made := 0, 0; ; k++ {
			err := create(server, k)
			switch {
			case err == nil:
				if made++; made == 1 {
					close(served)
				}
			case made > 0 && apierrors.IsForbidden(err):
				return
			case made > 0:
				p.Errorf("a creation while the definition ends: %v", err)
				return
			case !apierrors.IsNotFound(err):
				p.Errorf("a creation before the definition is served: %v", err)
				return
			}
		}
	})
	var gone store.Revision
	events, _, err := p.store.Changes(store.Query{Prefix: "customresourcedefinitions.apiextensions.k8s.io/" + name}, 0)
	if err != nil {
		p.Fatal(err)
	}
	for _, e := range events {
		if d, ok := e.Value.(interface{ Object() catalog.Object }).Object().(*apiextensionsv1.CustomResourceDefinition); ok && d.DeletionTimestamp != nil && gone == 0 {
			gone = e.Revision
		}
	}
	events, _, err = p.store.Changes(store.Query{Prefix: "widgets." + group + "/"}, gone)
	if err != nil {
		p.Fatal(err)
	}
	for _, e := range events {
		if e.Prev.Key == "" {
			return fmt.Sprintf("%s was stored at revision %d, after the deletion of its definition at %d", e.Key, e.Revision, gone)
		}
	}
	return ""
}

// A meddler is a plug-in that does something whenever it is asked about a ConfigMap, and counts the questions.
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

// The conditions of a write may change after admission. If it may be made still, it is, and no plug-in is asked again.
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
