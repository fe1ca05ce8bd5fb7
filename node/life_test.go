package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/node/crispec"
)

// A scripted runtime is a simulated one whose commands a test answers, and that records what it is asked for. It answers no
// probes itself, so the agent runs them.
type scripted struct {
	criclient.Runtime
	exec func(cmd []string) int32 // the exit code

	mu    sync.Mutex
	calls []string // guarded by mu
	// limits has the resources that the runtime reports, by container; nil: it reports none.
	limits map[string]*cri.LinuxContainerResources
}

func (s *scripted) note(words ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, strings.Join(words, " "))
}

func (s *scripted) noted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func (s *scripted) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
}

// name returns the name of a container by its ID.
func (s *scripted) name(id string) string {
	status, err := s.ContainerStatus(context.Background(), id)
	if err != nil {
		return id
	}
	return status.GetMetadata().GetName()
}

func (s *scripted) ExecSync(_ context.Context, id string, cmd []string, _ time.Duration) (*cri.ExecSyncResponse, error) {
	s.note("exec", s.name(id), strings.Join(cmd, " "))
	return &cri.ExecSyncResponse{ExitCode: s.exec(cmd), Stdout: []byte("output")}, nil
}

func (s *scripted) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	s.note("stop", s.name(id), grace.String())
	return s.Runtime.StopContainer(ctx, id, grace)
}

func (s *scripted) UpdateContainerResources(ctx context.Context, id string, r *cri.LinuxContainerResources) error {
	s.note("update", s.name(id), resource.NewQuantity(r.GetMemoryLimitInBytes(), resource.BinarySI).String())
	if s.limits != nil {
		s.mu.Lock()
		s.limits[id] = r
		s.mu.Unlock()
	}
	return s.Runtime.UpdateContainerResources(ctx, id, r)
}

func (s *scripted) PodSandboxStatus(ctx context.Context, id string) (*cri.PodSandboxStatusResponse, error) {
	r, err := s.Runtime.PodSandboxStatus(ctx, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range r.GetContainersStatuses() {
		if l := s.limits[c.GetId()]; l != nil {
			c = proto.CloneOf(c)
			c.Resources = &cri.ContainerResources{Linux: l}
			r.ContainersStatuses[i] = c
		}
	}
	return r, err
}

// withScript runs f with an agent on a scripted runtime.
func withScript(t *testing.T, exec func(cmd []string) int32, f func(r *rig, s *scripted)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := &scripted{Runtime: r.rt, exec: exec}
		r.opts.Runtime = s
		stop := r.start()
		<-r.node.Ready()
		f(r, s)
		stop()
	})
}

func command(words ...string) *corev1.ExecAction { return &corev1.ExecAction{Command: words} }

func (r *rig) remove(name string) {
	r.Helper()
	if err := client.Pods.Delete(r.Context(), r.api, "default", name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(30))}); err != nil {
		r.Fatal(err)
	}
}

// awaitEvent waits for an event whose message begins so.
func (r *rig) awaitEvent(message string) {
	r.Helper()
	r.api.Await(r, func() error {
		for _, e := range r.events() {
			if strings.HasPrefix(e.Message, message) {
				return nil
			}
		}
		return fmt.Errorf("no event %q", message)
	})
}

func TestLivenessProbeRestartsContainer(t *testing.T) {
	withScript(t, func([]string) int32 { return 1 }, func(r *rig, s *scripted) {
		grace := int64(7)
		r.create(webPod("web", func(p *corev1.Pod) {
			p.Spec.Containers[0].LivenessProbe = &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{Exec: command("check")}, PeriodSeconds: 2, FailureThreshold: 2, TerminationGracePeriodSeconds: &grace,
			}
		}))
		r.await("web", "restarted", func(p *corev1.Pod) bool {
			return p != nil && len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount == 1
		})
		if want := []string{"exec web check", "exec web check", "stop web 7s"}; !slices.Equal(s.noted()[:3], want) {
			t.Errorf("calls %q, want %q", s.noted(), want)
		}
		for _, want := range []string{"Liveness probe failed: output", "Container web failed liveness probe, will be restarted"} {
			r.awaitEvent(want)
		}
	})
}

