package crispec

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/podresources"
	"github.com/sampan-io/sampan/internal/quantity"
)

// The units of the kernel's CPU controller, and the bounds that Kubernetes keeps.
const (
	sharesPerCPU = 1024
	minShares    = 2
	maxShares    = 262144
	quotaPeriod  = 100_000 // microseconds
	minQuota     = 1_000
	maxQuota     = 1 << 40 // below the largest one of the kernel, 2^44 microseconds
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
	Swap     Swap
	QoS      MemoryQoS
	NoQuota  bool // limits of CPU are not enforced
	// CPUs are the processors of the container, such as 0-1,3; empty means all. If Exclusive is true, no other container has them, and
	// they are its limit.
	CPUs      string
	Exclusive bool
}

// Resources translates the resources of one container.
func Resources(pod *corev1.Pod, qos corev1.PodQOSClass, c *corev1.Container, node Capacity) *cri.LinuxContainerResources {
	limits := effectiveLimits(pod, c)
	r := linux(c.Resources.Requests, limits)
	r.HugepageLimits = hugepages(limits)
	r.OomScoreAdj = oomScore(pod, qos, c, node.Memory)
	r.Unified = node.QoS.files(pod, qos, c)
	r.CpusetCpus = node.CPUs
	if node.NoQuota || node.Exclusive {
		r.CpuPeriod, r.CpuQuota = 0, 0
	}
	node.Swap.limit(r, node.Swap.allowance(pod, qos, c, node.Memory))
	return r
}

// effectiveLimits returns the limits of a container. Where it has none of its own, those of the pod hold.
func effectiveLimits(pod *corev1.Pod, c *corev1.Container) corev1.ResourceList {
	if pod.Spec.Resources == nil {
		return c.Resources.Limits
	}
	limits := maps.Clone(c.Resources.Limits)
	for name, q := range pod.Spec.Resources.Limits {
		if own := limits[name]; own.IsZero() {
			if limits == nil {
				limits = corev1.ResourceList{}
			}
			limits[name] = q
		}
	}
	return limits
}

// NodeResources translates what the pods of a node may use together.
func NodeResources(capacity corev1.ResourceList) *cri.LinuxContainerResources {
	return &cri.LinuxContainerResources{
		CpuShares:          min(max(capacity.Cpu().MilliValue()*sharesPerCPU/1000, minShares), maxShares),
		MemoryLimitInBytes: capacity.Memory().Value(),
	}
}

// PodResources translates the resources of the whole pod, with its overhead, as kubelet limits the cgroup of a pod: by the
// resources of the pod where it has them, otherwise by the sum of the containers', of which each must have a limit. A pod of
// the class BestEffort has none.
func PodResources(pod *corev1.Pod, qos corev1.PodQOSClass) *cri.LinuxContainerResources {
	if qos == corev1.PodQOSBestEffort {
		return &cri.LinuxContainerResources{CpuShares: minShares}
	}
	requests := podresources.Requests(pod, podresources.Options{})
	limits := podresources.Limits(pod, podresources.Options{})
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if !limited(pod, name) {
			delete(limits, name)
		}
	}
	r := linux(requests, limits)
	r.HugepageLimits = hugepages(requests)
	return r
}

// limited reports whether the pod as a whole has a limit: its own, or one for each container.
func limited(pod *corev1.Pod, name corev1.ResourceName) bool {
	if own := pod.Spec.Resources; own != nil {
		if q, ok := own.Limits[name]; ok && !q.IsZero() {
			return true
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if q := list[i].Resources.Limits[name]; q.IsZero() {
				return false
			}
		}
	}
	return true
}

// overhead translates what the pod needs besides its containers.
func overhead(pod *corev1.Pod) *cri.LinuxContainerResources {
	if len(pod.Spec.Overhead) == 0 {
		return &cri.LinuxContainerResources{}
	}
	return linux(pod.Spec.Overhead, pod.Spec.Overhead)
}

