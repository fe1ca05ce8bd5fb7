package node_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node"
	"github.com/sampan-io/sampan/simulation/simulated"
)

// A rig is an agent on a simulated runtime before a modelled API server, in a
// bubble of fake time.
type rig struct {
	*testing.T
	api  *clienttest.Server
	rt   *simulated.Runtime
	node *node.Node
	opts node.Options
	crew *run.Group

	before func(*node.Node) // called before an agent runs; may be nil
}

// newRig returns a rig whose agent has not started.
func newRig(t *testing.T, objs ...client.Object) *rig {
	rt, err := simulated.New(simulated.Options{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, api: clienttest.New(t, objs...), rt: rt}
	r.opts = node.Options{
		Client: r.api, Name: "n1", Runtime: rt, PodCIDRs: []string{"10.1.0.0/16"},
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeHostName, Address: "n1"}},
		Log:       slog.New(slog.DiscardHandler),
	}
	return r
}

// start runs an agent until the returned function is called.
func (r *rig) start() (stop func()) {
	r.Helper()
	var err error
	if r.node, err = node.New(r.opts); err != nil {
		r.Fatal(err)
	}
	if r.before != nil {
		r.before(r.node)
	}
	r.crew = run.NewGroup(r.Context(), 0)
	crew, n := r.crew, r.node
	crew.Go(func(ctx context.Context) {
		if err := n.Run(ctx); err != nil {
			r.Errorf("Run: %v", err)
		}
	})
	return crew.Stop
}

// inBubble runs f with an agent that has started.
func inBubble(t *testing.T, f func(r *rig), objs ...client.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, objs...)
		stop := r.start()
		<-r.node.Ready()
		f(r)
		stop()
	})
}

func webPod(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	grace := int64(30)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Generation: 1, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName: "n1", RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &grace, DNSPolicy: corev1.DNSDefault,
			Containers: []corev1.Container{{Name: "web", Image: "demo:v1", ImagePullPolicy: corev1.PullIfNotPresent}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort},
	}
	for _, f := range edit {
		f(p)
	}
	return p
}

// create makes a pod through the API and returns it.
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

// await waits until is returns true for the pod; nil means that the pod is deleted.
func (r *rig) await(name, what string, is func(*corev1.Pod) bool) *corev1.Pod {
	r.Helper()
	r.api.Await(r, func() error {
		if p := r.pod(name); !is(p) {
			return fmt.Errorf("%s is not %s: %s", name, what, brief(p))
		}
		return nil
	})
	return r.pod(name)
}

func isReady(p *corev1.Pod) bool {
	return p != nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func waits(reason string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		return p != nil && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting != nil && p.Status.ContainerStatuses[0].State.Waiting.Reason == reason
	}
}

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return p != nil && p.Status.Phase == phase }
}

func gone(p *corev1.Pod) bool { return p == nil }

func brief(p *corev1.Pod) string {
	if p == nil {
		return "gone"
	}
	return fmt.Sprintf("%s %+v %+v", p.Status.Phase, p.Status.Conditions, p.Status.ContainerStatuses)
}

