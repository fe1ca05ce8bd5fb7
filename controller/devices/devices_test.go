package devices_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/devices"
	"github.com/sampan-io/sampan/controller/garbage"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

func tasks(c client.Interface, caches *cache.Shared) []run.Task {
	config := controller.Config{Client: c, Caches: caches}
	return append(devices.Tasks(config), garbage.Tasks(garbage.Options{Config: config, Resources: clienttest.Resources()})...)
}

// give creates objects from YAML, one on a line.
func give(t *testing.T, s *clienttest.Server, lines ...string) {
	t.Helper()
	for _, line := range lines {
		obj := plugintest.Object(line)
		obj.SetUID("")
		s.Set(t, obj)
	}
	synctest.Wait()
}

const (
	template = `{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {namespace: default, name: gpu}, spec: {metadata: {labels: {a: b}, annotations: {c: d}}, spec: {devices: {requests: [{name: one, exactly: {deviceClassName: gpu}}]}}}}`
	pod      = `{apiVersion: v1, kind: Pod, metadata: {namespace: default, name: web}, spec: {containers: [{name: c, image: i}], resourceClaims: [{name: card, resourceClaimTemplateName: gpu}, {name: shared, resourceClaimName: common}]}}`
	common   = `{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {namespace: default, name: common}, spec: {devices: {requests: [{name: one, exactly: {deviceClassName: gpu}}]}}}`
)

// show returns claims, the claims that pods name in their status, and events as text.
func show(s *clienttest.Server) string {
	var lines []string
	names := map[string]string{} // generated names end in what is random
	for _, c := range clienttest.All(s, client.ResourceClaims, "") {
		names[c.Name] = c.Name
		if c.GenerateName != "" {
			names[c.Name] = c.GenerateName + "*"
		}
		line := "claim " + names[c.Name]
		for _, o := range c.OwnerReferences {
			line += fmt.Sprintf(" of %s %s", o.Kind, o.Name)
		}
		if a := c.Annotations[resourcev1.PodResourceClaimAnnotation]; a != "" {
			line += " as " + a
		}
		if c.Status.Allocation != nil {
			line += " allocated"
		}
		for _, r := range c.Status.ReservedFor {
			line += " for " + r.Name
		}
		if slices.Contains(c.Finalizers, resourcev1.Finalizer) {
			line += " protected"
		}
		if c.DeletionTimestamp != nil {
			line += " going"
		}
		lines = append(lines, line)
	}
	for _, p := range clienttest.All(s, client.Pods, "") {
		line := "pod " + p.Name
		for _, c := range p.Status.ResourceClaimStatuses {
			name, ok := names[*c.ResourceClaimName]
			if !ok {
				name = "a claim that does not exist"
			}
			line += fmt.Sprintf(" %s=%s", c.Name, name)
		}
		lines = append(lines, line)
	}
	for _, e := range clienttest.All(s, client.Events, "") {
		lines = append(lines, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message))
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}

func expect(t *testing.T, s *clienttest.Server, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	slices.Sort(want)
	if got := show(s); got != strings.Join(want, "\n") {
		t.Fatalf("%s:\n%s\nwant:\n%s", when, got, strings.Join(want, "\n"))
	}
}

func the(s *clienttest.Server, name string) *corev1.Pod {
	return clienttest.Find(s, client.Pods, "default", name).DeepCopy()
}

// made returns the claim that was made for a pod.
func made(t *testing.T, s *clienttest.Server) *resourcev1.ResourceClaim {
	t.Helper()
	for _, c := range clienttest.All(s, client.ResourceClaims, "") {
		if c.GenerateName != "" {
			return c.DeepCopy()
		}
	}
	t.Fatal("there is no claim from a template")
	return nil
}

// allocate does to a claim what the scheduler does.
func allocate(t *testing.T, s *clienttest.Server, c *resourcev1.ResourceClaim, pods ...*corev1.Pod) {
	t.Helper()
	c = c.DeepCopy()
	c.Finalizers = []string{resourcev1.Finalizer}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	}
	s.Set(t, c)
	synctest.Wait()
}

func TestPodGetsClaimFromTemplate(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		give(t, s, pod)
		expect(t, s, "without the template", "pod web",
			`Warning FailedResourceClaimCreation: PodResourceClaim card: resource claim template "gpu": resourceclaimtemplates.resource.k8s.io "gpu" not found`)
		give(t, s, template)
		for _, e := range clienttest.All(s, client.Events, "") {
			s.Remove(t, e)
		}
		expect(t, s, "with it", "pod web card=web-card-*", "claim web-card-* of Pod web as card")
		c := made(t, s)
		if c.Labels["a"] != "b" || c.Annotations["c"] != "d" || c.Spec.Devices.Requests[0].Exactly.DeviceClassName != "gpu" {
			t.Errorf("the claim is %v, want labels, annotations and the specification of the template", c)
		}
		s.Remove(t, c)
		expect(t, s, "after someone deleted the claim", "pod web card=web-card-*", "claim web-card-* of Pod web as card")
		if again := made(t, s); again.UID == c.UID {
			t.Error("the claim was not made again")
		}
		s.Remove(t, the(s, "web"))
		expect(t, s, "after the end of the pod")
	})
}

