package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PrepareResize carries everything over from old to spec that a resize does not change: it changes the resources and
// the resize policies of containers, and the resources of the pod. If the containers are not the same, it changes
// nothing, so that [ValidateResize] can say so.
func PrepareResize(spec, old *corev1.PodSpec) {
	main, init, ok := resized(spec, old)
	if !ok {
		return
	}
	whole := spec.Resources
	*spec = *old
	spec.Containers, spec.InitContainers = main, init
	if spec.Resources = whole; whole == nil && old.Resources != nil {
		// A client that does not know the field leaves it out.
		spec.Resources = old.Resources.DeepCopy()
	}
	if spec.Resources != nil {
		requestPodLimits(spec)
	}
}

// resized returns the containers of old with the resources and policies of spec. It reports false if a container was
// added or removed.
func resized(spec, old *corev1.PodSpec) (main, init []corev1.Container, ok bool) {
	if len(spec.Containers) != len(old.Containers) || len(spec.InitContainers) != len(old.InitContainers) {
		return nil, nil, false
	}
	return resizedList(spec.Containers, old.Containers), resizedList(spec.InitContainers, old.InitContainers), true
}

func resizedList(now, old []corev1.Container) []corev1.Container {
	if len(now) == 0 {
		return now
	}
	list := make([]corev1.Container, len(old))
	copy(list, old)
	for i := range list {
		if now[i].Name != old[i].Name {
			return now
		}
		list[i].Resources, list[i].ResizePolicy = now[i].Resources, now[i].ResizePolicy
	}
	return list
}

// ValidateResize returns the faults of a resize from old to spec, which went through [PrepareResize]. The specification
// itself is checked by [Validate]. class is the quality of service class of the pod.
func ValidateResize(spec, old *corev1.PodSpec, class corev1.PodQOSClass, at *field.Path) field.ErrorList {
	var r report
	if QOS(spec) != class {
		r.invalid(where{at}, class, "Pod QOS Class may not change as a result of resizing")
	}
	same := spec.DeepCopy()
	if hasOwnResources(spec) || hasOwnResources(old) {
		r.checkPodResize(spec, old, where{at})
		same.Resources = withoutComputing(same.Resources, old.Resources)
		if !equality.Semantic.DeepEqual(same.Resources, old.Resources) {
			r.forbidden(where{at}, "only cpu and memory resources are mutable at pod-level")
		}
		same.Resources = old.Resources
	}
	if !r.checkSameContainers(spec, old, where{at}) {
		return r.errs
	}
	for i := range old.InitContainers {
		r.checkKept(&spec.InitContainers[i].Resources, &old.InitContainers[i].Resources, where{at}.child("initContainers").index(i).child("resources"))
	}
	for i := range old.Containers {
		r.checkKept(&spec.Containers[i].Resources, &old.Containers[i].Resources, where{at}.child("containers").index(i).child("resources"))
	}
	for i := range same.Containers {
		if !restored(&same.Containers[i], &old.Containers[i]) {
			r.forbidden(where{at}, "only cpu and memory resources are mutable")
		}
	}
	for i := range same.InitContainers {
		r.checkInitResize(&same.InitContainers[i], &old.InitContainers[i], where{at}.child("initContainers").index(i))
	}
	if !equality.Semantic.DeepEqual(spec.Volumes, old.Volumes) {
		r.forbidden(where{at}.child("volumes"), "volumes are immutable on resize when InPlacePodVerticalScalingMemoryBackedVolumes feature gate is disabled")
	}
	if len(r.errs) == 0 && !equality.Semantic.DeepEqual(same, old) {
		r.forbidden(where{at}, "only cpu and memory resources are mutable")
	}
	return r.errs
}

// checkPodResize checks a change of the resources of a pod as a whole.
func (r *report) checkPodResize(spec, old *corev1.PodSpec, at where) {
	switch {
	case old.Resources == nil:
	case spec.Resources == nil:
		r.forbidden(at.child("resources"), "pod-level resources cannot be removed")
	default:
		if lacks(spec.Resources.Requests, old.Resources.Requests) {
			r.forbidden(at.child("resources", "requests"), "pod-level resource requests cannot be removed")
		}
		if lacks(spec.Resources.Limits, old.Resources.Limits) {
			r.forbidden(at.child("resources", "limits"), "pod-level resource limits cannot be removed")
		}
	}
}

func (r *report) checkSameContainers(spec, old *corev1.PodSpec, at where) bool {
	before := len(r.errs)
	for _, list := range []struct {
		name     string
		now, was []corev1.Container
	}{{"containers", spec.Containers, old.Containers}, {"initContainers", spec.InitContainers, old.InitContainers}} {
		if len(list.now) != len(list.was) {
			r.forbidden(at.child(list.name), list.name+" may not be added or removed on resize")
			continue
		}
		for i := range list.was {
			if list.now[i].Name != list.was[i].Name {
				r.forbidden(at.child(list.name).index(i).child("name"), list.name+" may not be renamed or reordered on resize")
			}
		}
	}
	return len(r.errs) == before
}

func (r *report) checkKept(now, old *corev1.ResourceRequirements, at where) {
	if lacks(now.Requests, old.Requests) {
		r.forbidden(at.child("requests"), "resource requests cannot be removed")
	}
	if lacks(now.Limits, old.Limits) {
		r.forbidden(at.child("limits"), "resource limits cannot be removed")
	}
}

// checkInitResize checks a change of an init container, and takes the changeable fields out of it.
func (r *report) checkInitResize(now, old *corev1.Container, at where) {
	changed := !equality.Semantic.DeepEqual(now, old)
	if !restored(now, old) {
		r.forbidden(at, "only cpu and memory resources for init or sidecar containers are mutable")
	}
	if !changed || RunsBeside(now) {
		return
	}
	for _, p := range now.ResizePolicy {
		if p.RestartPolicy == corev1.RestartContainer {
			r.forbidden(at, "non-sidecar init containers with a resize policy of RestartContainer cannot be resized")
		}
	}
}

// restored gives now the CPU and memory of old, and reports whether it then equals old.
func restored(now, old *corev1.Container) bool {
	now.Resources = *withoutComputing(&now.Resources, &old.Resources)
	return equality.Semantic.DeepEqual(now, old)
}

// withoutComputing returns r with the CPU and memory of old. It is nil if there is nothing else in r, and old is nil.
func withoutComputing(r, old *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if r == nil {
		return nil
	}
	var was corev1.ResourceRequirements
	if old != nil {
		was = *old
	}
	out := &corev1.ResourceRequirements{
		Limits: withComputingOf(r.Limits, was.Limits), Requests: withComputingOf(r.Requests, was.Requests), Claims: r.Claims,
	}
	if old == nil && len(out.Limits)+len(out.Requests)+len(out.Claims) == 0 {
		return nil
	}
	return out
}

func withComputingOf(list, old corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range list {
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory {
			out[name] = q
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if q, ok := old[name]; ok {
			out[name] = q
		}
	}
	return out
}

// hasOwnResources reports whether a pod has resources as a whole.
func hasOwnResources(spec *corev1.PodSpec) bool {
	return spec.Resources != nil && len(spec.Resources.Requests)+len(spec.Resources.Limits) > 0
}

// lacks reports whether a name of old is missing in list.
func lacks(list, old corev1.ResourceList) bool {
	for name := range old {
		if _, ok := list[name]; !ok {
			return true
		}
	}
	return false
}
