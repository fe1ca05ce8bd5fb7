package proxy_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/applied"
)

// A wire is the network of the nodes: it has the announced addresses of each.
type wire struct {
	mu      sync.Mutex
	answers map[string][]netip.Addr // guarded by mu; by node
	told    map[string]int          // guarded by mu; number of reminders
	changed chan struct{}           // guarded by mu; closed and replaced by each change
}

// A voice is the announcer of a node.
type voice struct {
	*wire
	node string
}

func (v voice) Announce(_ context.Context, all []netip.Addr) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.answers[v.node] = slices.Clone(all)
	close(v.changed)
	v.changed = make(chan struct{})
	return nil
}

func (v voice) Remind(_ context.Context, of []netip.Addr) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !slices.Equal(of, v.answers[v.node]) {
		return fmt.Errorf("neighbours are told of %v", of)
	}
	v.told[v.node]++
	close(v.changed)
	v.changed = make(chan struct{})
	return nil
}

// await blocks until ok is true; the test's timeout is the limit.
func (w *wire) await(ok func() bool) {
	for {
		w.mu.Lock()
		done, changed := ok(), w.changed
		w.mu.Unlock()
		if done {
			return
		}
		<-changed
	}
}

// each returns who answers for each address; w.mu is held.
func (w *wire) each() map[netip.Addr]string {
	all := map[netip.Addr]string{}
	for _, node := range slices.Sorted(maps.Keys(w.answers)) {
		for _, a := range w.answers[node] {
			all[a] = strings.TrimPrefix(all[a]+" "+node, " ")
		}
	}
	return all
}

// settled blocks until each of these nodes answers for an address, no other node for any, and
// exactly one for each. It returns which.
func (w *wire) settled(addresses int, nodes ...string) (who map[netip.Addr]string) {
	w.await(func() bool {
		who = w.each()
		got := slices.Compact(slices.Sorted(maps.Values(who)))
		return len(who) == addresses && slices.Equal(got, nodes)
	})
	return who
}

// fleet is the nodes n1, n2 and n3 with a proxy each, and a simulated one, on one wire.
type fleet struct {
	*testing.T
	*wire
	api  *clienttest.Server
	stop map[string]func()
}

func realNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

func newFleet(t *testing.T, objects ...client.Object) *fleet {
	return &fleet{t, &wire{answers: map[string][]netip.Addr{}, told: map[string]int{}, changed: make(chan struct{})}, clienttest.New(t, objects...), map[string]func(){}}
}

func (f *fleet) start(node string) {
	f.Helper()
	_, f.stop[node] = begin(f.T, f.api, newKernel(f.T), proxy.Options{Node: node, Announcer: voice{f.wire, node}})
}

func (f *fleet) change(node string, how func(*corev1.Node)) {
	f.Helper()
	n, err := client.Nodes.Get(f.Context(), f.api, "", node)
	if err != nil {
		f.Fatal(err)
	}
	n = n.DeepCopy()
	how(n)
	f.api.Set(f, n)
}

func (f *fleet) balanced(name string, local bool, address string, nodes ...string) {
	f.Helper()
	svc := service(func(s *corev1.Service) {
		s.Name, s.Spec.Type = name, corev1.ServiceTypeLoadBalancer
		s.Spec.ClusterIP = "10.0.0." + address[strings.LastIndex(address, ".")+1:]
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
		if local {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}
	})
	sl := slice("http", 80)
	sl.Name, sl.Labels = name, map[string]string{discoveryv1.LabelServiceName: name}
	for i, n := range nodes {
		e := endpoint(fmt.Sprintf("10.1.0.%d", i+1), "rs")
		e.NodeName = &n
		sl.Endpoints = append(sl.Endpoints, e)
	}
	f.api.Set(f, svc, sl)
}

func ready(is corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.Conditions[0].Status = is }
}

// TestOneOfTheNodesAnswersForAnAddress lets nodes come and go in every way.
func TestOneOfTheNodesAnswersForAnAddress(t *testing.T) {
	synctest.Test(t, comeAndGo)
}