func TestStartupProbeHoldsBackOthers(t *testing.T) {
	var mu sync.Mutex
	started := false
	withScript(t, func(cmd []string) int32 {
		mu.Lock()
		defer mu.Unlock()
		if cmd[0] == "started" && !started {
			return 1
		}
		return 0
	}, func(r *rig, s *scripted) {
		r.create(webPod("web", func(p *corev1.Pod) {
			c := &p.Spec.Containers[0]
			c.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: command("started")}, PeriodSeconds: 1, FailureThreshold: 30}
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: command("ready")}, PeriodSeconds: 1}
		}))
		r.await("web", "running", inPhase(corev1.PodRunning))
		time.Sleep(10 * time.Second) // in the bubble
		if p := r.pod("web"); *p.Status.ContainerStatuses[0].Started || isReady(p) || slices.Contains(s.noted(), "exec web ready") {
			t.Errorf("before the startup probe: %s, calls %q, want neither started nor probed for readiness", brief(p), s.noted())
		}
		mu.Lock()
		started = true
		mu.Unlock()
		r.await("web", "ready", isReady)
	})
}

func TestHooksOfContainer(t *testing.T) {
	withScript(t, func(cmd []string) int32 {
		time.Sleep(4 * time.Second) // in the bubble
		return 0
	}, func(r *rig, s *scripted) {
		r.create(webPod("web", func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
				PostStart: &corev1.LifecycleHandler{Exec: command("begin")}, PreStop: &corev1.LifecycleHandler{Exec: command("end")},
			}
		}))
		r.await("web", "creating", waits("ContainerCreating"))
		r.await("web", "ready", isReady)
		r.remove("web")
		r.await("web", "gone", gone)
		if want := []string{"exec web begin", "exec web end", "stop web 26s"}; !slices.Equal(s.noted(), want) {
			t.Errorf("calls %q, want %q", s.noted(), want)
		}
	})
}

func TestFailedPostStartHookEndsContainer(t *testing.T) {
	withScript(t, func([]string) int32 { return 1 }, func(r *rig, _ *scripted) {
		r.create(webPod("web", func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: command("begin")}}
		}))
		r.await("web", "held back", waits("CrashLoopBackOff"))
		r.awaitEvent("PostStartHook failed")
		r.awaitEvent("FailedPostStartHook")
	})
}

func TestSidecarsEndLast(t *testing.T) {
	withScript(t, func([]string) int32 { return 0 }, func(r *rig, s *scripted) {
		always := corev1.ContainerRestartPolicyAlways
		r.create(webPod("web", func(p *corev1.Pod) {
			for _, name := range []string{"a", "b"} {
				p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name, Image: "demo:v1", RestartPolicy: &always})
			}
		}))
		r.await("web", "ready", isReady)
		r.remove("web")
		r.await("web", "gone", gone)
		var order []string
		for _, call := range s.noted() {
			order = append(order, strings.Fields(call)[1])
		}
		if want := []string{"web", "b", "a"}; !slices.Equal(order, want) {
			t.Errorf("stopped in the order %q, want %q", order, want)
		}
	})
}

func TestEphemeralContainerIsStarted(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(webPod("web"))
		r.await("web", "ready", isReady)
		patch := []byte(`{"spec":{"ephemeralContainers":[{"name":"shell","image":"demo:v1"}]}}`)
		if _, err := client.Pods.Patch(r.Context(), r.api, "default", "web", types.StrategicMergePatchType, patch, ""); err != nil {
			t.Fatal(err)
		}
		r.await("web", "debugged", func(p *corev1.Pod) bool {
			return len(p.Status.EphemeralContainerStatuses) == 1 && p.Status.EphemeralContainerStatuses[0].State.Running != nil
		})
	})
}

