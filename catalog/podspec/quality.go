package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// QOS returns the quality of service class of a pod, which decides the order of eviction when a
// node runs out of memory: BestEffort if no container requests CPU or memory, Guaranteed if each
// has limits for both that equal its requests, Burstable otherwise. The requests of the pod as a
// whole count in place of those of its containers.
func QOS(spec *corev1.PodSpec) corev1.PodQOSClass {
	if spec.Resources != nil && (counts(spec.Resources.Requests) || counts(spec.Resources.Limits)) {
		if guaranteed(spec.Resources) {
			return corev1.PodQOSGuaranteed
		}
		return corev1.PodQOSBurstable
	}
	all, asks := true, false
	for c := range containers(spec) {
		asks = asks || counts(c.Resources.Requests) || counts(c.Resources.Limits)
		all = all && guaranteed(&c.Resources)
	}
	switch {
	case !asks:
		return corev1.PodQOSBestEffort
	case all:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

func counts(list corev1.ResourceList) bool {
	return more(list[corev1.ResourceCPU]) || more(list[corev1.ResourceMemory])
}

func more(q resource.Quantity) bool { return q.Sign() > 0 }

func guaranteed(r *corev1.ResourceRequirements) bool {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		limit := r.Limits[name]
		if !more(limit) {
			return false
		}
		// A limit without a request is a request as well (see DefaultPod).
		if request, ok := r.Requests[name]; ok && more(request) && request.Cmp(limit) != 0 {
			return false
		}
	}
	return true
}
