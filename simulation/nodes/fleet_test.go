package nodes_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/nodelifecycle"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/nodefeature"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/simulation"
	"github.com/sampan-io/sampan/simulation/nodes"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A rig is a fleet before a modelled API server, in a bubble of fake time.
type rig struct {
	testing.TB
	api  *clienttest.Server
	plan *simulation.Plan
	f    *nodes.Fleet

	networks []string // of the pods; none means one that is large enough
}

// head is what every file of a test begins with; the nodes are n-0 and n-1.
const head = "apiVersion: simulation.sampan.dev/v1alpha1\nkind: SimulatedNodes\nnodes:\n- name: n-{}\n  count: 2\n"

func newRig(t testing.TB, rules string, objs ...client.Object) *rig {
	t.Helper()
	plan, err := simulation.Parse("plan", []byte(head+rules), 0, 5000)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{TB: t, api: clienttest.New(t, objs...), plan: plan}
}

// start runs an agent until the returned function is called.
func (r *rig) start() (stop func()) {
	r.Helper()
	networks := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	if len(r.networks) > 0 {
		networks = nil
	}
	for _, n := range r.networks {
		networks = append(networks, netip.MustParsePrefix(n))
	}
	var err error
	r.f, err = nodes.New(nodes.Options{
		Client: r.api, As: func(string) client.Interface { return r.api }, Plan: r.plan,
		PodNetworks: networks, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		r.Fatal(err)
	}
	g := run.NewGroup(r.Context(), 0)
	f := r.f
	g.Go(func(ctx context.Context) {
		if err := f.Run(ctx); err != nil {
			r.Errorf("Run: %v", err)
		}
	})
	<-f.Ready()
	return g.Stop
}

// inBubble runs f with an agent that has started.
func inBubble(t *testing.T, rules string, f func(r *rig), objs ...client.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rules, objs...)
		stop := r.start()
		synctest.Wait()
		f(r)
		stop()
	})
}

func newPod(name, node string, edit ...func(*corev1.Pod)) *corev1.Pod {
	grace := int64(30)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Generation: 1, Labels: map[string]string{"name": name}},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "c", Image: "demo:v1", ImagePullPolicy: corev1.PullIfNotPresent}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, f := range edit {
		f(p)
	}
	return p
}

func (r *rig) create(p *corev1.Pod) *corev1.Pod {
	r.Helper()
	stored, err := client.Pods.Create(r.Context(), r.api, p)
	if err != nil {
		r.Fatal(err)
	}
	return stored
}

func (r *rig) pod(name string) *corev1.Pod {
	return clienttest.Find(r.api, client.Pods, "default", name)
}

func (r *rig) node(name string) *corev1.Node { return clienttest.Find(r.api, client.Nodes, "", name) }

func (r *rig) delete(name string, grace int64) {
	r.Helper()
	if err := client.Pods.Delete(r.Context(), r.api, "default", name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		r.Fatal(err)
	}
}

// fail cuts a node off, or restores it.
func (r *rig) fail(name string, cut bool) {
	r.Helper()
	var value any
	if cut {
		value = simulation.Cut
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{simulation.FailureAnnotation: value}}})
	if err == nil {
		_, err = client.Nodes.Patch(r.Context(), r.api, "", name, types.MergePatchType, patch, "")
	}
	if err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}

