package lifecycle

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/internal/podresources"
)

// A Resize is the state of a change of the resources of a pod that has started.
type Resize struct {
	// Allocated has the resources that the node has granted, by container name. A container without an entry has those of its
	// specification.
	Allocated map[string]corev1.ResourceRequirements
	// Applied has the resources that the runtime has applied, by container ID, with the limits of the pod where the container had
	// none of its own. A container without an entry has those allocated.
	Applied map[string]corev1.ResourceRequirements
	// Unsure has the containers, by ID, that ran before the agent started and of which it is not known whether they have
	// what Applied says. The runtime applies the granted resources once more to these.
	Unsure map[string]bool
	// Whole has the resources of the pod as a whole that the node has granted, Enforced the resources of its cgroup. nil
	// means that there are none.
	Whole, Enforced *corev1.ResourceRequirements

	// Pending is why the node has not granted the resources of the specification; its reason is Deferred or Infeasible.
	Pending Verdict
	// Error is why the runtime has not applied the granted resources; it is asked again at Retry.
	Error string
	Retry time.Time
}

// Granted returns the pod with the resources that the node has granted. It shares what else it has with the pod of the view.
func (v *View) Granted() *corev1.Pod {
	pod := *v.Pod
	of := func(list []corev1.Container) []corev1.Container {
		list = slices.Clone(list)
		for i := range list {
			list[i].Resources = v.granted(&list[i])
		}
		return list
	}
	pod.Spec.Containers, pod.Spec.InitContainers = of(v.Pod.Spec.Containers), of(v.Pod.Spec.InitContainers)
	pod.Spec.Resources = v.Memory.Resize.Whole
	return &pod
}

// Effective returns the resources of a container of a pod that has resources as a whole: where the container has no limit of its
// own, that of the pod holds (KEP-2837).
func Effective(own corev1.ResourceRequirements, whole *corev1.ResourceRequirements) corev1.ResourceRequirements {
	if whole == nil {
		return own
	}
	limits := maps.Clone(own.Limits)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		q, limited := whole.Limits[name]
		if mine := limits[name]; !limited || !mine.IsZero() {
			continue
		}
		if limits == nil {
			limits = corev1.ResourceList{}
		}
		limits[name] = q
	}
	own.Limits = limits
	return own
}

// effective returns what a container is to have.
func (v *View) effective(c *corev1.Container) corev1.ResourceRequirements {
	return Effective(v.granted(c), v.Memory.Resize.Whole)
}

// granted returns the resources that the node has granted a container.
func (v *View) granted(c *corev1.Container) corev1.ResourceRequirements {
	if r, ok := v.Memory.Resize.Allocated[c.Name]; ok {
		return r
	}
	return c.Resources
}

// applied returns the resources with which a container runs.
func (v *View) applied(c *corev1.Container, id string) corev1.ResourceRequirements {
	if r, ok := v.Memory.Resize.Applied[id]; ok {
		return r
	}
	return v.effective(c)
}

// SameWhole reports whether two sets of resources of a pod as a whole are equal in the parts that can change.
func SameWhole(a, b *corev1.ResourceRequirements) bool { return SameResources(deref(a), deref(b)) }

func deref(r *corev1.ResourceRequirements) corev1.ResourceRequirements {
	if r == nil {
		return corev1.ResourceRequirements{}
	}
	return *r
}

// SameResources reports whether two sets of resources are equal in the parts that can change while a container runs.
func SameResources(a, b corev1.ResourceRequirements) bool { return len(changed(a, b)) == 0 }

// changed returns the resources whose request or limit differs.
func changed(a, b corev1.ResourceRequirements) []corev1.ResourceName {
	var names []corev1.ResourceName
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if !equality.Semantic.DeepEqual(pick(a.Requests, name), pick(b.Requests, name)) || !equality.Semantic.DeepEqual(pick(a.Limits, name), pick(b.Limits, name)) {
			names = append(names, name)
		}
	}
	return names
}

// pick returns the part of a list that is about one resource.
func pick(l corev1.ResourceList, name corev1.ResourceName) corev1.ResourceList {
	if q, ok := l[name]; ok {
		return corev1.ResourceList{name: q}
	}
	return corev1.ResourceList{}
}

// Resizing reports whether a running container of the pod, or the pod as a whole, does not have the granted resources yet.
func (v *View) Resizing() bool {
	return v.containerResizing() || v.Alive() && !SameWhole(v.Memory.Resize.Whole, v.Memory.Resize.Enforced)
}

func (v *View) containerResizing() bool {
	v = v.filed()
	for _, c := range v.Containers {
		if spec, _ := v.spec(c.Name); c.State == Running && spec != nil && !SameResources(v.effective(spec), v.applied(spec, c.ID)) {
			return true
		}
	}
	return false
}

