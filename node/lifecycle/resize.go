package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// A Resize is the state of a change of the resources of a pod that has started.
type Resize struct {
	// Allocated has the resources that the node has granted, by container name. A container without an entry has those of its
	// specification.
	Allocated map[string]corev1.ResourceRequirements
	// Applied has the resources that the runtime has applied, by container ID. A container without an entry has those
	// allocated.
	Applied map[string]corev1.ResourceRequirements

	// Pending is why the node has not granted the resources of the specification; its reason is Deferred or Infeasible.
	Pending Verdict
	// Error is why the runtime has not applied the granted resources; it is asked again at Retry.
	Error string
	Retry time.Time
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
	return v.granted(c)
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

// Resizing reports whether a running container of the pod does not have the granted resources yet.
func (v *View) Resizing() bool {
	for _, c := range v.Containers {
		if spec, _ := Spec(v.Pod, c.Name); c.State == Running && spec != nil && !SameResources(v.granted(spec), v.applied(spec, c.ID)) {
			return true
		}
	}
	return false
}

// resize brings the resources of a running container up to date. It reports whether the container has to be replaced for
// that, as its resize policy says.
func (d *Decision) resize(v *View, c *corev1.Container, latest Container) (replace bool) {
	names := changed(v.granted(c), v.applied(c, latest.ID))
	if len(names) == 0 {
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
