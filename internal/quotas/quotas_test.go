package quotas_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/sampan-io/sampan/internal/quotas"
)

func of(t *testing.T, name string) quotas.Resource {
	t.Helper()
	r, ok := quotas.Of(schema.ParseGroupResource(name))
	if !ok {
		t.Fatalf("%s is not counted", name)
	}
	return r
}

func format(list corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		parts = append(parts, string(name)+"="+q.String())
	}
	return strings.Join(parts, " ")
}

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestUsage(t *testing.T) {
	for _, tt := range []struct{ resource, object, want string }{
		{"pods", `{spec: {containers: [{}]}}`, "count/pods=1 pods=1"},
		{
			"pods", `{spec: {initContainers: [{resources: {requests: {cpu: 3}}}, {restartPolicy: Always, resources: {requests: {cpu: 500m}}}],
			  containers: [{resources: {requests: {cpu: 1, memory: 1Gi, hugepages-2Mi: 4Mi, example.com/gpu: 2, ephemeral-storage: 1Gi}, limits: {cpu: 2, ephemeral-storage: 2Gi}}}, {resources: {requests: {cpu: 1}}}]}}`,
			"count/pods=1 cpu=3 ephemeral-storage=1Gi hugepages-2Mi=4Mi limits.cpu=2 limits.ephemeral-storage=2Gi memory=1Gi pods=1 requests.cpu=3 " +
				"requests.ephemeral-storage=1Gi requests.example.com/gpu=2 requests.hugepages-2Mi=4Mi requests.memory=1Gi",
		},
		{"pods", `{spec: {overhead: {cpu: 250m}, resources: {requests: {cpu: 1}}, containers: [{resources: {requests: {cpu: 100m}}}]}}`, "count/pods=1 cpu=1250m pods=1 requests.cpu=1250m"},
		{
			"pods", `{spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}, status: {containerStatuses: [{name: c, allocatedResources: {cpu: 2}, resources: {requests: {cpu: 2}}}]}}`,
			"count/pods=1 cpu=2 pods=1 requests.cpu=2",
		},
		{"pods", `{spec: {containers: [{resources: {requests: {cpu: 1}}}]}, status: {phase: Failed}}`, "count/pods=1"},
		{"pods", `{metadata: {deletionTimestamp: "2025-12-31T23:59:40Z", deletionGracePeriodSeconds: 20}, spec: {containers: [{}]}}`, "count/pods=1 pods=1"},
		{"pods", `{metadata: {deletionTimestamp: "2025-12-31T23:59:39Z", deletionGracePeriodSeconds: 20}, spec: {containers: [{}]}}`, "count/pods=1"},
		{ // more than an int64 holds
			"pods", `{spec: {containers: [{resources: {requests: {cpu: 7E, memory: 7Ei, example.com/gpu: "9223372036854775807"}}}, {resources: {requests: {cpu: 7E, memory: 7Ei, example.com/gpu: "9223372036854775807"}}}]}}`,
			"count/pods=1 cpu=14E memory=14Ei pods=1 requests.cpu=14E requests.example.com/gpu=18446744073709551614 requests.memory=14Ei",
		},
		{"services", `{spec: {type: ClusterIP, ports: [{}]}}`, "count/services=1 services=1 services.loadbalancers=0 services.nodeports=0"},
		{"services", `{spec: {type: NodePort, ports: [{}, {}]}}`, "count/services=1 services=1 services.loadbalancers=0 services.nodeports=2"},
		{"services", `{spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{nodePort: 30000}, {}]}}`, "count/services=1 services=1 services.loadbalancers=1 services.nodeports=1"},
		{"persistentvolumeclaims", `{spec: {resources: {requests: {storage: "1.5"}}}}`, "count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=2"},
		{
			"persistentvolumeclaims", `{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: b}}, spec: {storageClassName: a, resources: {requests: {storage: 1Gi}}}, status: {allocatedResources: {storage: 2Gi}}}`,
			"b.storageclass.storage.k8s.io/persistentvolumeclaims=1 b.storageclass.storage.k8s.io/requests.storage=2Gi count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=2Gi",
		},
		{
			"resourceclaims.resource.k8s.io", `{spec: {devices: {requests: [{name: a, exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 2}}, {name: b, exactly: {deviceClassName: nic, allocationMode: All}},
			  {name: c, firstAvailable: [{deviceClassName: gpu, allocationMode: ExactCount, count: 3}, {deviceClassName: gpu, allocationMode: ExactCount, count: 4}, {deviceClassName: tpu, allocationMode: ExactCount, count: 1}]}]}}}`,
			"count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=6 nic.deviceclass.resource.k8s.io/devices=32 tpu.deviceclass.resource.k8s.io/devices=1",
		},
		{
			"resourceclaims.resource.k8s.io", `{spec: {devices: {requests: [{name: a, exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 9223372036854775807}}, {name: b, exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 2}}]}}}`,
			"count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=9223372036854775807",
		},
		{"secrets", `{}`, "count/secrets=1 secrets=1"},
		{"deployments.apps", `{}`, "count/deployments.apps=1"},
		{"endpointslices.discovery.k8s.io", `{}`, "count/endpointslices.discovery.k8s.io=1"},
	} {
		var obj quotas.Object = &corev1.ConfigMap{}
		switch tt.resource {
		case "pods":
			obj = &corev1.Pod{}
		case "services":
			obj = &corev1.Service{}
		case "persistentvolumeclaims":
			obj = &corev1.PersistentVolumeClaim{}
		case "resourceclaims.resource.k8s.io":
			obj = &resourcev1.ResourceClaim{}
		}
		if err := yaml.Unmarshal([]byte(tt.object), obj); err != nil {
			t.Fatal(err)
		}
		r := of(t, tt.resource)
		used := r.Usage(obj, now)
		if got := format(used); got != tt.want {
			t.Errorf("%s %s uses\n%s, want\n%s", tt.resource, tt.object, got, tt.want)
		}
		if names := r.Names(used); len(names) != len(used) {
			t.Errorf("%s %s: of %s only %s are counted", tt.resource, tt.object, format(used), names)
		}
	}
	if _, ok := quotas.Of(schema.GroupResource{Group: "events.k8s.io", Resource: "events"}); ok {
		t.Error("events are counted")
	}
}

