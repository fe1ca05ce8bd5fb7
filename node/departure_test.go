package node_test

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/proxy/applied"
)

// A drainRig is a service with its EndpointSlice, and the proxies that read it.
type drainRig struct {
	*rig
	slice *discoveryv1.EndpointSlice
}

// publish writes the endpoints: UID of a pod, and whether it is terminating.
func (h *drainRig) publish(terminating map[*corev1.Pod]bool) uint64 {
	h.Helper()
	next := h.slice.DeepCopy()
	next.Endpoints = nil
	for p, leaves := range terminating {
		next.Endpoints = append(next.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{p.Status.PodIP}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: p.Name, UID: p.UID},
			Conditions: discoveryv1.EndpointConditions{Ready: new(!leaves), Serving: new(true), Terminating: &leaves},
		})
	}
	var err error
	if h.slice, err = client.EndpointSlices.Update(h.Context(), h.api, next, ""); err != nil {
		h.Fatal(err)
	}
	revision, err := strconv.ParseUint(h.slice.ResourceVersion, 10, 64)
	if err != nil {
		h.Fatal(err)
	}
	return revision
}

// apply writes the revision that the proxy of a node has applied.
func (h *drainRig) apply(node string, revision uint64) {
	h.Helper()
	l := applied.Lease(node, revision, nil)
	old, err := client.Leases.Get(h.Context(), h.api, l.Namespace, l.Name)
	if err != nil {
		_, err = client.Leases.Create(h.Context(), h.api, l)
	} else {
		l.ResourceVersion = old.ResourceVersion
		_, err = client.Leases.Update(h.Context(), h.api, l, "")
	}
	if err != nil {
		h.Fatal(err)
	}
}

func (h *drainRig) delete(p *corev1.Pod) {
	h.Helper()
	if err := client.Pods.Delete(h.Context(), h.api, p.Namespace, p.Name, metav1.DeleteOptions{}); err != nil {
		h.Fatal(err)
	}
}

// stays fails the test if the pod ends within d.
func (h *drainRig) stays(p *corev1.Pod, d time.Duration) {
	h.Helper()
	time.Sleep(d) // fake time
	synctest.Wait()
	if now := h.pod(p.Name); now == nil || now.UID != p.UID {
		h.Errorf("%s was stopped too early", p.Name)
	}
}

// withService runs f with three ready pods behind a service.
func withService(t *testing.T, f func(h *drainRig, a, b, c *corev1.Pod)) {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, ClusterIP: "10.96.0.9", Ports: []corev1.ServicePort{{Port: 80}}},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-1", Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	inBubble(t, func(r *rig) {
		h := &drainRig{rig: r}
		var err error
		if h.slice, err = client.EndpointSlices.Get(r.Context(), r.api, "default", "web-1"); err != nil {
			t.Fatal(err)
		}
		var pods []*corev1.Pod
		for _, name := range []string{"a", "b", "c"} {
			r.create(webPod(name))
			pods = append(pods, r.await(name, "ready", isReady))
		}
		f(h, pods[0], pods[1], pods[2])
	}, svc, slice)
}

func TestDrainEndsWhenEveryProxyHasReported(t *testing.T) {
	withService(t, func(h *drainRig, a, b, _ *corev1.Pod) {
		revision := h.publish(map[*corev1.Pod]bool{a: false, b: false})
		h.apply("n1", revision)
		h.apply("n2", revision)
		synctest.Wait()
		h.delete(a)
		h.stays(a, time.Second) // the endpoints say nothing yet
		revision = h.publish(map[*corev1.Pod]bool{a: true, b: false})
		h.apply("n1", revision)
		h.stays(a, time.Second) // one proxy of two
		began := time.Now()
		h.apply("n2", revision)
		h.await("a", "gone", gone)
		if took := time.Since(began); took != 0 {
			t.Errorf("the pod went on for %v after every proxy had taken it out", took)
		}
	})
}