func comeAndGo(t *testing.T) {
	simulated := realNode("simulated")
	other := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: applied.Namespace, Name: applied.Name("kube"), Labels: map[string]string{applied.Label: "true"}}}
	f := newFleet(t, realNode("n1"), realNode("n2"), realNode("n3"), simulated, realNode("kube"), other)
	const many = 60
	for i := range many {
		f.balanced(fmt.Sprintf("web-%d", i), false, fmt.Sprintf("192.0.2.%d", i+1), "n1")
	}
	f.start("n1")
	f.settled(many, "n1")
	f.start("n2")
	f.settled(many, "n1", "n2")
	f.start("n3")
	before := f.settled(many, "n1", "n2", "n3")

	// same checks that only addresses of a node that has gone have moved.
	same := func(now map[netip.Addr]string, gone string) {
		t.Helper()
		for a, node := range before {
			if node != gone && now[a] != node {
				t.Errorf("%s has gone, and %v moved from %s to %s", gone, a, node, now[a])
			}
		}
	}
	f.change("n2", ready(corev1.ConditionUnknown))
	same(f.settled(many, "n1", "n3"), "n2")
	f.change("n2", ready(corev1.ConditionTrue))
	same(f.settled(many, "n1", "n2", "n3"), "")
	f.change("n3", func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""} })
	same(f.settled(many, "n1", "n2"), "n3")
	f.change("n3", func(n *corev1.Node) { n.Labels = nil })
	same(f.settled(many, "n1", "n2", "n3"), "")
	f.change("n1", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}} })
	same(f.settled(many, "n2", "n3"), "n1")
	f.change("n1", func(n *corev1.Node) { n.Spec.Taints = nil })
	same(f.settled(many, "n1", "n2", "n3"), "")
	// A proxy that is stopped says so, although its node goes on.
	f.stop["n2"]()
	same(f.settled(many, "n1", "n3"), "n2")
	// Where no node is Ready all that there are share.
	f.change("n1", ready(corev1.ConditionFalse))
	f.settled(many, "n3")
	f.change("n3", ready(corev1.ConditionFalse))
	f.settled(many, "n1", "n3")
	f.await(func() bool { return f.told["n1"] >= 2 && f.told["n3"] >= 2 }) // neighbours get two more announcements
}

func TestNodesWithEndpointsAnswerForALocalService(t *testing.T) {
	f := newFleet(t, realNode("n1"), realNode("n2"), realNode("n3"))
	const many = 20
	for i := range many {
		f.balanced(fmt.Sprintf("web-%d", i), true, fmt.Sprintf("192.0.2.%d", i+1), "n2", "n3")
	}
	for _, n := range []string{"n1", "n2", "n3"} {
		f.start(n)
	}
	f.settled(many, "n2", "n3")
	f.change("n2", ready(corev1.ConditionFalse))
	f.settled(many, "n3")
}

// Nothing changes for a node that is the only one, whatever the Leases say.
func TestANodeThatIsAloneAnswers(t *testing.T) {
	for name, objects := range map[string][]client.Object{
		"unknown": {}, "not Ready": {func() *corev1.Node { n := realNode("n1"); ready(corev1.ConditionFalse)(n); return n }()},
		"with simulated ones": {realNode("n1"), realNode("n2"), realNode("n3")},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, objects...)
			f.balanced("web", false, "192.0.2.1", "n1")
			f.balanced("other", false, "192.0.2.2", "n1")
			f.start("n1")
			f.settled(2, "n1")
			f.api.Await(t, func() error {
				if l := clienttest.Find(f.api, client.Leases, applied.Namespace, applied.Name("n1")); l == nil || !applied.Announces(l) {
					return fmt.Errorf("the lease is %v", l)
				}
				return nil
			})
			f.balanced("third", false, "192.0.2.3", "n1")
			f.settled(3, "n1")
			f.stop["n1"]()
			if l := clienttest.Find(f.api, client.Leases, applied.Namespace, applied.Name("n1")); applied.Announces(l) {
				t.Error("a proxy that has stopped still says that it answers")
			}
		})
	}
}