// TestNamesBelongToOneResource is what a ledger for each resource relies on.
func TestNamesBelongToOneResource(t *testing.T) {
	hard := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{
		"pods", "count/pods", "cpu", "requests.memory", "limits.ephemeral-storage", "requests.example.com/gpu", "hugepages-1Gi", "requests.hugepages-2Mi",
		"requests.deviceclass.resource.kubernetes.io/gpu", "services", "count/services", "services.nodeports", "services.loadbalancers", "persistentvolumeclaims",
		"requests.storage", "gold.storageclass.storage.k8s.io/requests.storage", "configmaps", "resourcequotas", "replicationcontrollers", "count/jobs.batch",
	} {
		hard[name] = resource.MustParse("1")
	}
	owner := map[corev1.ResourceName]string{}
	for _, res := range []string{"pods", "services", "persistentvolumeclaims", "configmaps", "resourcequotas", "replicationcontrollers", "jobs.batch"} {
		for _, name := range of(t, res).Names(hard) {
			if owner[name] != "" {
				t.Errorf("%s belongs to %s and %s", name, owner[name], res)
			}
			owner[name] = res
		}
	}
	if len(owner) != len(hard) {
		t.Errorf("of %d names only %v belong to a resource", len(hard), owner)
	}
}

// TestLedgerEqualsRecount makes random changes and compares the ledger with the sum over all objects after each.
func TestLedgerEqualsRecount(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pods := of(t, "pods")
	ledger, objects, at := quotas.NewLedger(pods), map[string]*corev1.Pod{}, now
	all := []*corev1.ResourceQuota{{ObjectMeta: metav1.ObjectMeta{UID: "all"}}, {ObjectMeta: metav1.ObjectMeta{UID: "short"}}}
	for _, q := range all {
		q.Spec.Hard = corev1.ResourceList{"pods": {}, "count/pods": {}, "cpu": {}, "requests.memory": {}, "secrets": {}}
	}
	all[1].Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
	for step := range 5000 {
		at = at.Add(time.Duration(random.IntN(3)) * time.Second)
		name := fmt.Sprint("p", random.IntN(30))
		switch n := random.IntN(20); {
		case n < 4:
			delete(objects, name)
			ledger.Remove(name)
		case n == 4:
			all[1] = all[1].DeepCopy()
			all[1].Spec.Scopes = [][]corev1.ResourceQuotaScope{{corev1.ResourceQuotaScopeTerminating}, {corev1.ResourceQuotaScopeNotTerminating}}[random.IntN(2)]
		case n == 5:
			ledger.Keep(all[:1])
		default:
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
			pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				"cpu": *resource.NewMilliQuantity(random.Int64N(100), resource.DecimalSI), "memory": *resource.NewQuantity(random.Int64N(1<<40), resource.BinarySI),
			}}}}
			if random.IntN(3) == 0 {
				pod.Spec.ActiveDeadlineSeconds = new(int64(1))
			}
			if random.IntN(3) == 0 {
				pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &metav1.Time{Time: at}, new(random.Int64N(5))
			}
			objects[name] = pod
			ledger.Set(pod, at)
		}
		for _, q := range all {
			want := corev1.ResourceList{"pods": {}, "count/pods": {}, "cpu": {}, "requests.memory": {}}
			for _, pod := range objects {
				if !pods.Includes(&q.Spec, pod) {
					continue
				}
				for name, more := range pods.Usage(pod, at) {
					if sum, ok := want[name]; ok {
						sum.Add(more)
						want[name] = sum
					}
				}
			}
			got := ledger.Used(q, at)
			for name, w := range want {
				if g, ok := got[name]; !ok || g.Cmp(w) != 0 || len(got) != len(want) {
					t.Fatalf("step %d: quota %s: used %s, want %s", step, q.UID, format(got), format(want))
				}
			}
		}
	}
}
