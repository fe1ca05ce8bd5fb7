package node_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/reserved"
	"github.com/sampan-io/sampan/simulation/simulated"
)

func withHostPort(p *corev1.Pod) {
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: corev1.ProtocolTCP}}
}

func selecting(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
}

// label writes a label of the node.
func (r *rig) label(key, value string) {
	r.Helper()
	n := clienttest.Find(r.api, client.Nodes, "", "n1").DeepCopy()
	n.Labels[key] = value
	if _, err := client.Nodes.Update(r.Context(), r.api, n, ""); err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}

func (r *rig) delete(name string) {
	r.Helper()
	if err := client.Pods.Delete(r.Context(), r.api, "default", name, metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
}

// A pod with the API server's port as its host port would get the connections of administrators.
func TestPodWithPortOfTheClusterIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.OwnPorts = reserved.TCP(8080)
		stop := r.start()
		<-r.node.Ready()
		r.create(webPod("web", withHostPort))
		s := r.await("web", "rejected", inPhase(corev1.PodFailed)).Status
		if want := "Pod was rejected: Predicate NodePorts failed: host port 8080/TCP is a port of the cluster itself"; s.Reason != "NodePorts" || s.Message != want {
			t.Errorf("status is %s: %s, want NodePorts: %s", s.Reason, s.Message, want)
		}
		synctest.Wait()
		stop()
	})
}

// Requests whose sum does not fit an int64 must not look small.
func TestAdmissionRejectsEnormousRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		stop := r.start()
		<-r.node.Ready()
		for i, list := range []corev1.ResourceList{
			{corev1.ResourceCPU: resource.MustParse("7E")},
			{corev1.ResourceMemory: resource.MustParse("7Ei")},
			{corev1.ResourceEphemeralStorage: resource.MustParse("7Ei")},
		} {
			name := fmt.Sprint("large-", i)
			r.create(webPod(name, func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests = list
				for range 3 {
					c := *p.Spec.Containers[0].DeepCopy()
					c.Name += fmt.Sprint(len(p.Spec.Containers))
					p.Spec.Containers = append(p.Spec.Containers, c)
				}
			}))
			r.await(name, "rejected", inPhase(corev1.PodFailed))
		}
		// What they asked for was not taken.
		r.create(webPod("web", func(*corev1.Pod) {}))
		r.await("web", "ready", isReady)
		stop()
	})
}

func TestAdmissionRejectsUsedHostPort(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(webPod("first", withHostPort))
		r.await("first", "ready", isReady)
		r.create(webPod("second", withHostPort))
		s := r.await("second", "rejected", inPhase(corev1.PodFailed)).Status
		if want := "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"; s.Reason != "NodePorts" || s.Message != want {
			t.Errorf("status is %s: %s, want NodePorts: %s", s.Reason, s.Message, want)
		}
		if s.StartTime == nil || s.PodIP != "" || len(s.ContainerStatuses) != 0 || len(s.Conditions) != 0 || s.QOSClass != corev1.PodQOSBestEffort {
			t.Errorf("status of the rejected pod is %+v", s)
		}
		synctest.Wait()
		r.wantEvents("Pulled", "Created", "Started", "NodePorts")
		if e := r.events()[3]; e.Type != corev1.EventTypeWarning || e.Message != "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports" {
			t.Errorf("event is %s %q", e.Type, e.Message)
		}
		if sandboxes, _ := r.rt.ListPodSandbox(t.Context(), nil); len(sandboxes) != 1 {
			t.Errorf("%d sandboxes, want that of the first pod", len(sandboxes))
		}
		// What its controller does now: it deletes the pod and makes a new one.
		r.delete("first")
		r.await("first", "gone", gone)
		r.delete("second")
		r.await("second", "gone", gone)
		r.create(webPod("second", withHostPort))
		r.await("second", "ready", isReady)
	})
}

func TestAdmissionRejectsPodsThatNeedAnotherFeature(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(webPod("mapped", func(p *corev1.Pod) { p.Spec.HostNetwork, p.Spec.HostUsers = true, new(false) }))
		s := r.await("mapped", "rejected", inPhase(corev1.PodFailed)).Status
		if want := "Pod was rejected: Pod requires node features that are not available: UserNamespacesHostNetworkSupport"; s.Reason != "PodFeatureUnsupported" || s.Message != want {
			t.Errorf("status is %s: %s, want PodFeatureUnsupported: %s", s.Reason, s.Message, want)
		}
		r.create(webPod("restarting", func(p *corev1.Pod) {
			p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
				Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
			}}
		}))
		r.await("restarting", "ready", isReady)
	})
}

func TestAdmissionIgnoresEndedAndDeletedPods(t *testing.T) {
	most := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
		stop := r.start()
		defer stop()
		<-r.node.Ready()
		r.create(webPod("build", most, func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyNever
			p.Annotations = map[string]string{simulated.RunSeconds: "2"}
		}))
		r.await("build", "running", inPhase(corev1.PodRunning))
		r.create(webPod("early", most))
		if s := r.await("early", "rejected", inPhase(corev1.PodFailed)).Status; s.Reason != "OutOfcpu" ||
			s.Message != "Pod was rejected: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000" {
			t.Errorf("status is %s: %s", s.Reason, s.Message)
		}
		r.await("build", "succeeded", inPhase(corev1.PodSucceeded))
		r.create(webPod("late", most))
		r.await("late", "ready", isReady)
		zero := int64(0)
		if err := client.Pods.Delete(t.Context(), r.api, "default", "late", metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.create(webPod("last", most))
		r.await("last", "ready", isReady)
	})
}

func TestAdmissionKeepsPodsOverRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		stop := r.start()
		<-r.node.Ready()
		r.label("zone", "a")
		r.create(webPod("runs", withHostPort, selecting("zone", "a")))
		r.await("runs", "ready", isReady)
		r.create(webPod("rejected", withHostPort))
		rejected := r.await("rejected", "rejected", inPhase(corev1.PodFailed))
		stop()

		r.label("zone", "b")
		// Pods that come while there is no agent: the older one gets the port.
		port := func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 9090}} }
		r.create(webPod("z-older", port))
		time.Sleep(time.Second)
		r.create(webPod("a-younger", port))
		r.api.Writes()
		stop = r.start()
		defer stop()
		r.await("z-older", "ready", isReady)
		r.await("a-younger", "rejected", inPhase(corev1.PodFailed))
		synctest.Wait()
		if p := r.pod("runs"); !isReady(p) {
			t.Errorf("the pod that ran before is %s", brief(p))
		}
		if now := r.pod("rejected"); now.ResourceVersion != rejected.ResourceVersion {
			t.Errorf("the status of a rejected pod was written again: %+v", now.Status)
		}
	})
}

func TestAdmissionReadsNewNodeLabels(t *testing.T) {
	inBubble(t, func(r *rig) {
		late := errors.New("too many requests")
		r.api.Intercept(func(q clienttest.Request) error {
			if q.Resource == "nodes" && (q.Verb == "list" || q.Verb == "watch") {
				return late
			}
			return nil
		})
		r.api.BreakWatches(late)
		r.label("zone", "a")
		r.create(webPod("fits", selecting("zone", "a")))
		r.await("fits", "ready", isReady)
		r.create(webPod("misfits", selecting("zone", "b")))
		if s := r.await("misfits", "rejected", inPhase(corev1.PodFailed)).Status; s.Reason != "NodeAffinity" {
			t.Errorf("status is %s: %s", s.Reason, s.Message)
		}
	})
}
