package apiservertest_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

var stormOperations = flag.Int("storm", 20_000, "the number of operations of TestTwoServersStorm")

// The names that the clients of a storm use are few, so that they meet.
const (
	stormClients    = 4 // of each server
	stormNamespaces = 4 // the first two have a quota and stay, the others come and go
	stormGroups     = 2 // of custom resources, whose definitions come and go
	stormPods       = 5 // that a quota allows, as well as ConfigMaps
	stormServices   = 4 // that a quota allows
	stormPorts      = 3 // node ports that a quota allows
)

// A client of a storm does what comes to its mind, and expects to be refused most of the time.
type stormClient struct {
	*pair
	*rand.Rand
	server int
}

func (c *stormClient) ns() string { return fmt.Sprint("storm", c.IntN(stormNamespaces)) }

func (c *stormClient) group() string { return fmt.Sprintf("s%d.example.com", c.IntN(stormGroups)) }

func (c *stormClient) name() string { return fmt.Sprint("n", c.IntN(8)) }

func (c *stormClient) service() *corev1.Service {
	s := &corev1.Service{ObjectMeta: named(c.name()), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	if c.IntN(2) == 0 {
		s.Spec.ClusterIP = fmt.Sprint("10.96.0.", 2+c.IntN(12))
	}
	if c.IntN(2) == 0 {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = int32(30000 + c.IntN(8))
	}
	return s
}

var (
	coreV1 = corev1.SchemeGroupVersion
	stops  = int64(0) // the grace period of deletions
)

// step makes a request or a few.
func (c *stormClient) step(ctx context.Context) error {
	api := c.apis[c.server]
	remove := func(gvr schema.GroupVersionResource, ns, name string) error {
		return api.Delete(ctx, gvr, ns, name, metav1.DeleteOptions{GracePeriodSeconds: &stops})
	}
	create := func(resource, ns string, obj runtime.Object) error {
		_, err := c.create(c.server, resource, ns, obj)
		return err
	}
	switch ns := c.ns(); c.IntN(16) {
	case 0, 1, 2:
		return create("services", ns, c.service())
	case 3:
		patch := fmt.Sprintf(`{"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":%d}]}}`, 30000+c.IntN(8))
		_, err := api.Patch(ctx, coreV1.WithResource("services"), ns, c.name(), types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "")
		return err
	case 4, 5:
		return remove(coreV1.WithResource("services"), ns, c.name())
	case 6, 7:
		return create("pods", ns, &corev1.Pod{ObjectMeta: named(c.name()), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo"}}}})
	case 8:
		return remove(coreV1.WithResource("pods"), ns, c.name())
	case 9, 10:
		return create("configmaps", ns, &corev1.ConfigMap{ObjectMeta: named(c.name())})
	case 11:
		return remove(coreV1.WithResource("configmaps"), ns, c.name())
	case 12:
		return c.replaceNamespace(ctx, fmt.Sprint("storm", 2+c.IntN(stormNamespaces-2)))
	case 13:
		if c.IntN(4) == 0 {
			return c.replaceDefinition(ctx, c.group())
		}
		return c.widget(c.server, c.group(), c.name())
	case 14:
		return c.widget(c.server, c.group(), c.name())
	default:
		group := c.group()
		return remove(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}, "", c.name())
	}
}

// replaceNamespace ends a namespace, as its controller does, and makes it again.
func (c *stormClient) replaceNamespace(ctx context.Context, name string) error {
	api, namespaces := c.apis[c.server], coreV1.WithResource("namespaces")
	if err := api.Delete(ctx, namespaces, "", name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	for _, resource := range []string{"services", "pods", "configmaps", "serviceaccounts"} {
		list, _, err := api.List(ctx, coreV1.WithResource(resource), name, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, obj := range list {
			if err := api.Delete(ctx, coreV1.WithResource(resource), name, obj.(catalog.Object).GetName(), metav1.DeleteOptions{GracePeriodSeconds: &stops}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	obj, err := api.Get(ctx, namespaces, "", name, "")
	if err == nil {
		ns := obj.(*corev1.Namespace).DeepCopy()
		ns.Spec.Finalizers = nil
		_, err = api.Update(ctx, namespaces, "", name, ns, metav1.UpdateOptions{}, "finalize")
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return c.makeNamespace(name)
}

func (c *stormClient) makeNamespace(name string) error {
	if _, err := c.create(c.server, "namespaces", "", &corev1.Namespace{ObjectMeta: named(name)}); err != nil {
		return err
	}
	_, err := c.create(c.server, "serviceaccounts", name, &corev1.ServiceAccount{ObjectMeta: named("default")})
	return err
}

func (c *stormClient) replaceDefinition(ctx context.Context, group string) error {
	if err := c.apis[c.server].Delete(ctx, crds, "", "widgets."+group, metav1.DeleteOptions{}); err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	_, err := c.apis[c.server].Create(ctx, crds, "", "", widgetsOf(group), metav1.CreateOptions{}, "")
	return err
}

// A stormWatch replays the stored events, and finds faults.
type stormWatch struct {
	read    store.Revision            // everything up to it was replayed
	holders map[string]string         // by address or port: the key of the Service that has it
	counted map[string]map[string]int // by namespace and resource
	alive   map[string]bool           // the keys of namespaces and definitions that are not being deleted
	faults  []string
}

// replay looks at the events since the last call, in the order of their revisions.
func (w *stormWatch) replay(p *pair) {
	var all []store.Event
	now := p.store.Revision()
	resources := []string{"namespaces/", "services/", "pods/", "configmaps/", crds.GroupResource().String() + "/"}
	for n := range stormGroups {
		resources = append(resources, fmt.Sprintf("widgets.s%d.example.com/", n))
	}
	for _, prefix := range resources {
		events, _, err := p.store.Changes(store.Query{Prefix: prefix}, w.read)
		if err != nil {
			p.Fatal(err)
		}
		all = append(all, events...)
	}
	slices.SortFunc(all, func(a, b store.Event) int { return cmp.Compare(a.Revision, b.Revision) })
	for _, e := range all {
		w.see(e)
	}
	w.read = now
}

func (w *stormWatch) fault(e store.Event, format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf("revision %d of %s: ", e.Revision, e.Key)+fmt.Sprintf(format, args...))
}

func (w *stormWatch) see(e store.Event) {
	obj := e.Value.(interface{ Object() catalog.Object }).Object()
	resource, rest, _ := strings.Cut(e.Key, "/")
	ns, _, namespaced := strings.Cut(rest, "/")
	made := e.Prev.Key == "" && !e.Deleted
	switch {
	case resource == "namespaces" || resource == crds.GroupResource().String():
		w.alive[e.Key] = !e.Deleted && obj.GetDeletionTimestamp() == nil
		return
	case strings.HasPrefix(resource, "widgets."):
		if made && !w.alive[crds.GroupResource().String()+"/"+resource] {
			w.fault(e, "an object of a definition that is gone, or is being deleted")
		}
		return
	case made && namespaced && !w.alive["namespaces/"+ns]:
		w.fault(e, "an object in a namespace that is gone, or is being deleted")
	}
	if w.counted[ns] == nil {
		w.counted[ns] = map[string]int{}
	}
	count := w.counted[ns]
	before, after := uses(e, true), uses(e, false)
	for what, n := range after {
		if count[what] += n - before[what]; n > before[what] && (ns == "storm0" || ns == "storm1") && count[what] > stormQuota[what] {
			w.fault(e, "%d %s in a quota of %d", count[what], what, stormQuota[what])
		}
	}
	for what, n := range before {
		if _, both := after[what]; !both {
			count[what] -= n
		}
	}
	if svc, ok := obj.(*corev1.Service); ok {
		w.hold(e, svc)
	}
}

var stormQuota = map[string]int{"pods": stormPods, "configmaps": stormPods, "services": stormServices, "services.nodeports": stormPorts}

// uses returns the parts of a quota that the object of an event takes, before the event or after it.
func uses(e store.Event, before bool) map[string]int {
	rec := e.Record
	if before {
		rec = e.Prev
	}
	if rec.Key == "" || !before && e.Deleted {
		return nil
	}
	resource, _, _ := strings.Cut(rec.Key, "/")
	use := map[string]int{resource: 1}
	if svc, ok := rec.Value.(interface{ Object() catalog.Object }).Object().(*corev1.Service); ok && svc.Spec.Type == corev1.ServiceTypeNodePort {
		use["services.nodeports"] = len(svc.Spec.Ports)
	}
	return use
}

// hold records the addresses and ports of a Service.
func (w *stormWatch) hold(e store.Event, svc *corev1.Service) {
	for what, key := range w.holders {
		if key == e.Key {
			delete(w.holders, what)
		}
	}
	if e.Deleted {
		return
	}
	has := slices.Clone(svc.Spec.ClusterIPs)
	for _, port := range svc.Spec.Ports {
		if port.NodePort > 0 {
			has = append(has, strconv.Itoa(int(port.NodePort)))
		}
	}
	for _, what := range has {
		if other, taken := w.holders[what]; taken {
			w.fault(e, "%s belongs to %s", what, other)
		}
		w.holders[what] = e.Key
	}
}

// storm lets clients of both servers do what they like for so many operations, and returns what came of it that a
// server alone would not have let come.
func (p *pair) storm(operations int, seed uint64) []string {
	p.judge(0)
	first := stormClient{pair: p, Rand: rand.New(rand.NewPCG(seed, 0))}
	for n := range stormNamespaces {
		if err := first.makeNamespace(fmt.Sprint("storm", n)); err != nil {
			p.Fatal(err)
		}
	}
	for _, ns := range []string{"storm0", "storm1"} {
		for what, n := range stormQuota {
			if what == "pods" || what == "configmaps" {
				what = "count/" + what
			}
			p.quota(ns, strings.ReplaceAll(what, "/", "-"), what, strconv.Itoa(n))
		}
	}
	w := &stormWatch{holders: map[string]string{}, counted: map[string]map[string]int{}, alive: map[string]bool{}}
	const round = 2_000 // operations: fewer events than the history has room for
	var done int
	for ; done < operations && len(w.faults) == 0; done += round {
		p.each(func(server int) {
			g := run.NewGroup(p.Context(), 0)
			defer g.Wait()
			for k := range stormClients {
				c := &stormClient{p, rand.New(rand.NewPCG(seed+uint64(done), uint64(1+server*stormClients+k))), server}
				g.Go(func(ctx context.Context) {
					for range round / 2 / stormClients {
						if err := c.step(ctx); err != nil && !expected(err) {
							p.Errorf("server %d: %v", server, err)
							return
						}
					}
				})
			}
		})
		w.replay(p)
	}
	p.Logf("%d operations, revision %d", done, w.read)
	return w.faults
}

// expected reports whether an operation of a storm may be refused like that.
func expected(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err) ||
		apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsMethodNotSupported(err)
}

// Whatever many clients of two servers do, no address, port, part of a quota or namespace is given twice.
func TestTwoServersStorm(t *testing.T) {
	for _, fault := range openPair(t, mutant{}, nil).storm(*stormOperations, rand.Uint64()) {
		t.Error(fault)
	}
}

// A storm finds the faults of a store that ignores a condition.
func TestStormMutants(t *testing.T) {
	for name, m := range map[string]mutant{
		"claims":  {claims: true},
		"guards":  {spoil: func(w *store.Write) { w.Guards = nil }},
		"charges": {spoil: func(w *store.Write) { w.Charge = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			faults := openPair(t, m, nil).storm(100_000, 1)
			if len(faults) == 0 {
				t.Error("no fault was found")
			} else {
				t.Log(faults[0])
			}
		})
	}
}
