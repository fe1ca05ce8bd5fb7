package crispec

import (
	"math"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resources "k8s.io/component-helpers/resource"

	"github.com/sampan-io/sampan/internal/podresources"
)

// Files of cgroup v2, in bytes: memory that the kernel never takes away, memory that it takes away last, and the use from which it
// slows processes down while it takes their memory away.
const (
	memoryMin  = "memory.min"
	memoryLow  = "memory.low"
	memoryHigh = "memory.high"
)

// MemoryQoS is how a node with cgroup v2 throttles and protects the memory of pods (KEP-2570). The zero value does neither.
type MemoryQoS struct {
	// Unified is whether the node has cgroup v2.
	Unified bool
	// Factor is between 0 and 1: the part of the memory between request and limit from which a container is throttled
	// (memoryThrottlingFactor). 0 throttles none.
	Factor float64
	// Protect protects the memory that pods request (memoryReservationPolicy TieredReservation): that of Guaranteed pods for
	// certain, and that of Burstable pods as long as there is other memory to take away.
	Protect bool
	// Allocatable is the memory for pods, in bytes. It takes the place of the limit of containers that have none.
	Allocatable int64
}

// files returns the files of a container's cgroup. All are in it: a resize can end what the file had before.
func (m MemoryQoS) files(pod *corev1.Pod, qos corev1.PodQOSClass, c *corev1.Container) map[string]string {
	if !m.Unified {
		return nil
	}
	files := map[string]string{memoryMin: "0", memoryLow: "0", memoryHigh: "max"}
	request, limit := c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value()
	if m.Protect && request > 0 {
		file := memoryLow
		if qos == corev1.PodQOSGuaranteed {
			file = memoryMin
		}
		files[file] = strconv.FormatInt(request, 10)
	}
	ofPod := limit == 0 && pod.Spec.Resources != nil && !pod.Spec.Resources.Limits.Memory().IsZero()
	if limit == 0 {
		limit = m.Allocatable
	}
	if high := m.high(request, limit); high > 0 && !ofPod { // that of the pod counts for all its containers
		files[memoryHigh] = strconv.FormatInt(high, 10)
	}
	return files
}

// Pod returns the files of a pod's cgroup.
func (m MemoryQoS) Pod(pod *corev1.Pod) map[string]string {
	if !m.Unified {
		return nil
	}
	files := map[string]string{memoryHigh: "max"}
	if !resources.IsPodLevelResourcesSet(pod) || !limited(pod, corev1.ResourceMemory) {
		return files
	}
	requests, limits := podresources.Requests(pod, podresources.Options{}), podresources.Limits(pod, podresources.Options{})
	if high := m.high(requests.Memory().Value(), limits.Memory().Value()); high > 0 {
		files[memoryHigh] = strconv.FormatInt(high, 10)
	}
	return files
}

// Protected returns how much memory of a pod, in bytes, is protected: by memory.min for Guaranteed pods, and otherwise by
// memory.low.
func (m MemoryQoS) Protected(pod *corev1.Pod, qos corev1.PodQOSClass) int64 {
	if !m.Unified || !m.Protect || qos == corev1.PodQOSBestEffort {
		return 0
	}
	requests := podresources.Requests(pod, podresources.Options{})
	return max(0, requests.Memory().Value())
}

// high returns from how many bytes on memory is throttled, in whole pages; 0 means never.
func (m MemoryQoS) high(request, limit int64) int64 {
	if m.Factor == 0 || limit == 0 || request == limit {
		return 0
	}
	page := int64(os.Getpagesize())
	high := int64(math.Floor(float64(request)+(float64(limit)-float64(request))*m.Factor)/float64(page)) * page
	if high <= request {
		return 0
	}
	return high
}