func TestNodeRegistersAndIsReady(t *testing.T) {
	inBubble(t, func(r *rig) {
		n := clienttest.Find(r.api, client.Nodes, "", "n1")
		if n.Labels["kubernetes.io/hostname"] != "n1" || n.Labels["kubernetes.io/os"] != "linux" || n.Spec.PodCIDR != "10.1.0.0/16" {
			t.Errorf("node is %+v %+v", n.Labels, n.Spec)
		}
		if n.Status.Capacity.Pods().Value() != 110 || n.Status.Capacity.Cpu().IsZero() || n.Status.Allocatable.Memory().IsZero() {
			t.Errorf("capacity is %v", n.Status.Capacity)
		}
		if n.Status.NodeInfo.ContainerRuntimeVersion != "simulated://1.0.0" || n.Status.NodeInfo.KernelVersion == "" {
			t.Errorf("node info is %+v", n.Status.NodeInfo)
		}
		if want := []string{
			"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits",
		}; !slices.Equal(n.Status.DeclaredFeatures, want) {
			t.Errorf("declared features are %q, want %q", n.Status.DeclaredFeatures, want)
		}
		synctest.Wait()
		l := clienttest.Find(r.api, client.Leases, "kube-node-lease", "n1")
		if l == nil || *l.Spec.LeaseDurationSeconds != 40 || l.OwnerReferences[0].UID != n.UID {
			t.Fatalf("lease is %+v", l)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if again := clienttest.Find(r.api, client.Leases, "kube-node-lease", "n1"); again.Spec.RenewTime.Sub(l.Spec.RenewTime.Time) != 10*time.Second {
			t.Errorf("lease was renewed at %v, after %v", again.Spec.RenewTime, l.Spec.RenewTime)
		}
	})
}

// TestNodeFromBeforeDeclaresItsFeatures has a node that another version of the agent has registered, without features.
func TestNodeFromBeforeDeclaresItsFeatures(t *testing.T) {
	inBubble(t, func(r *rig) {
		patch := []byte(`{"status":{"declaredFeatures":null}}`)
		if n, err := client.Nodes.Patch(t.Context(), r.api, "", "n1", types.MergePatchType, patch, "status"); err != nil || n.Status.DeclaredFeatures != nil {
			t.Fatalf("%v, %v", n, err)
		}
		r.api.Await(t, func() error {
			if n := clienttest.Find(r.api, client.Nodes, "", "n1"); len(n.Status.DeclaredFeatures) == 0 {
				return errors.New("the node declares nothing")
			}
			return nil
		})
	})
}

func TestIdleNodeWritesOnlyLeaseAndHeartbeat(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(webPod("web"))
		r.await("web", "ready", isReady)
		time.Sleep(time.Minute)
		synctest.Wait()
		r.api.Writes()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		count := map[string]int{}
		for _, w := range r.api.Writes() {
			count[w.Verb+" "+w.Resource+"/"+w.Subresource]++
		}
		if count["update leases/"] != 60 || count["patch nodes/status"] != 2 || len(count) != 2 {
			t.Errorf("in ten minutes an idle node wrote %v", count)
		}
	})
}

func TestNodeRegistersAgainWhenDeleted(t *testing.T) {
	inBubble(t, func(r *rig) {
		old := clienttest.Find(r.api, client.Nodes, "", "n1")
		if err := client.Nodes.Delete(t.Context(), r.api, "", "n1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.api.Await(t, func() error {
			if n := clienttest.Find(r.api, client.Nodes, "", "n1"); n == nil || n.UID == old.UID {
				return errors.New("not there again")
			}
			return nil
		})
	})
}

func TestPodRunsAndReportsItsStatus(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.api.Writes()
		r.create(webPod("web"))
		p := r.await("web", "ready", isReady)
		s := p.Status
		if s.Phase != corev1.PodRunning || !strings.HasPrefix(s.PodIP, "10.1.") || len(s.PodIPs) != 1 || s.HostIP != "192.0.2.1" || len(s.HostIPs) != 1 {
			t.Errorf("status is %+v", s)
		}
		if s.StartTime == nil || s.ObservedGeneration != p.Generation || s.QOSClass != corev1.PodQOSBestEffort {
			t.Errorf("status is %+v", s)
		}
		c := s.ContainerStatuses[0]
		if c.State.Running == nil || !c.Ready || !*c.Started || c.RestartCount != 0 || !strings.HasPrefix(c.ContainerID, "simulated://") || c.Image != "demo:v1" || c.ImageID == "" {
			t.Errorf("container status is %+v", c)
		}
		if n := r.statusPatches(); n != 1 {
			t.Errorf("a quick start took %d status patches, want 1", n)
		}
		synctest.Wait()
		r.wantEvents("Pulled", "Created", "Started")
	})
}

// statusPatches returns how many patches of pods the agent has sent since the writes were read last.
func (r *rig) statusPatches() (n int) {
	for _, w := range r.api.Writes() {
		if w.Verb == "patch" && w.Resource == "pods" && w.Subresource == "status" {
			n++
		}
	}
	return n
}