func TestResizeInPlace(t *testing.T) {
	withScript(t, func([]string) int32 { return 0 }, func(r *rig, s *scripted) {
		limit := func(memory string) corev1.ResourceRequirements {
			l := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
			return corev1.ResourceRequirements{Limits: l, Requests: l}
		}
		r.create(webPod("web", func(p *corev1.Pod) { p.Spec.Containers[0].Resources = limit("64Mi") }))
		r.await("web", "ready", isReady)
		resize := func(memory string) {
			patch := []byte(`{"spec":{"containers":[{"name":"web","resources":{"limits":{"memory":"` + memory + `"},"requests":{"memory":"` + memory + `"}}}]}}`)
			if _, err := client.Pods.Patch(r.Context(), r.api, "default", "web", types.StrategicMergePatchType, patch, ""); err != nil {
				t.Fatal(err)
			}
		}
		has := func(memory string) func(*corev1.Pod) bool {
			return func(p *corev1.Pod) bool {
				res := p.Status.ContainerStatuses[0].Resources
				return res != nil && res.Limits.Memory().Cmp(resource.MustParse(memory)) == 0
			}
		}
		resize("128Mi")
		r.await("web", "resized", has("128Mi"))
		r.awaitEvent("Pod resize completed: ")
		resize("100000Gi")
		pending := func(p *corev1.Pod) bool {
			return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodResizePending && c.Reason == corev1.PodReasonDeferred
			})
		}
		if p := r.await("web", "deferred", pending); !has("128Mi")(p) {
			t.Errorf("resources %v, want those from before", p.Status.ContainerStatuses[0].Resources)
		}
		resize("32Mi")
		r.await("web", "small again", has("32Mi"))
		r.await("web", "no longer deferred", func(p *corev1.Pod) bool { return !pending(p) })
		if want := []string{"update web 128Mi", "update web 32Mi"}; !slices.Equal(s.noted(), want) {
			t.Errorf("calls %q, want %q", s.noted(), want)
		}
	})
}

// TestResizeAcrossRestarts resizes a pod whose agent has been ended: while no agent runs, after it has started again,
// and between the operation of the runtime and its report.
func TestResizeAcrossRestarts(t *testing.T) {
	for _, reports := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			s := &scripted{Runtime: r.rt, exec: func([]string) int32 { return 0 }}
			if reports {
				s.limits = map[string]*cri.LinuxContainerResources{}
			}
			r.opts.Runtime = s
			stop := r.start()
			list := func(memory string) corev1.ResourceRequirements {
				l := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
				return corev1.ResourceRequirements{Limits: l, Requests: l}
			}
			r.create(webPod("web", func(p *corev1.Pod) { p.Spec.Containers[0].Resources = list("64Mi") }))
			created := r.await("web", "ready", isReady)
			_, id, _ := strings.Cut(created.Status.ContainerStatuses[0].ContainerID, "://")
			if reports { // as the container was created
				if err := s.UpdateContainerResources(r.Context(), id, crispec.Resources(created, corev1.PodQOSGuaranteed, &created.Spec.Containers[0], crispec.Capacity{})); err != nil {
					t.Fatal(err)
				}
			}
			s.forget()
			resize := func(memory string) {
				patch := []byte(`{"spec":{"containers":[{"name":"web","resources":{"limits":{"memory":"` + memory + `"},"requests":{"memory":"` + memory + `"}}}]}}`)
				if _, err := client.Pods.Patch(r.Context(), r.api, "default", "web", types.StrategicMergePatchType, patch, ""); err != nil {
					t.Fatal(err)
				}
			}
			calls := func(step, memory string, want ...string) {
				r.await("web", step, func(p *corev1.Pod) bool {
					res := p.Status.ContainerStatuses[0].Resources
					return res != nil && res.Limits.Memory().Cmp(resource.MustParse(memory)) == 0
				})
				synctest.Wait()
				if got := s.noted(); !slices.Equal(got, want) {
					t.Errorf("runtime that reports resources %v, %s: calls %q, want %q", reports, step, got, want)
				}
				s.forget()
			}
			again := func(memory string) []string { // a runtime that reports nothing gets the resources once more
				if reports {
					return nil
				}
				return []string{"update web " + memory}
			}
			stop()
			stop = r.start()
			<-r.node.Ready()
			synctest.Wait()
			calls("started again", "64Mi", again("64Mi")...)
			resize("128Mi")
			calls("resized after the start", "128Mi", "update web 128Mi")
			stop()
			resize("256Mi")
			stop = r.start()
			calls("resized without an agent", "256Mi", "update web 256Mi")
			stop()
			resize("32Mi")
			if reports {
				s.limits[id].MemoryLimitInBytes = 32 << 20
			}
			stop = r.start()
			calls("applied, but not reported", "32Mi", again("32Mi")...)
			stop()
			if reports {
				s.limits[id].MemoryLimitInBytes = 5 << 20
			}
			stop = r.start()
			<-r.node.Ready()
			synctest.Wait()
			calls("other resources than reported", "32Mi", "update web 32Mi")
			if p := r.await("web", "ready", isReady); p.Status.ContainerStatuses[0].RestartCount != 0 {
				t.Error("the container was restarted")
			}
			stop()
		})
	}
}