func TestAProxyThatIsSilentIsWaitedForOnce(t *testing.T) {
	withService(t, func(h *drainRig, a, b, c *corev1.Pod) {
		revision := h.publish(map[*corev1.Pod]bool{a: false, b: false, c: false})
		h.apply("n1", revision)
		h.apply("n2", revision)
		synctest.Wait()
		began := time.Now()
		h.delete(a)
		h.apply("n1", h.publish(map[*corev1.Pod]bool{a: true, b: false, c: false}))
		h.await("a", "gone", gone)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the pod went on for %v, want the limit", took)
		}
		h.delete(b)
		began = time.Now()
		revision = h.publish(map[*corev1.Pod]bool{b: true, c: false})
		h.apply("n1", revision)
		h.await("b", "gone", gone)
		if took := time.Since(began); took != 0 {
			t.Errorf("the silent proxy was waited for again, for %v", took)
		}
	})
}

func TestTheLastPodServesUntilAnotherIsReady(t *testing.T) {
	withService(t, func(h *drainRig, a, b, c *corev1.Pod) {
		h.apply("n1", h.publish(map[*corev1.Pod]bool{a: false}))
		synctest.Wait()
		h.delete(a)
		h.apply("n1", h.publish(map[*corev1.Pod]bool{a: true}))
		h.stays(a, 3*time.Second) // b and c are on their way into the endpoints
		h.apply("n1", h.publish(map[*corev1.Pod]bool{a: true, b: false}))
		h.await("a", "gone", gone)

		// Nothing is coming when all go at the same time.
		h.delete(b)
		h.delete(c)
		began := time.Now()
		h.apply("n1", h.publish(map[*corev1.Pod]bool{b: true, c: true}))
		h.await("b", "gone", gone)
		h.await("c", "gone", gone)
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("the last pods went on for %v", took)
		}
	})
}

func TestAPodThatCeasedToBeReadyIsHeldAsWell(t *testing.T) {
	withService(t, func(h *drainRig, a, _, _ *corev1.Pod) {
		const gate = "example.com/open"
		h.create(webPod("d", func(p *corev1.Pod) { p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}} }))
		open := func(status corev1.ConditionStatus) {
			p, err := client.Pods.Get(t.Context(), h.api, "default", "d")
			if err != nil {
				t.Fatal(err)
			}
			p = p.DeepCopy()
			p.Status.Conditions = append(slices.DeleteFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == gate }),
				corev1.PodCondition{Type: gate, Status: status})
			if _, err := client.Pods.Update(t.Context(), h.api, p, "status"); err != nil {
				t.Fatal(err)
			}
		}
		h.await("d", "running", inPhase(corev1.PodRunning))
		open(corev1.ConditionTrue)
		d := h.await("d", "ready", isReady)
		h.apply("n1", h.publish(map[*corev1.Pod]bool{a: false, d: false}))
		synctest.Wait()
		open(corev1.ConditionFalse)
		h.await("d", "not ready", func(p *corev1.Pod) bool { return !isReady(p) })
		h.delete(d)
		h.stays(d, time.Second) // its proxies do not know yet
		h.apply("n1", h.publish(map[*corev1.Pod]bool{a: false, d: true}))
		h.await("d", "gone", gone)
	})
}

func TestLessGraceHoldsAPodForLess(t *testing.T) {
	withService(t, func(h *drainRig, a, b, _ *corev1.Pod) {
		h.apply("n1", h.publish(map[*corev1.Pod]bool{a: false, b: false}))
		synctest.Wait()
		h.delete(a)
		h.stays(a, time.Second)
		began := time.Now()
		if err := client.Pods.Delete(t.Context(), h.api, "default", "a", metav1.DeleteOptions{GracePeriodSeconds: new(int64(2))}); err != nil {
			t.Fatal(err)
		}
		h.await("a", "gone", gone)
		if took := time.Since(began); took != time.Second {
			t.Errorf("the pod went on for %v, want half of its grace period", took)
		}
	})
}
