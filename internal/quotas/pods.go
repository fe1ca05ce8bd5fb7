package quotas

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	helper "k8s.io/component-helpers/resource"

	"github.com/sampan-io/sampan/internal/podresources"
	"github.com/sampan-io/sampan/internal/podstate"
)

const countPods = corev1.ResourceName("count/pods")

// countsForPods reports whether pods count towards a name: a fixed one, huge pages of a size, or an extended resource.
func countsForPods(name corev1.ResourceName) bool {
	switch name {
	case countPods, corev1.ResourcePods,
		corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU,
		corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory,
		corev1.ResourceEphemeralStorage, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsEphemeralStorage:
		return true
	}
	if isHugePages(name) {
		return true
	}
	of, requests := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
	return requests && (isHugePages(corev1.ResourceName(of)) || !native(name) || strings.HasPrefix(of, resourcev1.ResourceDeviceClassPrefix))
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// native reports whether a name is one of Kubernetes' own: without a domain, or in kubernetes.io.
func native(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// extended reports whether a container may request a name from a device plug-in or a device class.
func extended(name corev1.ResourceName) bool {
	if strings.HasPrefix(string(name), resourcev1.ResourceDeviceClassPrefix) {
		return true
	}
	return !native(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// podUsage returns what a pod uses. A pod that ended counts as an object only, and so does one whose node should have
// deleted it a grace period ago.
func podUsage(obj Object, now time.Time) corev1.ResourceList {
	used := corev1.ResourceList{countPods: number(1)}
	pod, ok := obj.(*corev1.Pod)
	if !ok || podstate.Finished(pod) {
		return used
	}
	if end := podExpires(obj); !end.IsZero() && now.After(end) {
		return used
	}
	opts := podresources.Options{UseStatusResources: reportsResources(pod.Status.ContainerStatuses) || reportsResources(pod.Status.InitContainerStatuses)}
	maps.Copy(used, computeUsage(podresources.Requests(pod, opts), podresources.Limits(pod, opts)))
	return used
}

// reportsResources reports whether a container has resources in the status. While it is being resized, the larger of its
// old and new values counts. Otherwise the specification is enough, and is much faster to add up.
func reportsResources(statuses []corev1.ContainerStatus) bool {
	for i := range statuses {
		if statuses[i].Resources != nil || statuses[i].AllocatedResources != nil {
			return true
		}
	}
	return false
}

// podExpires returns when a pod that is being deleted stops to count, or zero.
func podExpires(obj Object) time.Time {
	pod, ok := obj.(*corev1.Pod)
	if !ok || podstate.Finished(pod) || pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return time.Time{}
	}
	return pod.DeletionTimestamp.Add(time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second)
}

// computeUsage returns what requests and limits use, under all their names.
func computeUsage(requests, limits corev1.ResourceList) corev1.ResourceList {
	used := corev1.ResourceList{corev1.ResourcePods: number(1)}
	for name, q := range requests {
		switch {
		case name == corev1.ResourceCPU, name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage, isHugePages(name):
			used[name] = q
			used[corev1.DefaultResourceRequestsPrefix+name] = q
		case extended(name):
			used[corev1.DefaultResourceRequestsPrefix+name] = q
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if q, ok := limits[name]; ok {
			used["limits."+name] = q
		}
	}
	return used
}

// podMissing returns an error if a container has no value for CPU or memory that is counted, unless the pod as a whole
// has values.
func podMissing(names []corev1.ResourceName, obj Object) error {
	pod, ok := obj.(*corev1.Pod)
	if !ok || helper.IsPodLevelResourcesSet(pod) {
		return nil
	}
	missing := map[corev1.ResourceName][]string{} // names of containers
	check := func(c *corev1.Container) {
		used := computeUsage(c.Resources.Requests, c.Resources.Limits)
		for _, name := range names {
			switch name {
			case corev1.ResourceCPU, corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU,
				corev1.ResourceMemory, corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory:
				if _, ok := used[name]; !ok {
					missing[name] = append(missing[name], c.Name)
				}
			}
		}
	}
	for i := range pod.Spec.Containers {
		check(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		check(&pod.Spec.InitContainers[i])
	}
	if len(missing) == 0 {
		return nil
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		slices.Sort(missing[name])
		parts = append(parts, string(name)+" for: "+strings.Join(slices.Compact(missing[name]), ","))
	}
	return errors.New("must specify " + strings.Join(parts, "; "))
}

func podInScope(s corev1.ScopedResourceSelectorRequirement, obj Object) bool {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return false
	}
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return HasDeadline(pod)
	case corev1.ResourceQuotaScopeNotTerminating:
		return !HasDeadline(pod)
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort(pod)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort(pod)
	case corev1.ResourceQuotaScopePriorityClass:
		if pod.Spec.PriorityClassName == "" {
			return selects(s)
		}
		return selects(s, pod.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return crossesNamespaces(pod)
	case corev1.ResourceQuotaScopeVolumeAttributesClass:
	}
	return false
}

// HasDeadline reports whether a pod ends by itself after a time. The scope Terminating has these pods.
func HasDeadline(pod *corev1.Pod) bool {
	return pod.Spec.ActiveDeadlineSeconds != nil && *pod.Spec.ActiveDeadlineSeconds >= 0
}

// bestEffort reports whether a pod has the quality of service class of that name, which the API server sets.
func bestEffort(pod *corev1.Pod) bool { return pod.Status.QOSClass == corev1.PodQOSBestEffort }

// crossesNamespaces reports whether an affinity of a pod looks at pods in namespaces that it names or selects.
func crossesNamespaces(pod *corev1.Pod) bool {
	a := pod.Spec.Affinity
	if a == nil {
		return false
	}
	crosses := func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil }
	prefers := func(t corev1.WeightedPodAffinityTerm) bool { return crosses(t.PodAffinityTerm) }
	if p := a.PodAffinity; p != nil &&
		(slices.ContainsFunc(p.RequiredDuringSchedulingIgnoredDuringExecution, crosses) || slices.ContainsFunc(p.PreferredDuringSchedulingIgnoredDuringExecution, prefers)) {
		return true
	}
	p := a.PodAntiAffinity
	return p != nil &&
		(slices.ContainsFunc(p.RequiredDuringSchedulingIgnoredDuringExecution, crosses) || slices.ContainsFunc(p.PreferredDuringSchedulingIgnoredDuringExecution, prefers))
}
