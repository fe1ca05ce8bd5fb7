package crispec

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/node/eviction"
)

// swapFile is the file of cgroup v2 that limits swap, in bytes.
const swapFile = "memory.swap.max"

// A SwapLimit is how the kernel can limit the swap of a container.
type SwapLimit int

// Ways to limit swap.
const (
	SwapUnlimited  SwapLimit = iota // not at all: it does not account for swap
	SwapWithMemory                  // cgroup v1: memory and swap together, of containers with a memory limit
	SwapAlone                       // cgroup v2
)

// Swap is the swap of a node (KEP-2400).
type Swap struct {
	Limit SwapLimit
	Total int64 // bytes
	// Limited shares the swap among Burstable pods (swapBehavior LimitedSwap). Otherwise no container may use any.
	Limited bool
}

// allowance returns how much swap a container may use, in bytes: with LimitedSwap a container of a Burstable pod has that part of
// the swap of the node which its request is of the node's memory. Containers of critical pods have none, and neither have those
// without a request or whose request is also their limit.
func (s Swap) allowance(pod *corev1.Pod, qos corev1.PodQOSClass, c *corev1.Container, memory int64) int64 {
	request, limit := c.Resources.Requests.Memory(), c.Resources.Limits.Memory()
	switch {
	case !s.Limited, qos != corev1.PodQOSBurstable, eviction.Critical(pod), request.Cmp(*limit) == 0:
		return 0
	case memory <= 0, request.Value() > memory:
		return 0
	}
	return int64(float64(request.Value()) / float64(memory) * float64(s.Total))
}

// limit adds the limit of swap to the resources of a container. It is written even if the node has no swap, which can be switched on
// later.
func (s Swap) limit(r *cri.LinuxContainerResources, allowance int64) {
	switch s.Limit {
	case SwapUnlimited:
	case SwapAlone:
		if r.Unified == nil {
			r.Unified = map[string]string{}
		}
		r.Unified[swapFile] = strconv.FormatInt(allowance, 10)
	case SwapWithMemory:
		if r.MemoryLimitInBytes > 0 {
			r.MemorySwapLimitInBytes = r.MemoryLimitInBytes + allowance
		}
	}
}