func isReady(p *corev1.Pod) bool {
	return p != nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func nodeReady(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func TestNodesRegisterAndAreReady(t *testing.T) {
	inBubble(t, "", func(r *rig) {
		nodes := clienttest.All(r.api, client.Nodes, "")
		if len(nodes) != 2 {
			t.Fatalf("%d nodes are registered, want 2", len(nodes))
		}
		for i, n := range nodes {
			if nodeReady(n) != corev1.ConditionTrue || n.Spec.PodCIDR != fmt.Sprintf("10.0.%d.0/24", i) || !simulation.Simulated(n) {
				t.Errorf("node %s is %+v %+v", n.Name, n.Spec, n.Status)
			}
			if !slices.Equal(n.Status.DeclaredFeatures, nodefeature.Declared(false)) {
				t.Errorf("node %s declares %q, want what a real node declares", n.Name, n.Status.DeclaredFeatures)
			}
			l := clienttest.Find(r.api, client.Leases, corev1.NamespaceNodeLease, n.Name)
			if l == nil || *l.Spec.LeaseDurationSeconds != 40 || len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != n.UID {
				t.Errorf("lease of %s is %+v", n.Name, l)
			}
		}
	})
}

func TestIdleFleetWritesOnlyLeases(t *testing.T) {
	inBubble(t, "", func(r *rig) {
		r.create(newPod("p", "n-0"))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		r.api.Writes() // forget what was
		time.Sleep(time.Hour)
		synctest.Wait()
		writes := r.api.Writes()
		for _, w := range writes {
			if w.Resource != "leases" {
				t.Fatalf("at idle it wrote %v", w)
			}
		}
		// Two nodes, every ten seconds.
		if want := 2 * 360; len(writes) != want {
			t.Errorf("%d leases were renewed in an hour, want %d", len(writes), want)
		}
	})
}

func TestManyNodesRenewFewLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		const n = 400
		r.plan = simulation.Uniform("n", n)
		stop := r.start()
		defer stop()
		synctest.Wait()
		time.Sleep(65 * time.Second) // halfway between two rounds
		r.api.Writes()               // forget what was
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		renewed := map[string]int{}
		for _, w := range r.api.Writes() {
			renewed[w.Name]++
		}
		total := 0
		for _, count := range renewed {
			total += count
		}
		// 400 nodes at 16 a second are 25 s for each: one in three rounds of 10 s.
		if want := n * 120 / 30; total != want || len(renewed) != n {
			t.Errorf("%d leases of %d nodes were renewed in two minutes, want %d of all", total, len(renewed), want)
		}
		// It outlasts three that are missed.
		l := clienttest.Find(r.api, client.Leases, corev1.NamespaceNodeLease, "n-7")
		if *l.Spec.LeaseDurationSeconds != 120 || renewed["n-7"] != 4 {
			t.Errorf("a lease lasts %d s and was renewed %d times in two minutes", *l.Spec.LeaseDurationSeconds, renewed["n-7"])
		}
	})
}

func TestAnAgentThatComesBackFindsItsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "pods:\n- selector: {matchLabels: {name: job}}\n  runDuration: 60s\n")
		stop := r.start()
		r.create(newPod("web", "n-0"))
		r.create(newPod("job", "n-0", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }))
		time.Sleep(20 * time.Second)
		synctest.Wait()
		web := r.pod("web")
		stop()
		r.api.Writes() // forget what was
		time.Sleep(10 * time.Second)
		stop = r.start()
		defer stop()
		synctest.Wait()
		for _, w := range r.api.Writes() {
			if w.Resource != "leases" {
				t.Errorf("the agent that came back wrote %v", w)
			}
		}
		if now := r.pod("web"); now.ResourceVersion != web.ResourceVersion || !isReady(now) {
			t.Errorf("pod is %+v, was %+v", now.Status, web.Status)
		}
		// Its address is its own still.
		r.create(newPod("other", "n-0"))
		time.Sleep(29*time.Second + 999*time.Millisecond)
		synctest.Wait()
		if other := r.pod("other"); other.Status.PodIP == web.Status.PodIP || other.Status.PodIP == "" {
			t.Errorf("a new pod has the address %q, the old one %q", other.Status.PodIP, web.Status.PodIP)
		}
		if p := r.pod("job").Status.Phase; p != corev1.PodRunning {
			t.Errorf("a job of 60 s is %s just before its end", p)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if p := r.pod("job").Status.Phase; p != corev1.PodSucceeded {
			t.Errorf("a job of 60 s is %s after 60 s", p)
		}
	})
}

func TestAStatusThatOthersWriteMeanwhileStays(t *testing.T) {
	inBubble(t, "pods:\n- startDelay: 5s\n", func(r *rig) {
		r.create(newPod("p", "n-0"))
		synctest.Wait()
		gate := corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue}
		done := false
		r.api.Intercept(func(q clienttest.Request) error {
			// Just before the agent writes that the pod runs.
			if q.Verb == "update" && q.Resource == "pods" && !done {
				done = true
				p := r.pod("p").DeepCopy()
				p.Status.Conditions = append(p.Status.Conditions, gate)
				if _, err := client.Pods.Update(r.Context(), r.api, p, "status"); err != nil {
					r.Error(err)
				}
			}
			return nil
		})
		time.Sleep(6 * time.Second)
		synctest.Wait()
		p := r.pod("p")
		if !isReady(p) || !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == gate.Type }) {
			t.Errorf("conditions are %+v", p.Status.Conditions)
		}
	})
}