// TestDeferredResizesWaitForOtherPods has two resizes that wait for a third pod: the one of the pod with the higher priority comes first.
func TestDeferredResizesWaitForOtherPods(t *testing.T) {
	withScript(t, func([]string) int32 { return 0 }, func(r *rig, _ *scripted) {
		node, err := client.Nodes.Get(r.Context(), r.api, "", "n1")
		if err != nil {
			t.Fatal(err)
		}
		size := node.Status.Allocatable.Memory().Value()
		percent := func(n int64) resource.Quantity { return *resource.NewQuantity(size/100*n, resource.BinarySI) }
		for name, n := range map[string]int64{"large": 60, "early": 10, "important": 10} {
			r.create(webPod(name, func(p *corev1.Pod) {
				p.Name, p.UID = name, types.UID(name)
				list := corev1.ResourceList{corev1.ResourceMemory: percent(n)}
				p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: list, Requests: list}
				if name == "important" {
					p.Spec.Priority = new(int32(1))
				}
			}))
			r.await(name, "ready", isReady)
		}
		resize := func(name string, n int64) {
			q := percent(n)
			patch := []byte(`{"spec":{"containers":[{"name":"` + webPod(name).Spec.Containers[0].Name + `","resources":{"limits":{"memory":"` + q.String() + `"},"requests":{"memory":"` + q.String() + `"}}}]}}`)
			if _, err := client.Pods.Patch(r.Context(), r.api, "default", name, types.StrategicMergePatchType, patch, ""); err != nil {
				t.Fatal(err)
			}
		}
		pending := func(p *corev1.Pod) bool {
			return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizePending })
		}
		has := func(n int64) func(*corev1.Pod) bool {
			return func(p *corev1.Pod) bool {
				res := p.Status.ContainerStatuses[0].Resources
				return res != nil && res.Limits.Memory().Cmp(percent(n)) == 0
			}
		}
		for _, name := range []string{"early", "important"} {
			resize(name, 40)
			r.await(name, "deferred", pending)
		}
		resize("large", 45)
		r.await("important", "resized", has(40))
		if p := r.pod("early"); !pending(p) || !has(10)(p) {
			t.Errorf("the other pod has %v", p.Status.ContainerStatuses[0].Resources)
		}
		resize("large", 10)
		r.await("early", "resized", has(40))
		r.wantMetrics(map[string]float64{
			`kubelet_container_requested_resizes_total{resource="memory",requirement="limits",operation="increase"}`:   2,
			`kubelet_container_requested_resizes_total{resource="memory",requirement="requests",operation="decrease"}`: 2,
			`kubelet_pod_deferred_accepted_resizes_total{retry_trigger="pod_resized"}`:                                 2,
			`kubelet_pod_deferred_resize_duration_seconds{resolution="accepted",priority_bucket="medium"}`:             1,
			`kubelet_pod_deferred_resize_duration_seconds{resolution="accepted",priority_bucket="normal"}`:             1,
			`kubelet_pod_pending_resizes`: 0,
		})
	})
}