// TestReplacedContainerIsReportedOnce checks that a pod whose container has to be replaced is not reported as unready, and does not
// get a status of its new generation, before the new container runs.
func TestReplacedContainerIsReportedOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(webPod("web"))
		r.await("web", "ready", isReady)
		r.api.Writes()
		if _, err := client.Pods.Patch(r.Context(), r.api, "default", "web", types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"web","image":"demo:v2"}]}}`), ""); err != nil {
			t.Fatal(err)
		}
		p := r.await("web", "restarted", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 1 })
		if c := p.Status.ContainerStatuses[0]; !isReady(p) || c.State.Running == nil || c.Image != "demo:v2" || p.Status.ObservedGeneration != p.Generation {
			t.Errorf("status is %+v of generation %d", p.Status, p.Generation)
		}
		if n := r.statusPatches(); n != 1 {
			t.Errorf("a quick replacement took %d status patches, want 1", n)
		}
	})
}

// TestSimulatedPodWithInitContainersAndHostPath checks that such a pod becomes
// ready: nothing would end an init container, and no file of the host is touched.
func TestSimulatedPodWithInitContainersAndHostPath(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(webPod("web", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/no/such/directory"}}}}
			mounts := []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
			p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "demo:v1", VolumeMounts: mounts}, {Name: "second", Image: "demo:v1"}}
			p.Spec.Containers[0].VolumeMounts = mounts
		}))
		s := r.await("web", "ready", isReady).Status
		for _, c := range s.InitContainerStatuses {
			if end := c.State.Terminated; end == nil || end.ExitCode != 0 || c.RestartCount != 0 {
				t.Errorf("init container %s is in state %+v after %d restarts", c.Name, c.State, c.RestartCount)
			}
		}
		if len(s.InitContainerStatuses) != 2 || s.ContainerStatuses[0].State.Running == nil {
			t.Errorf("status is %+v", s)
		}
	})
}

// wantEvents checks the reasons of all events about pods, in order.
func (r *rig) wantEvents(reasons ...string) {
	r.Helper()
	var got []string
	for _, e := range r.events() {
		got = append(got, e.Reason)
	}
	if !slices.Equal(got, reasons) {
		r.Errorf("events are %q, want %q", got, reasons)
	}
}

func (r *rig) events() []*corev1.Event {
	all := clienttest.All(r.api, client.Events, "default")
	all = slices.DeleteFunc(all, func(e *corev1.Event) bool { return e.InvolvedObject.Kind != "Pod" })
	slices.SortFunc(all, func(a, b *corev1.Event) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func TestCrashingContainerBacksOff(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(webPod("web", func(p *corev1.Pod) {
			p.Annotations = map[string]string{simulated.RunSeconds: "1", simulated.ExitCode: "3"}
		}))
		p := r.await("web", "in back-off", waits("CrashLoopBackOff"))
		c := p.Status.ContainerStatuses[0]
		if c.RestartCount != 1 || c.LastTerminationState.Terminated == nil || c.LastTerminationState.Terminated.ExitCode != 3 || c.LastTerminationState.Terminated.Reason != "Error" {
			t.Errorf("status is %+v", c)
		}
		if want := "back-off 10s restarting failed container=web pod=web_default(" + string(p.UID) + ")"; c.State.Waiting.Message != want {
			t.Errorf("message is %q, want %q", c.State.Waiting.Message, want)
		}
		before := time.Now()
		r.await("web", "restarted", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 2 })
		if waited := time.Since(before); waited < 9*time.Second || waited > 11*time.Second {
			t.Errorf("restarted after %v", waited)
		}
		synctest.Wait()
		r.wantEvents("Pulled", "Created", "Started", "BackOff")
		if n := r.events()[2].Count; n != 3 {
			t.Errorf("Started is counted %d times, want 3", n)
		}
		// The first restart does not wait.
		if n := r.events()[3].Count; n != 1 {
			t.Errorf("BackOff is counted %d times, want 1", n)
		}
	})
}

func TestImageThatCannotBePulled(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(webPod("web", func(p *corev1.Pod) {
			p.Annotations = map[string]string{simulated.PullError: "there is no image demo:v1"}
			p.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
		}))
		r.await("web", "in ErrImagePull", waits("ErrImagePull"))
		p := r.await("web", "in ImagePullBackOff", waits("ImagePullBackOff"))
		if want := `Back-off pulling image "demo:v1": ErrImagePull: there is no image demo:v1`; p.Status.ContainerStatuses[0].State.Waiting.Message != want {
			t.Errorf("message is %q, want %q", p.Status.ContainerStatuses[0].State.Waiting.Message, want)
		}
		synctest.Wait()
		r.wantEvents("Pulling", "Failed", "Failed", "BackOff", "Failed")
		if err := client.Pods.Delete(t.Context(), r.api, "default", "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.await("web", "gone", gone)
	})
}

func TestInvalidImageName(t *testing.T) {
	inBubble(t, func(r *rig) {
		for i, image := range []string{"UPPER CASE", "registry.test//web:v1", "team/"} {
			name := fmt.Sprint("web-", i)
			r.create(webPod(name, func(p *corev1.Pod) { p.Spec.Containers[0].Image = image }))
			r.await(name, "in InvalidImageName", waits("InvalidImageName"))
		}
	})
}

func TestJobPodSucceedsAndReleasesItsAddress(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(webPod("build", func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			p.Annotations = map[string]string{simulated.RunSeconds: "2"}
		}))
		r.await("build", "running", inPhase(corev1.PodRunning))
		p := r.await("build", "succeeded", inPhase(corev1.PodSucceeded))
		if p.Status.PodIP == "" || p.Status.ContainerStatuses[0].State.Terminated.Reason != "Completed" {
			t.Errorf("status is %+v", p.Status)
		}
		synctest.Wait()
		sandboxes, err := r.rt.ListPodSandbox(t.Context(), nil)
		if err != nil || len(sandboxes) != 1 || sandboxes[0].GetState() != 1 {
			t.Errorf("sandboxes are %v, %v; want one that is stopped", sandboxes, err)
		}
	})
}

func TestDeletedPodIsDrainedStoppedAndRemoved(t *testing.T) {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, ClusterIP: "10.96.0.9", Ports: []corev1.ServicePort{{Port: 80}}},
	}
	inBubble(t, func(r *rig) {
		r.create(webPod("web"))
		r.create(webPod("alone", func(p *corev1.Pod) { p.Labels = nil }))
		r.await("web", "ready", isReady)
		r.await("alone", "ready", isReady)
		for name, pause := range map[string]time.Duration{"web": 200 * time.Millisecond, "alone": 0} {
			if err := client.Pods.Delete(t.Context(), r.api, "default", name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			before := time.Now()
			r.await(name, "gone", gone)
			if took := time.Since(before); took != pause {
				t.Errorf("%s was drained for %v, want %v", name, took, pause)
			}
		}
		synctest.Wait()
		if left, _ := r.rt.ListPodSandbox(t.Context(), nil); len(left) != 0 {
			t.Errorf("left in the runtime: %v", left)
		}
	}, svc)
}

func TestPodsAreAdoptedAndOrphansEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		stop := r.start()
		for _, name := range []string{"stays", "goes", "crashed"} {
			r.create(webPod(name))
			r.await(name, "ready", isReady)
		}
		stay := r.pod("stays")
		stop()
		// While no agent runs, one pod is deleted by force and one crashes.
		zero := int64(0)
		if err := client.Pods.Delete(t.Context(), r.api, "default", "goes", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
			t.Fatal(err)
		}
		r.rt.Exit("default", "crashed", "web", 7)
		if left, _ := r.rt.ListPodSandbox(t.Context(), nil); len(left) != 3 {
			t.Fatalf("%d pods run without an agent, want 3", len(left))
		}
		r.api.Writes()
		stop = r.start()
		p := r.await("crashed", "restarted", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 1 && isReady(p) })
		if last := p.Status.ContainerStatuses[0].LastTerminationState.Terminated; last == nil || last.ExitCode != 7 {
			t.Errorf("the exit that nobody saw is told as %+v", last)
		}
		synctest.Wait()
		if left, _ := r.rt.ListPodSandbox(t.Context(), nil); len(left) != 2 {
			t.Errorf("%d pods run, want 2", len(left))
		}
		for _, w := range r.api.Writes() {
			if w.Resource == "pods" && w.Name == "stays" {
				t.Errorf("the pod that just went on was written to: %v", w)
			}
		}
		if now := r.pod("stays"); now.Status.ContainerStatuses[0].ContainerID != stay.Status.ContainerStatuses[0].ContainerID {
			t.Error("the pod that was to go on has another container")
		}
		stop()
	})
}

// A new agent forgets the back-off of containers, as kubelet does: after a crash of the host their pods start at once.
func TestNewAgentForgetsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		stop := r.start()
		r.create(webPod("web", func(p *corev1.Pod) {
			p.Annotations = map[string]string{simulated.RunSeconds: "1", simulated.ExitCode: "3"}
		}))
		restarts := func(n int32) func(*corev1.Pod) bool {
			return func(p *corev1.Pod) bool {
				c := p.Status.ContainerStatuses
				return len(c) > 0 && c[0].RestartCount == n && c[0].State.Waiting != nil && c[0].State.Waiting.Reason == "CrashLoopBackOff"
			}
		}
		r.await("web", "in its second back-off", restarts(2))
		stop()
		stop = r.start()
		before := time.Now()
		p := r.await("web", "in back-off again", restarts(3))
		if waited := time.Since(before); waited > 2*time.Second {
			t.Errorf("restarted after %v, want at once", waited)
		}
		if want := "back-off 10s restarting failed container=web pod=web_default(" + string(p.UID) + ")"; p.Status.ContainerStatuses[0].State.Waiting.Message != want {
			t.Errorf("message is %q, want %q", p.Status.ContainerStatuses[0].State.Waiting.Message, want)
		}
		stop()
	})
}

// TestPodsGoOnWithoutTheAPIServer has the API server away for ten minutes, in which one container ends.
func TestPodsGoOnWithoutTheAPIServer(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(webPod("web"))
		r.create(webPod("other"))
		r.await("web", "ready", isReady)
		other := r.await("other", "ready", isReady)
		down := errors.New("connection refused")
		r.api.Intercept(func(clienttest.Request) error { return down })
		r.api.BreakWatches(down)
		r.rt.Exit("default", "web", "web", 1)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		list, err := r.rt.ListContainers(t.Context(), nil)
		if err != nil || !slices.ContainsFunc(list, func(c *cri.Container) bool { return c.GetMetadata().GetAttempt() == 1 && c.GetState() == 1 }) {
			t.Errorf("not restarted without the API server: %v %v", list, err)
		}
		r.api.Intercept(nil)
		back := time.Now()
		r.await("web", "known as restarted", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 1 && isReady(p) })
		time.Sleep(39 * time.Second) // the grace period of the node lifecycle controller
		synctest.Wait()
		if now := r.pod("other"); now.ResourceVersion != other.ResourceVersion {
			t.Errorf("the status of the other pod was %+v, and is %+v", other.Status, now.Status)
		}
		if lease := clienttest.Find(r.api, client.Leases, corev1.NamespaceNodeLease, "n1"); lease.Spec.RenewTime.Time.Before(back) {
			t.Errorf("the lease was renewed at %v, the server is back since %v", lease.Spec.RenewTime, back)
		}
		for _, c := range clienttest.Find(r.api, client.Nodes, "", "n1").Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				t.Errorf("the node is %+v", c)
			}
		}
	})
}

func TestPodWaitsForMissingConfigMap(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(webPod("web", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "c", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "c", MountPath: "/c"}}
			p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "key"}}}}
		}))
		r.await("web", "waiting", waits("ContainerCreating"))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		e := r.events()
		if len(e) != 1 || e[0].Reason != "FailedMount" || e[0].Message != `MountVolume.SetUp failed for volume "c" : configmap "settings" not found` {
			t.Errorf("events are %v", e)
		}
		r.api.Set(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "settings"}})
		before := time.Now()
		p := r.await("web", "in CreateContainerConfigError", waits("CreateContainerConfigError"))
		if m := p.Status.ContainerStatuses[0].State.Waiting.Message; m != `secret "key" not found` {
			t.Errorf("message is %q", m)
		}
		r.api.Set(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "key"}})
		r.await("web", "ready", isReady)
		if took := time.Since(before); took > time.Second {
			t.Errorf("what appeared was noticed after %v", took)
		}
	})
}

func TestReadinessProbeHoldsThePodBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(webPod("web", func(p *corev1.Pod) {
			p.Annotations = map[string]string{simulated.Unready: "not yet"}
			p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 2, FailureThreshold: 1}
		}))
		r.create(webPod("slow", func(p *corev1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{InitialDelaySeconds: 20, PeriodSeconds: 2}
		}))
		before := time.Now()
		r.await("slow", "ready", isReady)
		if took := time.Since(before); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("ready after %v", took)
		}
		p := r.await("web", "running", inPhase(corev1.PodRunning))
		if isReady(p) {
			t.Error("ready although its probe fails")
		}
		synctest.Wait()
		r.wantEvents("Pulled", "Created", "Started", "Pulled", "Created", "Started", "Unhealthy")
		if e := r.events()[6]; e.Message != "Readiness probe failed: not yet" || e.Count < 8 {
			t.Errorf("event is %v", e)
		}
		if n := clienttest.Find(r.api, client.Pods, "default", "web"); n.Status.ContainerStatuses[0].Ready {
			t.Error("the container is told as ready")
		}
	})
}

func TestActiveDeadline(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(webPod("web", func(p *corev1.Pod) { s := int64(60); p.Spec.ActiveDeadlineSeconds = &s }))
		r.await("web", "ready", isReady)
		before := time.Now()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if !isReady(r.pod("web")) {
			t.Errorf("ended after %v", time.Since(before))
		}
		p := r.await("web", "failed", inPhase(corev1.PodFailed))
		if p.Status.Reason != "DeadlineExceeded" {
			t.Errorf("status is %+v", p.Status)
		}
	})
}

func TestThousandPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		r := newRig(t)
		r.opts.MaxPods = n
		stop := r.start()
		defer stop()
		<-r.node.Ready()
		for i := range n {
			r.create(webPod(fmt.Sprintf("web-%d", i)))
		}
		addresses := map[string]bool{}
		for i := range n {
			p := r.await(fmt.Sprintf("web-%d", i), "ready", isReady)
			addresses[p.Status.PodIP] = true
		}
		if len(addresses) != n {
			t.Errorf("%d pods have %d addresses", n, len(addresses))
		}
	})
}
