package builtin_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

func TestStoriesOfDevices(t *testing.T) { plugintest.Play(t, "testdata/devices", builtin.Default()) }

// TestDynamicResourcesKeepsTheLaws checks the laws where there are claims and devices.
func TestDynamicResourcesKeepsTheLaws(t *testing.T) {
	plugintest.LawsIn(t, &builtin.DynamicResources{}, rapid.Custom(func(t *rapid.T) plugintest.World {
		w := plugintest.Worlds().Draw(t, "world")
		w.Objects = append(w.Objects, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}, randomTaintRule(t))
		w.Changes = append(w.Changes, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu", Labels: map[string]string{"a": "b"}}}, randomTaintRule(t))
		for i := range 3 {
			w.Objects = append(w.Objects, randomDeviceClaim(t, i))
			w.Changes = append(w.Changes, randomDeviceClaim(t, i), going(randomDeviceClaim(t, i)))
		}
		for _, n := range w.Nodes {
			w.Objects = append(w.Objects, randomSlice(t, n.Name))
			w.Changes = append(w.Changes, randomSlice(t, n.Name))
		}
		for _, p := range append(w.Pods, w.Pending) {
			p.Namespace = "default"
			for i := range rapid.IntRange(0, 2).Draw(t, "claims") {
				name := fmt.Sprintf("c%d", rapid.IntRange(0, 2).Draw(t, "claim"))
				p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: fmt.Sprint(i), ResourceClaimName: &name})
			}
		}
		return w
	}))
}

func randomDeviceClaim(t *rapid.T, i int) *resourcev1.ResourceClaim {
	class := one(t, "class", "gpu", "gpu", "gpu", "missing")
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: fmt.Sprintf("c%d", i), UID: types.UID(fmt.Sprintf("c%d of %s", i, class)), // a spec never changes
	}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
	}}}
	if one(t, "state", "new", "new", "allocated") == "allocated" {
		node := one(t, "where", "n0", "n1")
		c.Status.Allocation = &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
				Request: "r", Driver: "gpu.example.com", Pool: node, Device: one(t, "device", "gpu-0", "gpu-1"),
			}}},
			NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}},
		}
	}
	return c
}

func randomSlice(t *rapid.T, node string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
	}}
	for i := range rapid.IntRange(0, 2).Draw(t, "devices") {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i)})
	}
	return s
}

func randomTaintRule(t *rapid.T) *resourcev1.DeviceTaintRule {
	return &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "rule"}, Spec: resourcev1.DeviceTaintRuleSpec{
		DeviceSelector: &resourcev1.DeviceTaintSelector{Device: new(one(t, "tainted", "gpu-0", "gpu-1", "none"))},
		Taint:          resourcev1.DeviceTaint{Key: "k", Effect: resourcev1.DeviceTaintEffectNoSchedule},
	}}
}

func TestArgumentsOfDynamicResources(t *testing.T) {
	for args, want := range map[string]string{
		`{"filterTimeout": "-1s"}`:    "filterTimeout",
		`{"filterTimeout": 1}`:        "filterTimeout",
		`{"bindingTimeout": "999ms"}`: "bindingTimeout",
		`{"timeout": "1s"}`:           "timeout",
	} {
		if _, err := (&builtin.DynamicResources{}).Configure([]byte(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to say %q", args, err, want)
		}
	}
	got := configured(t, &builtin.DynamicResources{}, `{"filterTimeout": "2s", "bindingTimeout": "3m"}`)
	if got.FilterTimeout.Seconds() != 2 || got.BindingTimeout.Minutes() != 3 {
		t.Errorf("configured: %v %v", got.FilterTimeout, got.BindingTimeout)
	}
}

// hostile makes a cluster in which the exhaustive search for the devices of a claim would take years.
func hostile(t *testing.T) (*plugin.Cluster, *plugin.Pod) {
	t.Helper()
	c := &plugin.Cluster{}
	c.SetNode(plugintest.Node("n"))
	c.SetObject(resourceOf("deviceclasses"), &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", AllNodes: new(true), Pool: resourcev1.ResourcePool{Name: "p", Generation: 1, ResourceSliceCount: 1},
	}}
	for i := range 60 {
		value := int64(i / 20) // three kinds of 20 devices
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{
			Name: fmt.Sprintf("d%d", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"kind": {IntValue: &value}},
		})
	}
	c.SetObject(resourceOf("resourceslices"), slice)
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "c"}}
	for i := range 21 {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourcev1.DeviceRequest{Name: fmt.Sprintf("r%d", i), Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
		}})
	}
	claim.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: new(resourcev1.FullyQualifiedName("gpu.example.com/kind"))}}
	c.SetObject(resourceOf("resourceclaims"), claim)
	return c, plugin.NewPod(plugintest.Pod("p", `spec={resourceClaims: [{name: c, resourceClaimName: c}]}`))
}

