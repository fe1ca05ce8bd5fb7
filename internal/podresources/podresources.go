// Package podresources adds up what a pod requests and is limited to, as k8s.io/component-helpers/resource does, at a cost that
// is linear in the size of the pod.
//
// The library adds all sidecars so far again for each init container, and looks for each container's status from the
// beginning: 20,000 sidecars with a resource each cost it a minute. Here it gets a pod with one container in place of many.
package podresources

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// few is the number of containers up to which the library gets a pod as it is.
const few = 16

// Options are those of the library. Reuse, NonMissingContainerRequests and UseDRANodeAllocatableResourceClaimStatus are not
// supported.
type Options = resource.PodResourcesOptions

// Requests returns what a pod requests at its most demanding moment.
func Requests(pod *corev1.Pod, o Options) corev1.ResourceList {
	return resource.PodRequests(flat(pod), o)
}

// Limits returns the limits of a pod.
func Limits(pod *corev1.Pod, o Options) corev1.ResourceList { return resource.PodLimits(flat(pod), o) }

// ContainerRequests returns what the containers of a pod request together, without what the pod requests as a whole.
func ContainerRequests(pod *corev1.Pod, o Options) corev1.ResourceList {
	return resource.AggregateContainerRequests(flat(pod), o)
}

// flat returns a pod with the same sums and one container. A pod with few containers is returned as it is.
func flat(pod *corev1.Pod) *corev1.Pod {
	if len(pod.Spec.Containers)+len(pod.Spec.InitContainers) <= few {
		return pod
	}
	statuses := make(map[string]*corev1.ContainerStatus, len(pod.Status.ContainerStatuses)+len(pod.Status.InitContainerStatuses))
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range list {
			if statuses[list[i].Name] == nil {
				statuses[list[i].Name] = &list[i]
			}
		}
	}
	// Where a status says nothing, the specification holds, unless the node cannot make the resize that it asks for.
	fallback := func(spec corev1.ResourceList) corev1.ResourceList { return spec }
	if resource.IsPodResizeInfeasible(pod) {
		fallback = func(corev1.ResourceList) corev1.ResourceList { return nil }
	}
	allocated := func(c *corev1.Container) corev1.ResourceList {
		if s := statuses[c.Name]; s != nil && s.AllocatedResources != nil {
			return s.AllocatedResources
		}
		return fallback(c.Resources.Requests)
	}
	actual := func(c *corev1.Container) corev1.ResourceList {
		if s := statuses[c.Name]; s != nil && s.Resources != nil && s.Resources.Requests != nil {
			return s.Resources.Requests
		}
		return allocated(c)
	}
	limited := func(c *corev1.Container) corev1.ResourceList {
		if s := statuses[c.Name]; s != nil && s.Resources != nil && s.Resources.Limits != nil {
			return s.Resources.Limits
		}
		return fallback(c.Resources.Limits)
	}
	out := *pod
	out.Spec.InitContainers = nil
	out.Spec.Containers = []corev1.Container{{Name: "all", Resources: corev1.ResourceRequirements{
		Requests: peak(pod, func(c *corev1.Container) corev1.ResourceList { return c.Resources.Requests }),
		Limits:   peak(pod, func(c *corev1.Container) corev1.ResourceList { return c.Resources.Limits }),
	}}}
	out.Status.InitContainerStatuses = nil
	out.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "all", AllocatedResources: peak(pod, allocated),
		Resources: &corev1.ResourceRequirements{Requests: peak(pod, actual), Limits: peak(pod, limited)},
	}}
	return &out
}

// peak adds up the lists of containers and sidecars, or takes what one init container has beside the sidecars before it, whichever
// is more. It is never nil.
func peak(pod *corev1.Pod, of func(*corev1.Container) corev1.ResourceList) corev1.ResourceList {
	sum, sidecars, most := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range pod.Spec.Containers {
		add(sum, of(&pod.Spec.Containers[i]))
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		list := of(c)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(sum, list)
			add(sidecars, list)
			continue
		}
		for name, q := range list { // what it does not have itself is in the sum of the sidecars at the end
			q = q.DeepCopy()
			q.Add(sidecars[name])
			if has, ok := most[name]; !ok || q.Cmp(has) > 0 {
				most[name] = q
			}
		}
	}
	for name, q := range most {
		if has, ok := sum[name]; !ok || q.Cmp(has) > 0 {
			sum[name] = q
		}
	}
	return sum
}

func add(to, list corev1.ResourceList) {
	for name, q := range list {
		has, ok := to[name]
		if !ok {
			to[name] = q.DeepCopy()
			continue
		}
		has.Add(q)
		to[name] = has
	}
}
