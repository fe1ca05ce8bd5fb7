package devices_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

// withScheduler adds our scheduler to the controllers.
func withScheduler(t *testing.T) controllertest.Tasks {
	return func(c client.Interface, caches *cache.Shared) []run.Task {
		s, err := scheduler.New(scheduler.Options{Client: c, Caches: caches, Plugins: builtin.Default()})
		if err != nil {
			t.Fatal(err)
		}
		return append(tasks(c, caches), run.Task{Name: "scheduler", Run: s.Run, Ready: s.Ready()})
	}
}

const (
	class  = `{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}}`
	oneGPU = `{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: n1}, spec: {driver: gpu.example.com, nodeName: n1, pool: {name: n1, generation: 1, resourceSliceCount: 1}, devices: [{name: gpu-0%s}]}}`
)

// podNamed returns a pod for the scheduler that gets a claim from the template.
func podNamed(name string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {namespace: default, name: %s}, spec: {schedulerName: default-scheduler, containers: [{name: c, image: i}], resourceClaims: [{name: card, resourceClaimTemplateName: gpu}]}}`, name)
}

const exactTemplate = `{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {namespace: default, name: gpu}, spec: {spec: {devices: {requests: [{name: one, exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 1}}]}}}}`

// where returns "pod=node …" for all pods, with the message of those without a node.
func where(s *clienttest.Server) string {
	var out []string
	for _, p := range clienttest.All(s, client.Pods, "") {
		text := p.Name + "=" + p.Spec.NodeName
		if c := podstate.Condition(p, corev1.PodScheduled); p.Spec.NodeName == "" && c != nil {
			message, _, _ := strings.Cut(c.Message, " preemption:")
			text += message
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}

func await(t *testing.T, s *clienttest.Server, when, want string) {
	t.Helper()
	time.Sleep(time.Minute) // the first try may have come before its claim or node
	synctest.Wait()
	if got := where(s); got != want {
		t.Fatalf("%s: %s\nwant: %s", when, got, want)
	}
}

func TestTwoPodsCompeteForOneDevice(t *testing.T) {
	controllertest.Controlling(t, withScheduler(t), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, plugintest.Node("n1"))
		time.Sleep(time.Second) // the scheduler has seen it
		give(t, s, class, fmt.Sprintf(oneGPU, ""), exactTemplate, podNamed("a"))
		await(t, s, "the first", "a=n1")
		give(t, s, podNamed("b"))
		await(t, s, "the second", "a=n1; b=0/1 nodes are available: 1 cannot allocate all claims.")
		if events := waiting(s); events != 1 {
			t.Errorf("%d events about the wait, want 1", events)
		}
		s.Remove(t, the(s, "a"))
		time.Sleep(time.Minute)
		await(t, s, "after the end of the first", "b=n1")
		c := made(t, s)
		if r := c.Status.Allocation.Devices.Results; len(r) != 1 || r[0].Device != "gpu-0" || len(c.Status.ReservedFor) != 1 || c.Status.ReservedFor[0].Name != "b" {
			t.Errorf("the status of the claim is %v, want gpu-0 for pod b", c.Status)
		}
	})
}

// waiting counts the events about pods that do not fit.
func waiting(s *clienttest.Server) (n int) {
	for _, e := range clienttest.All(s, client.Events, "") {
		if e.Reason == "FailedScheduling" && strings.Contains(e.Message, "cannot allocate all claims") {
			n++
		}
	}
	return n
}

func TestABurstOfPodsNeverSharesADevice(t *testing.T) {
	controllertest.Controlling(t, withScheduler(t), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, plugintest.Node("n1"))
		time.Sleep(time.Second) // the scheduler has seen it
		give(t, s, class, exactTemplate, fmt.Sprintf(oneGPU, "}, {name: gpu-1}, {name: gpu-2"))
		for i := range 8 {
			s.Set(t, object(podNamed(fmt.Sprintf("p%d", i))))
		}
		for left := 8; ; left -= 3 {
			time.Sleep(time.Minute)
			synctest.Wait()
			used, bound := map[string]string{}, 0
			for _, c := range clienttest.All(s, client.ResourceClaims, "") {
				if c.Status.Allocation == nil {
					continue
				}
				d := c.Status.Allocation.Devices.Results[0].Device
				if used[d] != "" {
					t.Fatalf("claims %s and %s both have %s", used[d], c.Name, d)
				}
				used[d] = c.Name
			}
			for _, p := range clienttest.All(s, client.Pods, "") {
				if p.Spec.NodeName != "" {
					bound++
					s.Remove(t, p)
				}
			}
			if bound != min(left, 3) {
				t.Fatalf("%d pods of %d got a device, want %d", bound, left, min(left, 3))
			}
			if left <= 3 {
				return
			}
		}
	})
}

func TestPodWaitsForClaimClassAndSlice(t *testing.T) {
	controllertest.Controlling(t, withScheduler(t), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, plugintest.Node("n1"))
		time.Sleep(time.Second) // the scheduler has seen it
		give(t, s, podNamed("p"))
		await(t, s, "without a template", "p=") // PreEnqueue says nothing
		give(t, s, exactTemplate)
		time.Sleep(time.Minute)
		await(t, s, "without a class", "p=0/1 nodes are available: request one: device class gpu does not exist.")
		give(t, s, class)
		time.Sleep(time.Minute)
		await(t, s, "without a slice", "p=0/1 nodes are available: 1 cannot allocate all claims.")
		give(t, s, fmt.Sprintf(oneGPU, ", taints: [{key: broken, effect: NoSchedule}]"))
		time.Sleep(time.Minute)
		await(t, s, "with a tainted device", "p=0/1 nodes are available: 1 cannot allocate all claims.")
		slice := clienttest.Find(s, client.ResourceSlices, "", "n1").DeepCopy()
		slice.Spec.Devices[0].Taints = nil
		s.Set(t, slice)
		time.Sleep(time.Minute)
		await(t, s, "without the taint", "p=n1")
	})
}

func TestBindingWaitsForConditionsOfTheDevice(t *testing.T) {
	for _, condition := range []string{"up", "down"} {
		controllertest.Controlling(t, withScheduler(t), func(t *testing.T, s *clienttest.Server) {
			s.Set(t, plugintest.Node("n1"))
			time.Sleep(time.Second) // the scheduler has seen it
			give(t, s, class, exactTemplate, fmt.Sprintf(oneGPU, ", bindsToNode: true, bindingConditions: [up], bindingFailureConditions: [down]"))
			time.Sleep(time.Minute) // the scheduler has seen them
			give(t, s, podNamed("p"))
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := where(s); got == "p=n1" {
				t.Fatalf("before the condition: %s", got)
			}
			c := made(t, s)
			if c.Status.Allocation == nil || c.Status.Allocation.AllocationTimestamp == nil || len(c.Status.ReservedFor) != 1 {
				t.Fatalf("the status of the claim is %v, want it to be allocated with the time", c.Status)
			}
			c.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "gpu.example.com", Pool: "n1", Device: "gpu-0"}}
			c.Status.Devices[0].Conditions = []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: "Said", LastTransitionTime: metav1.Now()}}
			s.Set(t, c)
			if condition == "up" {
				await(t, s, "after it", "p=n1")
				return
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if after := made(t, s); after.Status.Devices != nil {
				t.Errorf("the status of the claim is %v, want it to be deallocated since the device failed", after.Status)
			}
		})
	}
}

func object(line string) client.Object {
	obj := plugintest.Object(line)
	obj.SetUID("")
	return obj
}

const (
	extendedClass = `{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: gpu}, spec: {extendedResourceName: example.com/gpu, selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}}`
	extendedPod   = `{apiVersion: v1, kind: Pod, metadata: {namespace: default, name: %s}, spec: {schedulerName: default-scheduler, initContainers: [{name: i, image: i, resources: {requests: {example.com/gpu: 2}}}], containers: [{name: c, image: i, resources: {requests: {cpu: 1, example.com/gpu: 1}}}]}}`
)

func TestClassProvidesExtendedResource(t *testing.T) {
	controllertest.Controlling(t, withScheduler(t), func(t *testing.T, s *clienttest.Server) {
		s.Set(t, plugintest.Node("n1"))
		time.Sleep(time.Second) // the scheduler has seen it
		give(t, s, fmt.Sprintf(oneGPU, "}, {name: gpu-1}, {name: gpu-2"), fmt.Sprintf(extendedPod, "a"))
		await(t, s, "without a class", "a=0/1 nodes are available: 1 Insufficient example.com/gpu.")
		give(t, s, extendedClass)
		time.Sleep(time.Minute)
		await(t, s, "with the class", "a=n1")
		c := made(t, s)
		if c.GenerateName != "a-extended-resources-" || c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" || len(c.Status.ReservedFor) != 1 {
			t.Errorf("the claim is %v", c)
		}
		var got []string
		for _, r := range c.Status.Allocation.Devices.Results {
			got = append(got, r.Request+"="+r.Device)
		}
		for _, m := range the(s, "a").Status.ExtendedResourceClaimStatus.RequestMappings {
			got = append(got, m.ContainerName+" has "+m.RequestName)
		}
		want := "container-0-request-0=gpu-0, container-1-request-1=gpu-1, c has container-1-request-1, i has container-1-request-1, i has container-0-request-0"
		if text := strings.Join(got, ", "); text != want || the(s, "a").Status.ExtendedResourceClaimStatus.ResourceClaimName != c.Name {
			t.Errorf("the pod got %s\nwant %s", text, want)
		}
		give(t, s, fmt.Sprintf(extendedPod, "b"))
		await(t, s, "a second pod", "a=n1; b=0/1 nodes are available: 1 cannot allocate all claims.")
		s.Remove(t, the(s, "a"))
		time.Sleep(time.Minute)
		await(t, s, "after the end of the first", "b=n1")
		controllertest.Become(t, s, the(s, "b"), corev1.PodSucceeded, false)
		synctest.Wait()
		if all := clienttest.All(s, client.ResourceClaims, ""); len(all) > 0 {
			t.Errorf("%d claims remain, want none", len(all))
		}
	})
}