// TestPodLevelResize resizes a pod with resources as a whole, whose one container has no limit of its own.
func TestPodLevelResize(t *testing.T) {
	withScript(t, func([]string) int32 { return 0 }, func(r *rig, s *scripted) {
		whole := func(memory string) *corev1.ResourceRequirements {
			list := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourceCPU: resource.MustParse("1m")}
			return &corev1.ResourceRequirements{Requests: list, Limits: list}
		}
		r.create(webPod("web", func(p *corev1.Pod) { p.Spec.Resources = whole("64Mi") }))
		if p := r.await("web", "ready", isReady); p.Status.QOSClass != corev1.PodQOSGuaranteed {
			t.Errorf("class %s", p.Status.QOSClass)
		}
		resize := func(memory string) {
			patch := []byte(`{"spec":{"resources":{"limits":{"memory":"` + memory + `"},"requests":{"memory":"` + memory + `"}}}}`)
			if _, err := client.Pods.Patch(r.Context(), r.api, "default", "web", types.StrategicMergePatchType, patch, ""); err != nil {
				t.Fatal(err)
			}
		}
		has := func(memory string) func(*corev1.Pod) bool {
			return func(p *corev1.Pod) bool {
				q := resource.MustParse(memory)
				return p.Status.Resources != nil && p.Status.Resources.Limits.Memory().Cmp(q) == 0 && p.Status.AllocatedResources.Memory().Cmp(q) == 0
			}
		}
		resize("128Mi")
		r.await("web", "resized", has("128Mi"))
		r.awaitEvent("Pod resize completed: ")
		resize("100000Gi")
		p := r.await("web", "deferred", func(p *corev1.Pod) bool {
			return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodResizePending && c.Reason == corev1.PodReasonDeferred
			})
		})
		if !has("128Mi")(p) {
			t.Errorf("resources %v, want those from before", p.Status.Resources)
		}
		if want := []string{"update web 128Mi"}; !slices.Equal(s.noted(), want) {
			t.Errorf("calls %q, want %q", s.noted(), want)
		}
	})
}

func TestStaticPodHasMirror(t *testing.T) {
	dir := t.TempDir()
	write := func(image string) {
		if err := os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(image), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("demo:v1")
	r := newRig(t)
	r.opts.StaticPodPath = dir
	r.opts.ReadPod = readImage
	stop := r.start()
	defer stop()
	runs := func(image string) *corev1.Pod {
		return r.await("web-n1", "running "+image, func(p *corev1.Pod) bool {
			return p != nil && isReady(p) && p.Status.ContainerStatuses[0].Image == image
		})
	}
	first := runs("demo:v1")
	if h := first.Annotations[corev1.MirrorPodAnnotationKey]; h == "" || h != first.Annotations["kubernetes.io/config.hash"] || first.Annotations["kubernetes.io/config.source"] != "file" {
		t.Errorf("annotations %v, want those of a mirror pod", first.Annotations)
	}

	// A mirror pod that is deleted is created again, and the containers go on.
	if err := client.Pods.Delete(t.Context(), r.api, "default", "web-n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second := r.await("web-n1", "mirrored again", func(p *corev1.Pod) bool { return p != nil && p.UID != first.UID && isReady(p) })
	if was, is := first.Status.ContainerStatuses[0].ContainerID, second.Status.ContainerStatuses[0].ContainerID; was != is {
		t.Errorf("container %s, want %s", is, was)
	}

	// A changed file is another pod, and a removed one none.
	write("demo:v2")
	runs("demo:v2")
	if err := os.Remove(filepath.Join(dir, "web.yaml")); err != nil {
		t.Fatal(err)
	}
	r.await("web-n1", "gone", gone)
}

// readImage reads a manifest that is an image, or the names of a pod and an image. There are no images named "bad" and "panic".
func readImage(file string, data []byte, complete func(*corev1.Pod) error) (pod *corev1.Pod, ignored string, err error) {
	name, image, named := strings.Cut(string(data), " ")
	if !named {
		name, image = "web", string(data)
	}
	switch image {
	case "bad":
		return nil, "", errors.New(file + ": no such image")
	case "twice":
		ignored = file + ": a second document"
	case "panic":
		panic("no such image")
	}
	pod = webPod(name, func(p *corev1.Pod) {
		p.Spec.Containers[0].Image = image
		if image == "secret" {
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "key"}}
		}
	})
	return pod, ignored, complete(pod)
}

