package lifecycle

import "time"

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
	spec, _ := v.spec(c.Name)
	return spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil && !v.Memory.PreStopped[c.ID]
}

// turn reports whether a container may get its signal when the pod ends: a sidecar waits for the regular containers and for
// the sidecars after it.
func (v *View) turn(c Container) bool {
	place := v.place(c.Name)
	if place < 0 || !IsSidecar(&v.Pod.Spec.InitContainers[place]) {
		return true
	}
	a := v.alive()
	return !a.regular && a.sidecar <= place
}

// alive returns which containers may still have a process.
func (v *View) alive() alive {
	v = v.filed()
	if v.file.alive != nil {
		return *v.file.alive
	}
	a := alive{sidecar: -1}
	for _, c := range v.Containers {
		if c.State != Running && c.State != Unknown {
			continue
		}
		switch spec, isInit := v.spec(c.Name); {
		case spec == nil:
		case !isInit:
			_, ephemeral := v.file.ephemeral[c.Name]
			a.regular = a.regular || !ephemeral
		case IsSidecar(spec):
			a.sidecar = max(a.sidecar, v.place(c.Name))
		}
	}
	v.file.alive = &a
	return a
}
