package crispec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The units of the kernel's CPU controller, and the bounds that Kubernetes keeps.
const (
	sharesPerCPU = 1024
	minShares    = 2
	maxShares    = 262144
	quotaPeriod  = 100_000 // microseconds
	minQuota     = 1_000
)

// The kernel's badness adjustments by quality of service: processes with a higher
// value are killed first when memory runs out.
const (
	guaranteedOOMScore = -997
	bestEffortOOMScore = 1000
	criticalPriority   = 2_000_000_000 // priority from which a pod is critical to the node
)

// Capacity is what a node has, as far as containers' limits depend on it.
type Capacity struct {
	MilliCPU int64
	Memory   int64 // bytes
}

// Resources translates the resources of one container.
func Resources(pod *corev1.Pod, qos corev1.PodQOSClass, c *corev1.Container, node Capacity) *cri.LinuxContainerResources {
	r := linux(c.Resources.Requests, c.Resources.Limits)
	r.OomScoreAdj = OOMScore(pod, qos, c, node.Memory)
	return r
}

// PodResources translates the sum of the containers' resources. The pod has a limit only
// if every container has one.
func PodResources(pod *corev1.Pod) *cri.LinuxContainerResources {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q, _ := total(pod, name, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Requests }); !q.IsZero() {
			requests[name] = q
		}
		if q, all := total(pod, name, func(r *corev1.ResourceRequirements) corev1.ResourceList { return r.Limits }); all {
			limits[name] = q
		}
	}
	return linux(requests, limits)
}

// total adds a resource up over the containers, or takes the largest init
// container's if that is more, and reports whether each of them names it.
func total(pod *corev1.Pod, name corev1.ResourceName, of func(*corev1.ResourceRequirements) corev1.ResourceList) (resource.Quantity, bool) {
	var sum resource.Quantity
	all := true
	for i := range pod.Spec.Containers {
		q, ok := of(&pod.Spec.Containers[i].Resources)[name]
		all = all && ok
		sum.Add(q)
	}
	for i := range pod.Spec.InitContainers {
		q, ok := of(&pod.Spec.InitContainers[i].Resources)[name]
		all = all && ok
		if q.Cmp(sum) > 0 {
			sum = q.DeepCopy()
		}
	}
	return sum, all
}

func linux(requests, limits corev1.ResourceList) *cri.LinuxContainerResources {
	r := &cri.LinuxContainerResources{CpuShares: minShares}
	cpu, ok := requests[corev1.ResourceCPU]
	if !ok {
		cpu = limits[corev1.ResourceCPU]
	}
	if m := cpu.MilliValue(); m > 0 {
		r.CpuShares = min(max(m*sharesPerCPU/1000, minShares), maxShares)
	}
	if limit := limits[corev1.ResourceCPU]; !limit.IsZero() {
		r.CpuPeriod = quotaPeriod
		r.CpuQuota = max(limit.MilliValue()*quotaPeriod/1000, minQuota)
	}
	if limit := limits[corev1.ResourceMemory]; !limit.IsZero() {
		r.MemoryLimitInBytes = limit.Value()
		r.MemorySwapLimitInBytes = limit.Value() // no swap on top
	}
	return r
}

// OOMScore returns the oom_score_adj of a container: the less of the node's
// memory a burstable one asked for, the sooner it goes.
func OOMScore(pod *corev1.Pod, qos corev1.PodQOSClass, c *corev1.Container, memory int64) int64 {
	switch {
	case pod.Spec.Priority != nil && *pod.Spec.Priority >= criticalPriority, qos == corev1.PodQOSGuaranteed:
		return guaranteedOOMScore
	case qos == corev1.PodQOSBestEffort:
		return bestEffortOOMScore
	}
	if memory <= 0 {
		return bestEffortOOMScore - 1
	}
	request := c.Resources.Requests.Memory().Value()
	// Never as safe as a guaranteed pod, never as exposed as one that asks for
	// nothing.
	return min(max(1000-1000*request/memory, 1000+guaranteedOOMScore), bestEffortOOMScore-1)
}
