package kubeletconfig

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/internal/quantity"
	"github.com/sampan-io/sampan/node/cpumanager"
)

// Values of enforceNodeAllocatable.
const (
	enforcePods    = "pods"
	enforceNothing = "none"
)

// Enforced returns what pods may use together, of a node's capacity: what is not reserved for the system and for the agent. With an
// enforceNodeAllocatable that does not name pods, that is everything.
func (c *Config) Enforced(capacity corev1.ResourceList) corev1.ResourceList {
	if !slices.Contains(c.EnforceNodeAllocatable, enforcePods) {
		return capacity
	}
	return c.without(capacity, nil)
}

// Allocatable returns what of a node's capacity is for pods: without what is reserved for the system and for the agent,
// and without what evictionHard keeps free, as in upstream's kubelet. No amount is below zero.
func (c *Config) Allocatable(capacity corev1.ResourceList) corev1.ResourceList {
	out := c.without(capacity, map[corev1.ResourceName]string{
		corev1.ResourceMemory: c.EvictionHard["memory.available"], corev1.ResourceEphemeralStorage: c.EvictionHard["nodefs.available"],
	})
	// Memory in huge pages is not usable as ordinary memory.
	memory, has := out[corev1.ResourceMemory]
	for name, q := range capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) && has {
			memory.Sub(q)
		}
	}
	if has {
		if memory.Sign() < 0 {
			memory = *resource.NewQuantity(0, memory.Format)
		}
		out[corev1.ResourceMemory] = memory
	}
	return out
}

// without returns what is neither reserved nor kept free. No amount is below zero.
func (c *Config) without(capacity corev1.ResourceList, kept map[corev1.ResourceName]string) corev1.ResourceList {
	out := maps.Clone(capacity)
	for name, has := range out {
		left := has.DeepCopy()
		for _, reserved := range []map[string]string{c.SystemReserved, c.KubeReserved} {
			if q, err := quantity.Parse(reserved[string(name)]); err == nil {
				left.Sub(q)
			}
		}
		if a, err := parseAmount(kept[name]); err == nil {
			left.Sub(*resource.NewQuantity(a.Of(has.Value()), left.Format))
		}
		if left.Sign() < 0 {
			left = *resource.NewQuantity(0, left.Format)
		}
		out[name] = left
	}
	return out
}

// CPUManager returns the options of the policy static. Its reserved processors are those of reservedSystemCPUs, or as many as the
// CPU that is reserved, rounded up.
func (c *Config) CPUManager() cpumanager.Options {
	var o cpumanager.Options
	o.Reserved, _ = c.Reserved() // validate has refused others
	var sum resource.Quantity
	for _, amounts := range []map[string]string{c.SystemReserved, c.KubeReserved} {
		if q, err := quantity.Parse(amounts["cpu"]); err == nil {
			sum.Add(q)
		}
	}
	o.Amount = int(sum.Value())
	o.WholeCores, _ = strconv.ParseBool(c.CPUManagerPolicyOptions[cpumanager.WholeCoresOption])
	o.Strict, _ = strconv.ParseBool(c.CPUManagerPolicyOptions[cpumanager.StrictOption])
	return o
}

// Pods returns how many pods may be on the node at once, if it has so many processors.
func (c *Config) Pods(processors int) int {
	if c.PodsPerCore > 0 {
		return min(int(c.MaxPods), int(c.PodsPerCore)*processors)
	}
	return int(c.MaxPods)
}

// LogLimits returns the size in bytes at which the log of a container is rotated, and the number of files that are kept,
// with the one that is being written.
func (c *Config) LogLimits() (size int64, files int) {
	q, err := quantity.Parse(c.ContainerLogMaxSize)
	if err != nil {
		return 0, int(*c.ContainerLogMaxFiles) // validate has refused it
	}
	return q.Value(), int(*c.ContainerLogMaxFiles)
}