// hugepages returns the limits of pages of each size that the list names.
func hugepages(list corev1.ResourceList) []*cri.HugepageLimit {
	var limits []*cri.HugepageLimit
	for name, q := range list {
		text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		size, err := quantity.Parse(text)
		if err != nil {
			continue // the API server refuses such names
		}
		limits = append(limits, &cri.HugepageLimit{PageSize: pageSize(size.Value()), Limit: uint64(max(0, q.Value()))})
	}
	slices.SortFunc(limits, func(a, b *cri.HugepageLimit) int { return strings.Compare(a.GetPageSize(), b.GetPageSize()) })
	return limits
}

// pageSize returns the name of a size of pages, in bytes, as the kernel's cgroups have it.
func pageSize(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB"}
	i := 0
	for bytes >= 1024 && bytes%1024 == 0 && i < len(units)-1 {
		bytes /= 1024
		i++
	}
	return strconv.FormatInt(bytes, 10) + units[i]
}

func linux(requests, limits corev1.ResourceList) *cri.LinuxContainerResources {
	r := &cri.LinuxContainerResources{CpuShares: minShares}
	cpu, ok := requests[corev1.ResourceCPU]
	if !ok {
		cpu = limits[corev1.ResourceCPU]
	}
	if cpu.CmpInt64(maxShares/sharesPerCPU) >= 0 {
		r.CpuShares = maxShares
	} else if m := cpu.MilliValue(); m > 0 {
		r.CpuShares = min(max(m*sharesPerCPU/1000, minShares), maxShares)
	}
	if limit := limits[corev1.ResourceCPU]; !limit.IsZero() {
		r.CpuPeriod = quotaPeriod
		r.CpuQuota = maxQuota
		if limit.CmpInt64(maxQuota/quotaPeriod) < 0 {
			r.CpuQuota = max(limit.MilliValue()*quotaPeriod/1000, minQuota)
		}
	}
	if limit := limits[corev1.ResourceMemory]; !limit.IsZero() {
		r.MemoryLimitInBytes = math.MaxInt64
		if limit.CmpInt64(math.MaxInt64) < 0 {
			r.MemoryLimitInBytes = limit.Value()
		}
	}
	return r
}

// oomScore returns the oom_score_adj of a container: the less of the node's
// memory a burstable one asked for, the sooner it goes.
func oomScore(pod *corev1.Pod, qos corev1.PodQOSClass, c *corev1.Container, memory int64) int64 {
	switch {
	case pod.Spec.Priority != nil && *pod.Spec.Priority >= criticalPriority, qos == corev1.PodQOSGuaranteed:
		return guaranteedOOMScore
	case qos == corev1.PodQOSBestEffort:
		return bestEffortOOMScore
	}
	var least int64
	if memory <= 0 {
		return bestEffortOOMScore - 1
	}
	request := c.Resources.Requests.Memory().Value() + shareOfPod(pod)
	if sidecar(pod, c) { // it goes no sooner than the containers that it serves
		for i := range pod.Spec.Containers {
			own := pod.Spec.Containers[i].Resources.Requests.Memory().Value() + shareOfPod(pod)
			if i == 0 || own < least {
				least = own
			}
		}
		request = max(request, least)
	}
	// Never as safe as a guaranteed pod, never as exposed as one that asks for
	// nothing.
	return min(max(1000-1000*request/memory, 1000+guaranteedOOMScore), bestEffortOOMScore-1)
}

// sidecar reports whether c is an init container that runs beside the others.
func sidecar(pod *corev1.Pod, c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways &&
		slices.ContainsFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name })
}

// shareOfPod returns one container's share of the memory, in bytes, that the pod requests beyond its containers.
func shareOfPod(pod *corev1.Pod) int64 {
	own := pod.Spec.Resources
	if own == nil || len(pod.Spec.Containers) == 0 {
		return 0
	}
	q, asked := own.Requests[corev1.ResourceMemory]
	if !asked {
		return 0
	}
	sum := podresources.ContainerRequests(pod, podresources.Options{})
	count := len(pod.Spec.Containers) + len(pod.Spec.InitContainers)
	return max(0, q.Value()-sum.Memory().Value()) / int64(count)
}
