package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// minGrace is the least time that a container gets between its stop signal and its end, as in Kubernetes.
const minGrace = 2 * time.Second

// stopAll stops all containers of the pod within a grace period. The preStop hooks run at once; sidecars get their signals
// after the regular containers have ended, the last one first.
func (d *Decision) stopAll(v *View, grace time.Duration) {
	for _, c := range v.Containers {
		if c.State == Running || c.State == Unknown {
			d.stop(v, c, Action{Grace: grace, Why: "Stopping container " + c.Name}, v.turn(c))
		}
	}
}

// stop adds the next action for the end of a running container: its preStop hook, then its signal. The time for the hook is
// part of the grace period. If it is not the container's turn, the signal is held back until the grace period is over.
func (d *Decision) stop(v *View, c Container, a Action, turn bool) {
	a.Container, a.ID = c.Name, c.ID
	if by, begun := v.Memory.StopBy[c.ID]; begun {
		a.Grace = min(a.Grace, max(by.Sub(v.Now), 0))
	}
	switch {
	case a.Grace > 0 && c.State == Running && v.hooked(c):
		a.Verb = PreStop
		d.wakeAt(v.Now.Add(a.Grace))
	case a.Grace > 0 && !turn:
		d.wakeAt(v.Now.Add(a.Grace))
		return
	default:
		a.Verb, a.Grace = Stop, max(a.Grace, minGrace)
	}
	d.Actions = append(d.Actions, a)
}

// hooked reports whether a container has a preStop hook that has not ended.
func (v *View) hooked(c Container) bool {
	spec, _ := Spec(v.Pod, c.Name)
	return spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil && !v.Memory.PreStopped[c.ID]
}

// turn reports whether a container may get its signal when the pod ends: a sidecar waits for the regular containers and for
// the sidecars after it.
func (v *View) turn(c Container) bool {
	list := v.Pod.Spec.InitContainers
	place := slices.IndexFunc(list, func(i corev1.Container) bool { return i.Name == c.Name })
	if place < 0 || !IsSidecar(&list[place]) {
		return true
	}
	return !slices.ContainsFunc(v.Containers, func(o Container) bool {
		if o.State != Running && o.State != Unknown {
			return false
		}
		spec, isInit := Spec(v.Pod, o.Name)
		if spec == nil || !isInit {
			return slices.ContainsFunc(v.Pod.Spec.Containers, func(m corev1.Container) bool { return m.Name == o.Name })
		}
		return IsSidecar(spec) && slices.IndexFunc(list, func(i corev1.Container) bool { return i.Name == o.Name }) > place
	})
}