// TestInvalidStaticPodsHarmNoOthers puts files beside that of a running pod that are no pods, that have its name, or whose mirror pod
// the API server refuses. Each is reported in an event.
func TestInvalidStaticPodsHarmNoOthers(t *testing.T) {
	dir := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t)
	reported := func(message string) {
		t.Helper()
		r.api.Await(r, func() error {
			for _, e := range clienttest.All(r.api, client.Events, "default") {
				if e.InvolvedObject.Kind == "Node" && e.Reason == "FailedValidation" && strings.Contains(e.Message, message) {
					return nil
				}
			}
			return fmt.Errorf("no event %q", message)
		})
	}
	r.opts.StaticPodPath, r.opts.ReadPod = dir, readImage
	stop := r.start()
	defer stop()
	write("m.yaml", "web demo:v1")
	first := r.await("web-n1", "ready", func(p *corev1.Pod) bool { return p != nil && isReady(p) })

	write("a.yaml", "web demo:v2")
	reported("Error validating pod default/web-n1 from " + dir + `/a.yaml due to duplicate pod name "web-n1", ignoring: ` + dir + "/m.yaml has that pod")
	write("b.yaml", "x bad")
	reported("Error validating static pod: " + dir + "/b.yaml: no such image")
	write("c.yaml", "x panic")
	reported("Error validating static pod: " + dir + "/c.yaml: panic: no such image")
	write("d.yaml", "x secret")
	reported("Error validating static pod: " + dir + "/d.yaml: static pods may not reference secrets")
	if err := os.Mkdir(filepath.Join(dir, "e.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	reported("/e.yaml: is a directory, in which no manifests are looked for")
	if err := os.Symlink("none", filepath.Join(dir, "g.yaml")); err != nil {
		t.Fatal(err)
	}
	reported("/g.yaml: is a link to none, which does not exist")
	write("f.yaml", " demo:v1")
	reported("/f.yaml: metadata.name: Required value: name is needed for the pod")
	write("m.yaml", "web bad")
	reported("/m.yaml: no such image (the pod of the last valid version keeps running)")
	write("y.yaml", "two twice")
	reported("/y.yaml: a second document")
	write("z.yaml", "last demo:v1")
	r.await("last-n1", "ready", func(p *corev1.Pod) bool { return p != nil && isReady(p) })
	web := r.await("web-n1", "still ready", func(p *corev1.Pod) bool { return p != nil && isReady(p) })
	if was, is := first.Status.ContainerStatuses[0].ContainerID, web.Status.ContainerStatuses[0].ContainerID; was != is || web.UID != first.UID {
		t.Errorf("container %s of pod %s, want %s of %s", is, web.UID, was, first.UID)
	}

	// Without its file the pod ends, and the other file has its name.
	if err := os.Remove(filepath.Join(dir, "m.yaml")); err != nil {
		t.Fatal(err)
	}
	r.await("web-n1", "the other one", func(p *corev1.Pod) bool {
		return p != nil && isReady(p) && p.Status.ContainerStatuses[0].Image == "demo:v2"
	})
}

// TestStaticPodPutBackRunsAgain removes the file of a pod and puts it back while the pod ends.
func TestStaticPodPutBackRunsAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "web.yaml")
	r := newRig(t)
	slow := &slowStop{Runtime: r.opts.Runtime, asked: make(chan struct{}, 10), stop: make(chan struct{})}
	r.opts.Runtime, r.opts.StaticPodPath, r.opts.ReadPod = slow, dir, readImage
	stop := r.start()
	defer stop()
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ready := func(p *corev1.Pod) bool { return p != nil && isReady(p) }
	write(path, "demo:v1")
	first := r.await("web-n1", "ready", ready)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	<-slow.asked
	r.await("web-n1", "gone", gone)
	write(path, "demo:v1")
	write(filepath.Join(dir, "z.yaml"), "last demo:v1")
	r.await("last-n1", "ready", ready) // the directory has been read
	if p := r.pod("web-n1"); p != nil {
		t.Errorf("a mirror pod shows a pod that ends: %s", brief(p))
	}
	close(slow.stop)
	second := r.await("web-n1", "ready again", ready)
	if was, is := first.Status.ContainerStatuses[0].ContainerID, second.Status.ContainerStatuses[0].ContainerID; was == is {
		t.Errorf("container %s was not started again", is)
	}
	r.wantMetrics(map[string]float64{
		`kubelet_restarted_pods_total{static="true"}`: 1, `kubelet_mirror_pods`: 2, `kubelet_desired_pods{static="true"}`: 2, `kubelet_active_pods{static="true"}`: 2,
		`kubelet_working_pods{lifecycle="sync",config="desired",static="true"}`: 2, `kubelet_working_pods`: 2,
	})
}