// resize brings the resources of a running container up to date. It reports whether the container has to be replaced for
// that, as its resize policy says.
func (d *Decision) resize(v *View, c *corev1.Container, latest Container) (replace bool) {
	names := changed(v.effective(c), v.applied(c, latest.ID))
	if len(names) == 0 && !v.Memory.Resize.Unsure[latest.ID] {
		return false
	}
	for _, p := range c.ResizePolicy {
		for _, name := range names {
			if p.ResourceName == name && p.RestartPolicy == corev1.RestartContainer {
				return true
			}
		}
	}
	if v.Now.Before(v.Memory.Resize.Retry) {
		d.wakeAt(v.Memory.Resize.Retry)
		return false
	}
	d.Actions = append(d.Actions, Action{Verb: Update, Container: c.Name, ID: latest.ID})
	return false
}

// enforce brings the cgroup of the pod up to date, after the containers in it: while these change, it allows the larger of the old and
// the new resources.
func (d *Decision) enforce(v *View) {
	r := &v.Memory.Resize
	if SameWhole(r.Whole, r.Enforced) || v.containerResizing() {
		return
	}
	if v.Now.Before(r.Retry) {
		d.wakeAt(r.Retry)
		return
	}
	d.Actions = append(d.Actions, Action{Verb: Enforce})
}

// wholeStatus fills in the resources of the pod as a whole, as kubelet has them: those of the pod, and the sums of its containers' where
// it has none.
func wholeStatus(v *View, s *corev1.PodStatus) {
	s.AllocatedResources, s.Resources = nil, nil
	if !hasResources(&v.Pod.Spec) {
		return
	}
	granted := v.Granted()
	requests := podresources.Requests(granted, podresources.Options{})
	limits := podresources.Limits(granted, podresources.Options{})
	if len(requests)+len(limits) == 0 {
		return
	}
	s.AllocatedResources = requests
	if v.Resizing() {
		applied := *granted
		applied.Spec.Resources = v.Memory.Resize.Enforced
		applied.Spec.Containers, applied.Spec.InitContainers = v.appliedTo(granted.Spec.Containers), v.appliedTo(granted.Spec.InitContainers)
		requests = podresources.Requests(&applied, podresources.Options{})
		limits = podresources.Limits(&applied, podresources.Options{})
	}
	has := limited(&granted.Spec)
	maps.DeleteFunc(limits, func(name corev1.ResourceName, _ resource.Quantity) bool { return !has[name] })
	s.Resources = &corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

// limited returns the resources of which the cgroup of a pod has a limit: that of the pod, or the sum of those of its containers if all
// have one.
func limited(spec *corev1.PodSpec) map[corev1.ResourceName]bool {
	has, containers := map[corev1.ResourceName]bool{}, map[corev1.ResourceName]int{}
	if spec.Resources != nil {
		for name, q := range spec.Resources.Limits {
			has[name] = !q.IsZero()
		}
	}
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			for name, q := range list[i].Resources.Limits {
				if !q.IsZero() {
					containers[name]++
				}
			}
		}
	}
	for name, n := range containers {
		has[name] = has[name] || n == len(spec.Containers)+len(spec.InitContainers)
	}
	return has
}

// hasResources reports whether the pod or one of its containers has a request or a limit.
func hasResources(spec *corev1.PodSpec) bool {
	asks := func(r *corev1.ResourceRequirements) bool { return len(r.Requests)+len(r.Limits) > 0 }
	asking := func(c corev1.Container) bool { return asks(&c.Resources) }
	return spec.Resources != nil && asks(spec.Resources) || len(spec.Overhead) > 0 ||
		slices.ContainsFunc(spec.Containers, asking) || slices.ContainsFunc(spec.InitContainers, asking)
}

// appliedTo returns containers with the resources that they have.
func (v *View) appliedTo(list []corev1.Container) []corev1.Container {
	list = slices.Clone(list)
	for i := range list {
		if all := v.attempts(list[i].Name); len(all) > 0 {
			list[i].Resources = own(v.applied(&list[i], all[0].ID), list[i].Resources)
		}
	}
	return list
}

// own returns the resources that a container has, without the limits of the pod that hold where it has none of its own.
func own(applied, granted corev1.ResourceRequirements) corev1.ResourceRequirements {
	limits := maps.Clone(applied.Limits)
	maps.DeleteFunc(limits, func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, has := granted.Limits[name]
		return !has
	})
	return corev1.ResourceRequirements{Limits: limits, Requests: applied.Requests}
}

// resizeConditions are the conditions that report the resize of a pod that has not ended.
func resizeConditions(v *View) []corev1.PodCondition {
	var list []corev1.PodCondition
	r := &v.Memory.Resize
	if v.Finished() {
		return nil
	}
	if r.Pending.Reason != "" {
		list = append(list, condition(corev1.PodResizePending, true, r.Pending.Reason, r.Pending.Message))
	}
	if v.Resizing() {
		c := condition(corev1.PodResizeInProgress, true, "", "")
		if r.Error != "" {
			c.Reason, c.Message = corev1.PodReasonError, r.Error
		}
		list = append(list, c)
	}
	return list
}