func resourceOf(name string) schema.GroupVersionResource {
	return resourcev1.SchemeGroupVersion.WithResource(name)
}

// TestHostileClaimsGetLittleTime makes sure that a search without end is cut off, and that the namespace has to wait then.
func TestHostileClaimsGetLittleTime(t *testing.T) {
	c, pod := hostile(t)
	d := &builtin.DynamicResources{FilterTimeout: new(time.Millisecond)}
	check, v := d.PreFilter(t.Context(), pod, &c.Snapshot)
	if !v.OK() {
		t.Fatalf("PreFilter: %v", v)
	}
	if v := check.Filter(c.Snapshot.Node("n")); v.Code != plugin.Failed || v.Reason != "node n: timed out trying to allocate devices" {
		t.Fatalf("Filter: %v, want that it took too long", v)
	}
	d = &builtin.DynamicResources{FilterTimeout: new(time.Second)}
	check, _ = d.PreFilter(t.Context(), pod, &c.Snapshot)
	check.Filter(c.Snapshot.Node("n"))
	if _, v := d.PreFilter(t.Context(), pod, &c.Snapshot); v.Code != plugin.Failed || !strings.Contains(v.Reason, "took too long") {
		t.Errorf("PreFilter after that: %v, want an error at once", v)
	}
	other := plugin.NewPod(plugintest.Pod("elsewhere/p"))
	if _, v := d.PreFilter(t.Context(), other, &c.Snapshot); v.Code != plugin.Skipped {
		t.Errorf("PreFilter of a pod without claims: %v", v)
	}
}

// TestPodsWithoutClaimsCostNothing makes sure that the plug-in allocates nothing for pods that it does not concern.
func TestPodsWithoutClaimsCostNothing(t *testing.T) {
	c, _ := hostile(t)
	pod := plugin.NewPod(plugintest.Pod("p"))
	d := &builtin.DynamicResources{}
	allocations := testing.AllocsPerRun(100, func() {
		d.PreEnqueue(pod)
		d.Sign(pod)
		d.PreFilter(t.Context(), pod, &c.Snapshot)
		d.PreScore(t.Context(), pod, &c.Snapshot, nil)
	})
	if allocations > 0 {
		t.Errorf("%v allocations for a pod without claims, want none", allocations)
	}
}

// BenchmarkDevices decides about a pod with a claim for one of eight devices of each of 100 nodes, half of which are in use.
func BenchmarkDevices(b *testing.B) {
	c := &plugin.Cluster{}
	c.SetObject(resourceOf("deviceclasses"), &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example.com"`}}},
	}})
	claim := func(name string) *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
		}}}
		return c
	}
	for i := range 100 {
		node := fmt.Sprintf("n%d", i)
		c.SetNode(plugintest.Node(node))
		slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		}}
		for j := range 8 {
			device := fmt.Sprintf("gpu-%d", j)
			slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: device})
			if j < 4 {
				used := claim(node + "-" + device)
				used.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
					Request: "r", Driver: "gpu.example.com", Pool: node, Device: device,
				}}}}
				c.SetObject(resourceOf("resourceclaims"), used)
			}
		}
		c.SetObject(resourceOf("resourceslices"), slice)
	}
	c.SetObject(resourceOf("resourceclaims"), claim("new"))
	pod := plugin.NewPod(plugintest.Pod("p", `spec={resourceClaims: [{name: c, resourceClaimName: new}]}`))
	d := &builtin.DynamicResources{}
	decide := func() {
		check, v := d.PreFilter(b.Context(), pod, &c.Snapshot)
		if !v.OK() {
			b.Fatal(v)
		}
		for _, n := range c.Snapshot.Nodes() {
			if v := check.Filter(n); !v.OK() {
				b.Fatal(v)
			}
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	decide()
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportAllocs()
	for b.Loop() {
		decide()
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB-at-first")
}