// A slowStop is a runtime that stops containers when it is allowed to.
type slowStop struct {
	criclient.Runtime
	asked, stop chan struct{}
}

func (s *slowStop) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	s.asked <- struct{}{}
	select {
	case <-s.stop:
	case <-ctx.Done():
	}
	return s.Runtime.StopContainer(ctx, id, grace)
}

// TestForgedStaticPodsAreOrdinary creates pods with the annotations that the agent gives static pods and mirror pods.
func TestForgedStaticPodsAreOrdinary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		stop := r.start()
		<-r.node.Ready()
		annotated := func(keys ...string) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				p.Annotations = map[string]string{}
				for _, k := range keys {
					p.Annotations[k] = "file"
				}
			}
		}
		const source, hash = "kubernetes.io/config.source", "kubernetes.io/config.hash"
		// Its annotation alone makes no static pod: it ends when the API server deletes it.
		r.create(webPod("source", annotated(source)))
		r.await("source", "ready", isReady)
		r.delete("source")
		r.await("source", "gone", gone)
		// A mirror pod without a static pod is deleted, and does not run.
		for _, keys := range [][]string{{corev1.MirrorPodAnnotationKey}, {corev1.MirrorPodAnnotationKey, source, hash}} {
			uid := r.create(webPod("mirror", annotated(keys...))).UID
			r.await("mirror", "gone", gone)
			list, err := r.opts.Runtime.ListPodSandbox(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range list {
				if s.GetMetadata().GetUid() == string(uid) {
					t.Errorf("the forged mirror pod with %v runs", keys)
				}
			}
		}
		stop()
	})
}

// TestEphemeralContainerReadsAnotherSecret adds a container that names objects which no container named before.
func TestEphemeralContainerReadsAnotherSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}, Data: map[string][]byte{"key": []byte("word")}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}, Data: map[string]string{"MORE": "words"}})
		recorder := &envRuntime{Runtime: r.opts.Runtime, envs: make(chan []*cri.KeyValue, 10)}
		r.opts.Runtime = recorder
		stop := r.start()
		<-r.node.Ready()
		r.create(webPod("web", func(*corev1.Pod) {}))
		p := r.await("web", "ready", isReady).DeepCopy()
		<-recorder.envs
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "busybox", ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePath: "/dev/termination-log",
			Env: []corev1.EnvVar{{Name: "WORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "late"}, Key: "key",
			}}}},
			EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "late"}}}},
		}}}
		if _, err := client.Pods.Update(t.Context(), r.api, p, "ephemeralcontainers"); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, e := range <-recorder.envs {
			got[e.GetKey()] = string(e.GetValue())
		}
		if got["WORD"] != "word" || got["MORE"] != "words" {
			t.Errorf("the environment of the ephemeral container is %v", got)
		}
		r.delete("web")
		r.await("web", "gone", gone)
		stop()
	})
}

// An envRuntime reports the environment of each container.
type envRuntime struct {
	criclient.Runtime
	envs chan []*cri.KeyValue
}

func (r *envRuntime) CreateContainer(ctx context.Context, sandbox string, c *cri.ContainerConfig, s *cri.PodSandboxConfig) (string, error) {
	r.envs <- c.GetEnvs()
	return r.Runtime.CreateContainer(ctx, sandbox, c, s)
}