func TestClaimIsMadeOnceDespiteCrashes(t *testing.T) {
	begin := func(t *testing.T, s *clienttest.Server) { give(t, s, template, pod) }
	controllertest.CrashAnywhere(t, tasks, 4, func() []client.Object { return nil }, begin, func(t *testing.T, s *clienttest.Server) {
		if all := clienttest.All(s, client.ResourceClaims, ""); len(all) != 1 {
			t.Errorf("there are %d claims, want 1", len(all))
		}
		if statuses := the(s, "web").Status.ResourceClaimStatuses; len(statuses) != 1 {
			t.Errorf("the pod's status names %v, want one claim", statuses)
		}
	})
}

func TestForeignClaimIsNotUsed(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		give(t, s, template, common, pod)
		c := made(t, s)
		p := the(s, "web")
		p.Status.ResourceClaimStatuses[0].ResourceClaimName = new("common") // which has no owner
		s.Set(t, p)
		s.Remove(t, c)
		give(t, s, strings.ReplaceAll(template, "name: gpu}, spec", "name: other}, spec"))
		// Upstream looks again as soon as something about the pod changes.
		p = the(s, "web")
		p.Status.ResourceClaimStatuses = nil
		s.Set(t, p)
		expect(t, s, "the pod's own claim is there", "claim common", "claim web-card-* of Pod web as card", "pod web card=web-card-*")
	})
}

func TestReservationsEndWithTheirPods(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		give(t, s, template, common, pod, strings.ReplaceAll(strings.ReplaceAll(pod, "web", "db"), "{name: card, resourceClaimTemplateName: gpu}, ", ""))
		web, db := the(s, "web"), the(s, "db")
		web.Spec.NodeName, db.Spec.NodeName = "n", "n"
		s.Set(t, web)
		s.Set(t, db)
		allocate(t, s, clienttest.Find(s, client.ResourceClaims, "default", "common"), web, db)
		allocate(t, s, made(t, s), web)
		expect(t, s, "while both run", "claim common allocated for web for db protected", "claim web-card-* of Pod web as card allocated for web protected",
			"pod web card=web-card-*", "pod db")
		controllertest.Become(t, s, web, corev1.PodSucceeded, false)
		expect(t, s, "when web has ended", "claim common allocated for db protected", "pod web card=a claim that does not exist", "pod db")
		s.Remove(t, the(s, "web"))
		s.Remove(t, the(s, "db"))
		expect(t, s, "when both are gone", "claim common")
	})
}

func TestReservationOfAReplacedPodEnds(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		give(t, s, common, strings.ReplaceAll(pod, "{name: card, resourceClaimTemplateName: gpu}, ", ""))
		c := clienttest.Find(s, client.ResourceClaims, "default", "common").DeepCopy()
		c.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{
			{APIGroup: "example.com", Resource: "boats", Name: "web", UID: "boat"}, {Resource: "pods", Name: "web", UID: types.UID("of another life")},
		}
		allocate(t, s, c)
		expect(t, s, "only the boat has it", "claim common allocated for web protected", "pod web")
	})
}

func TestDeletedClaimIsFreed(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		give(t, s, common)
		allocate(t, s, clienttest.Find(s, client.ResourceClaims, "default", "common"))
		expect(t, s, "a claim without users stays allocated", "claim common allocated protected")
		if err := client.ResourceClaims.Delete(t.Context(), s, "default", "common", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expect(t, s, "after its deletion")
	})
}

func TestClaimIsReservedForPodThatBypassesTheScheduler(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		give(t, s, common, strings.ReplaceAll(pod, "{name: card, resourceClaimTemplateName: gpu}, ", ""))
		p := the(s, "web")
		p.Spec.NodeName = "n"
		s.Set(t, p)
		expect(t, s, "before its allocation", "claim common", "pod web")
		allocate(t, s, clienttest.Find(s, client.ResourceClaims, "default", "common"))
		expect(t, s, "after it", "claim common allocated for web protected", "pod web")
	})
}

func TestNamesOfClaimsAreCut(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		long := strings.Repeat("p", 100)
		give(t, s, template, strings.ReplaceAll(strings.ReplaceAll(pod, "name: web", "name: "+long), "name: card", "name: "+strings.Repeat("c", 50)))
		if want := strings.Repeat("p", 37) + "-" + strings.Repeat("c", 18); made(t, s).GenerateName != want {
			t.Errorf("the name begins with %q, want %q", made(t, s).GenerateName, want)
		}
	})
}