func TestARefusedWriteIsTriedAgain(t *testing.T) {
	inBubble(t, "", func(r *rig) {
		failures := 0
		r.api.Intercept(func(q clienttest.Request) error {
			if q.Resource == "pods" && (q.Verb == "update" || q.Verb == "delete" && q.Subresource == "") && failures < 6 {
				failures++
				return apierrors.NewServiceUnavailable("not now")
			}
			return nil
		})
		r.create(newPod("p", "n-0"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if !isReady(r.pod("p")) || failures != 6 {
			t.Errorf("after %d failures the pod is %+v", failures, r.pod("p").Status)
		}
	})
}

func TestAWatchThatBreaksLosesNothing(t *testing.T) {
	inBubble(t, "", func(r *rig) {
		r.create(newPod("a", "n-0"))
		r.create(newPod("b", "n-0"))
		synctest.Wait()
		r.api.BreakWatches(apierrors.NewResourceExpired("too old"))
		r.api.Forget()
		r.delete("a", 30)
		r.create(newPod("c", "n-1"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if r.pod("a") != nil || !isReady(r.pod("b")) || !isReady(r.pod("c")) {
			t.Errorf("pods are %v, %v, %v", r.pod("a"), r.pod("b"), r.pod("c"))
		}
	})
}

func TestAPodThatAFinalizerHoldsIsEndedOnce(t *testing.T) {
	inBubble(t, "", func(r *rig) {
		r.create(newPod("p", "n-0", func(p *corev1.Pod) { p.Finalizers = []string{"example.com/hold"} }))
		synctest.Wait()
		r.delete("p", 5)
		time.Sleep(time.Minute)
		synctest.Wait()
		p := r.pod("p")
		if p == nil || p.Status.Phase != corev1.PodSucceeded || *p.DeletionGracePeriodSeconds != 0 {
			t.Fatalf("pod is %+v", p)
		}
		r.api.Writes() // forget what was
		free := p.DeepCopy()
		free.Finalizers = nil
		if _, err := client.Pods.Update(r.Context(), r.api, free, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if r.pod("p") != nil {
			t.Error("the pod is still there")
		}
		for _, w := range r.api.Writes()[1:] { // the first is ours
			if w.Resource == "pods" {
				t.Errorf("it wrote %v of a pod that was over", w)
			}
		}
	})
}

func TestPodWaitsForFreeAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "  capacity: {pods: 4}\n")
		r.plan = must(simulation.Parse("plan", []byte(strings.Replace(head, "count: 2", "count: 1\n  capacity: {pods: 300}", 1)), 0, 5000))
		if bits := r.plan.NodeBits(netip.MustParsePrefix("10.0.0.0/8")); bits != 23 {
			t.Errorf("a node of 300 pods has a /%d, want /23", bits)
		}
		r.plan = simulation.Uniform("n", 1)
		stop := r.start()
		defer stop()
		const all = 256 - 3
		for i := range all + 1 {
			r.create(newPod(fmt.Sprint("p", i), "n-0"))
		}
		synctest.Wait()
		seen := map[string]bool{}
		waiting := ""
		for i := range all + 1 {
			p := r.pod(fmt.Sprint("p", i))
			if ip := p.Status.PodIP; ip == "" {
				waiting = p.Name
			} else if seen[ip] {
				t.Errorf("two pods have the address %s", ip)
			} else {
				seen[ip] = true
			}
		}
		if len(seen) != all || waiting == "" {
			t.Fatalf("%d pods have an address, want %d", len(seen), all)
		}
		other := "p0"
		if waiting == other {
			other = "p1"
		}
		r.delete(other, 0)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !isReady(r.pod(waiting)) {
			t.Errorf("the pod that waited is %+v", r.pod(waiting).Status)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// keep runs the node lifecycle controller beside the fleet.
func (r *rig) keep() (stop func()) {
	g := run.NewGroup(r.Context(), 0)
	g.Go(func(ctx context.Context) {
		if err := run.Stages(ctx, nodelifecycle.Tasks(nodelifecycle.Options{Config: controller.Config{Client: r.api, Log: slog.New(slog.DiscardHandler)}})); err != nil {
			r.Errorf("controllers: %v", err)
		}
	})
	return g.Stop
}

func TestANodeThatIsCutOffIsLostAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		// So many that leases last longer than the controller's patience.
		const n = 170
		r.plan = simulation.Uniform("n", n)
		stop := r.start()
		defer stop()
		defer r.keep()()
		synctest.Wait()
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		for _, node := range clienttest.All(r.api, client.Nodes, "") {
			if nodeReady(node) != corev1.ConditionTrue {
				t.Fatalf("node %s is not Ready though it is well", node.Name)
			}
		}
		r.create(newPod("stays", "n-3"))
		r.create(newPod("leaves", "n-3", func(p *corev1.Pod) {
			s := int64(10)
			p.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &s}}
		}))
		r.create(newPod("vanishes", "n-3"))
		synctest.Wait()
		r.fail("n-3", true)
		time.Sleep(39 * time.Second)
		synctest.Wait()
		if s := nodeReady(r.node("n-3")); s != corev1.ConditionTrue {
			t.Errorf("after 39 s without a word Ready is %s, want True still", s)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := nodeReady(r.node("n-3")); s != corev1.ConditionUnknown {
			t.Errorf("after 41 s without a word Ready is %s, want Unknown", s)
		}
		r.delete("vanishes", 0)
		r.create(newPod("late", "n-3"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if p := r.pod("leaves"); p == nil || p.DeletionTimestamp == nil || isReady(p) {
			t.Errorf("a pod that tolerates 10 s is %+v, want it terminating: its node can't say that it has ended", p)
		}
		if p := r.pod("late"); p.Status.Phase != corev1.PodPending || p.Status.StartTime != nil {
			t.Errorf("a pod that was bound to a node that is cut off is %+v", p.Status)
		}
		if isReady(r.pod("stays")) {
			t.Error("a pod on a lost node is ready")
		}
		r.fail("n-3", false)
		time.Sleep(time.Second)
		synctest.Wait()
		node := r.node("n-3")
		if nodeReady(node) != corev1.ConditionTrue || len(node.Spec.Taints) != 0 {
			t.Errorf("the node is back, and is %+v %+v", node.Spec, node.Status.Conditions)
		}
		if r.pod("leaves") != nil || r.pod("vanishes") != nil {
			t.Error("pods that were deleted meanwhile are there")
		}
		if !isReady(r.pod("late")) || !isReady(r.pod("stays")) {
			t.Errorf("pods are %+v and %+v, want them ready", r.pod("late").Status, r.pod("stays").Status)
		}
		if ip := r.pod("late").Status.PodIP; ip == "" || ip == r.pod("stays").Status.PodIP {
			t.Errorf("the late pod has the address %q", ip)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if s := nodeReady(r.node("n-3")); s != corev1.ConditionTrue {
			t.Errorf("three minutes later Ready is %s", s)
		}
	})
}

func TestACutNodeStaysCutOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "")
		stop := r.start()
		r.create(newPod("p", "n-1"))
		synctest.Wait()
		r.fail("n-1", true)
		stop()
		r.delete("p", 0)
		r.api.Writes() // forget what was
		stop = r.start()
		defer stop()
		r.create(newPod("q", "n-1"))
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, w := range r.api.Writes() {
			if w.Resource == "nodes" || w.Resource == "pods" && w.Verb != "create" {
				t.Errorf("a node that is cut off wrote %v", w)
			}
		}
		r.fail("n-1", false)
		if !isReady(r.pod("q")) {
			t.Errorf("pod is %+v", r.pod("q").Status)
		}
	})
}

func TestADeletedNodeStaysAway(t *testing.T) {
	inBubble(t, "", func(r *rig) {
		if err := client.Nodes.Delete(r.Context(), r.api, "", "n-0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if r.node("n-0") != nil {
			t.Error("the node is back without having been asked for")
		}
		// A client creates it again.
		if _, err := client.Nodes.Create(r.Context(), r.api, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-0"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := r.node("n-0"); nodeReady(n) != corev1.ConditionTrue || n.Status.Capacity.Cpu().IsZero() {
			t.Errorf("the node that was made by hand is %+v", n.Status)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := nodes.New(nodes.Options{})
	for _, want := range []string{"Client is nil", "As is nil", "Plan is nil"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New = %v, want %q in it", err, want)
		}
	}
	_, err = nodes.New(nodes.Options{Plan: simulation.Uniform("n", 5000), PodNetworks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}})
	if err == nil || !strings.Contains(err.Error(), "10.1.0.0/16 is too small for 5000 nodes with a /24 each") {
		t.Errorf("New = %v", err)
	}
}
