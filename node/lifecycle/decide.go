package lifecycle

import (
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A Verb is the kind of an [Action].
type Verb string

// The verbs of actions.
const (
	// SetUp makes the volumes and the sandbox.
	SetUp Verb = "set-up"
	// Start pulls the image if needed, makes the container and starts it.
	Start Verb = "start"
	// Update applies the granted resources to one running container.
	Update Verb = "update"
	// Enforce applies the granted resources of the pod as a whole to its cgroup.
	Enforce Verb = "enforce"
	// PreStop runs the preStop hook of one container, for at most Grace.
	PreStop Verb = "pre-stop"
	// Stop ends one container within Grace.
	Stop Verb = "stop"
	// Release stops the sandbox, which frees its addresses. Logs stay.
	Release Verb = "release"
	// Unprepare has drivers unprepare the pod's resource claims. Everything is stopped by then.
	Unprepare Verb = "unprepare"
	// Unmount unmounts and removes the pod's volumes. Everything is stopped by then. Logs and termination messages stay.
	Unmount Verb = "unmount"
	// Discard removes a sandbox that another has taken the place of.
	Discard Verb = "discard"
	// Remove ends the pod: the object, then what the runtime has kept.
	// Everything is stopped by then, and its volumes are unmounted.
	Remove Verb = "remove"
	// Fail makes the worker remember Verdict: the pod is over.
	Fail Verb = "fail"
)

// An Action is one thing to do.
type Action struct {
	Verb      Verb
	Container string // name, for Start, PreStop and Stop
	ID        string // of the container (PreStop, Stop) or of the sandbox (Release, Discard)
	Attempt   int32  // for SetUp and Start
	Init      bool   // for Start: the container is an init container that ends, not a sidecar
	Grace     time.Duration
	Why       string // for PreStop and Stop: the message of the event Killing
	Replace   bool   // for PreStop and Stop: the container is started again
	Verdict   Verdict
}

// Key is equal for actions that must not be carried out at the same time.
func (a Action) Key() string {
	switch a.Verb {
	case SetUp, Start:
		return "start"
	case Update, PreStop, Stop, Release, Discard:
		return string(a.Verb) + " " + a.ID
	case Enforce, Unprepare, Unmount, Remove, Fail: // the pod has one of each
	}
	return string(a.Verb)
}

// String is for tests and logs.
func (a Action) String() string {
	switch a.Verb {
	case SetUp:
		return fmt.Sprintf("set-up %d", a.Attempt)
	case Start:
		return fmt.Sprintf("start %s %d", a.Container, a.Attempt)
	case PreStop, Stop:
		return fmt.Sprintf("%s %s grace=%s", a.Verb, a.ID, a.Grace)
	case Fail:
		return "fail " + a.Verdict.Reason
	case Enforce, Unprepare, Unmount, Remove:
		return string(a.Verb)
	case Update, Release, Discard: // their ID says it all
	}
	return string(a.Verb) + " " + a.ID
}

// A Decision is what to do now, and when to decide again if nothing happens.
type Decision struct {
	Actions []Action
	Wake    time.Time // zero: only after the next event
	// Held are the containers that wait for their back-off, by name.
	Held map[string]Hold
}

// A Hold is a container's wait before its next attempt.
type Hold struct {
	Pause time.Duration
	Until time.Time
}

func (d *Decision) wakeAt(t time.Time) {
	if d.Wake.IsZero() || t.Before(d.Wake) {
		d.Wake = t
	}
}

func (d *Decision) hold(name string, h Hold) {
	if d.Held == nil {
		d.Held = map[string]Hold{}
	}
	d.Held[name] = h
	d.wakeAt(h.Until)
}

// Decide returns the next actions for the pod.
func Decide(of View) Decision {
	v := of.filed()
	var d Decision
	switch {
	case v.Deleting():
		d.end(v)
		if len(d.Actions) == 0 && d.Wake.IsZero() && !v.Alive() {
			d.Actions = append(d.Actions, Action{Verb: Remove})
		}
	case v.Finished():
		d.end(v)
	default:
		if deadline, ok := v.deadline(); ok {
			if !v.Now.Before(deadline) {
				return Decision{Actions: []Action{{Verb: Fail, Verdict: Verdict{Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline"}}}}
			}
			d.wakeAt(deadline)
		}
		d.run(v)
	}
	return d
}

// deadline returns the end of the pod's spec.activeDeadlineSeconds.
func (v *View) deadline() (time.Time, bool) {
	s := v.Pod.Spec.ActiveDeadlineSeconds
	if s == nil || v.Last.StartTime == nil {
		return time.Time{}, false
	}
	return v.Last.StartTime.Add(time.Duration(*s) * time.Second), true
}

// longestGrace bounds grace periods, in seconds, so that they can be added to times.
const longestGrace = math.MaxInt32

// Grace returns how long the containers may take to end, counted from when the
// end of the pod was first seen.
func (v *View) Grace() time.Duration {
	var s int64 = 30 // the API's default
	switch {
	case v.Memory.Failed.Grace != nil && !v.Deleting():
		return *v.Memory.Failed.Grace
	case v.Pod.DeletionGracePeriodSeconds != nil:
		s = *v.Pod.DeletionGracePeriodSeconds
	case v.Pod.Spec.TerminationGracePeriodSeconds != nil:
		s = *v.Pod.Spec.TerminationGracePeriodSeconds
	}
	return time.Duration(min(s, longestGrace)) * time.Second
}

// end stops the running containers, then frees what the sandboxes hold, then the devices and volumes. It does so when the pod has
// ended, not when its object is deleted: a volume that is for one pod is free for the next one.
func (d *Decision) end(v *View) {
	if v.Alive() && v.Now.Before(v.Memory.DrainUntil) {
		d.wakeAt(v.Memory.DrainUntil)
		return
	}
	grace := v.Grace()
	if !v.Memory.KillBy.IsZero() {
		grace = min(grace, max(v.Memory.KillBy.Sub(v.Now), 0))
	}
	d.stopAll(v, grace)
	if v.Alive() {
		return // L4
	}
	for _, s := range v.Sandboxes {
		if s.Ready {
			d.Actions = append(d.Actions, Action{Verb: Release, ID: s.ID})
		}
	}
	if len(d.Actions) > 0 {
		return
	}
	if v.Memory.Prepared {
		d.Actions = append(d.Actions, Action{Verb: Unprepare})
	}
	if v.Memory.Mounted {
		d.Actions = append(d.Actions, Action{Verb: Unmount})
	}
}

// run brings the pod's containers up, in order, and keeps them up.
func (d *Decision) run(v *View) {
	s := v.sandbox()
	for i := range v.Sandboxes {
		if old := &v.Sandboxes[i]; s != nil && s.Ready && old.ID != s.ID {
			d.Actions = append(d.Actions, Action{Verb: Discard, ID: old.ID})
		}
	}
	if s == nil || !s.Ready {
		d.setUp(v, s)
		return
	}
	if v.completed() {
		// Nothing but sidecars and ephemeral containers is left.
		d.stopAll(v, v.Grace())
		return
	}
	if d.clear(v, s) {
		return
	}
	d.enforce(v)
	d.debug(v)
	if !d.initialize(v, s) {
		return
	}
	for i := range v.Pod.Spec.Containers {
		c := &v.Pod.Spec.Containers[i]
		d.container(v, s, c, v.attempts(c.Name), regular)
	}
}

// clear stops the containers from before the moment when all containers were restarted, and reports whether any is left.
func (d *Decision) clear(v *View, s *Sandbox) bool {
	at := v.restartedAll(s)
	if at.IsZero() {
		return false
	}
	left := false
	for _, c := range v.Containers {
		if c.Sandbox == s.ID && c.CreatedAt.Before(at) && (c.State == Running || c.State == Unknown) {
			left = true
			d.stop(v, c, Action{Why: "killing"}, true)
		}
	}
	return left
}

// debug starts the ephemeral containers that have not been started. They do not wait for init containers, and are never
// restarted.
func (d *Decision) debug(v *View) {
	for i := range v.Pod.Spec.EphemeralContainers {
		name := v.Pod.Spec.EphemeralContainers[i].Name
		if len(v.attempts(name)) == 0 {
			d.start(v, Action{Verb: Start, Container: name})
		}
	}
}

// initialize brings the init containers up in order, and keeps sidecars up. It reports whether the regular containers may
// run.
func (d *Decision) initialize(v *View, s *Sandbox) bool {
	list := v.Pod.Spec.InitContainers
	begun := v.begun(s)
	last := 0 // the one that was started last
	for i := range list {
		if v.here(v.attempts(list[i].Name), s) {
			last = i
		}
	}
	for i := range list {
		c := &list[i]
		all := v.attempts(c.Name)
		switch {
		case begun || i < last:
			if IsSidecar(c) {
				d.container(v, s, c, all, sidecar)
			}
			continue
		case v.initialized(s, c, all):
			if IsSidecar(c) {
				d.container(v, s, c, all, sidecar)
			}
			last = i + 1
			continue
		}
		d.container(v, s, c, all, roleOf(c))
		return false
	}
	return true
}

// initialized reports whether the container after an init container may start.
func (v *View) initialized(s *Sandbox, c *corev1.Container, attempts []Container) bool {
	if !v.here(attempts, s) {
		return false
	}
	latest := attempts[0]
	if IsSidecar(c) {
		return latest.State == Running && v.hasStarted(c, latest)
	}
	return latest.State == Exited && latest.ExitCode == 0
}

// setUp adds an action to create a sandbox if a container has yet to run in it.
func (d *Decision) setUp(v *View, old *Sandbox) {
	if v.completed() || v.initFailed() {
		return
	}
	// Containers that still run in a broken sandbox cannot be reached any more, and neither can their hooks.
	for _, c := range v.Containers {
		if c.State == Running || c.State == Unknown {
			d.Actions = append(d.Actions, Action{Verb: Stop, Container: c.Name, ID: c.ID, Grace: max(v.Grace(), minGrace), Why: "Stopping container " + c.Name})
		}
	}
	if len(d.Actions) > 0 {
		return
	}
	if f := v.Memory.Setup; v.Now.Before(f.Retry) {
		d.wakeAt(f.Retry)
		return
	}
	a := Action{Verb: SetUp}
	if old != nil {
		a.Attempt = int32(old.Attempt) + 1
	}
	d.Actions = append(d.Actions, a)
}

// initFailed reports whether an init container has failed for good.
func (v *View) initFailed() bool {
	for i := range v.Pod.Spec.InitContainers {
		c := &v.Pod.Spec.InitContainers[i]
		all := v.attempts(c.Name)
		if len(all) > 0 && all[0].State == Exited && all[0].ExitCode != 0 && !restarts(v.Pod, c, all[0]) {
			return true
		}
	}
	return false
}

// container brings one container up, whose attempts are given, in sandbox s.
func (d *Decision) container(v *View, s *Sandbox, c *corev1.Container, all []Container, as role) {
	a := Action{Verb: Start, Container: c.Name, Init: as == initial}
	if len(all) == 0 {
		d.start(v, a)
		return
	}
	latest := all[0]
	a.Attempt = latest.Attempt + 1
	switch {
	case !v.here(all, s):
		// It ran in a sandbox that is gone, or before all containers were restarted. An init container runs again, and
		// any other one by its policy; neither waits, except the container that had all of them restarted.
		if old := latest.Sandbox != s.ID; old && as == regular && !restarts(v.Pod, c, latest) || !old && v.restartsOthers(latest) && d.held(v, c, all) {
			return
		}
	case latest.State == Running:
		d.keep(v, c, latest, as)
		return
	case latest.State == Unknown:
		d.stop(v, latest, Action{Grace: v.Grace(), Why: fmt.Sprintf("Container %s is in unknown state, will be restarted", c.Name), Replace: true}, true)
		return
	case latest.State == Exited && !v.again(c, latest, as):
		return
	case latest.State == Exited && d.held(v, c, all):
		return
	}
	d.start(v, a)
}

// keep stops a running container that has to be replaced.
func (d *Decision) keep(v *View, c *corev1.Container, latest Container, as role) {
	kind := "Container "
	if as == sidecar {
		kind = "Init container "
	}
	a := Action{Grace: v.Grace(), Replace: replaces(v.Pod, c)}
	again := ""
	if a.Replace && as == regular {
		again = ", will be restarted"
	}
	switch cause := v.Memory.Unfit[latest.ID]; {
	case as != initial && latest.Hash != "" && latest.Hash != Hash(c):
		a.Why, a.Replace = kind+c.Name+" definition changed", true
		if as == regular {
			a.Why += ", will be restarted"
		}
	case cause == NotLive:
		a.Why = kind + c.Name + " failed liveness probe" + again
		a.Grace = v.probeGrace(c.LivenessProbe)
	case cause == NotStarted:
		a.Why = kind + c.Name + " failed startup probe" + again
		a.Grace = v.probeGrace(c.StartupProbe)
	case cause == BadHook:
		a.Why, a.Replace = "FailedPostStartHook", false
	case d.resize(v, c, latest):
		a.Why, a.Replace = "Container "+c.Name+" resize requires restart"+again, true
	default:
		return
	}
	d.stop(v, latest, a, true)
}

// probeGrace returns the grace period of a container that is stopped because a probe has failed.
func (v *View) probeGrace(p *corev1.Probe) time.Duration {
	if p == nil || p.TerminationGracePeriodSeconds == nil || v.Pod.DeletionGracePeriodSeconds != nil {
		return v.Grace()
	}
	return time.Duration(min(*p.TerminationGracePeriodSeconds, longestGrace)) * time.Second
}

// held adds the wait of an ended container for its back-off, and reports whether there is one.
func (d *Decision) held(v *View, c *corev1.Container, all []Container) bool {
	b := v.Memory.Restarts[c.Name]
	until := b.Until(v.lastExit(all))
	if !v.Now.Before(until) {
		return false
	}
	d.hold(c.Name, Hold{Pause: b.Pause, Until: until})
	return true
}

// start adds a start, unless the last one has failed and it is too early for another.
func (d *Decision) start(v *View, a Action) {
	f, failed := v.Memory.Failures[a.Container]
	if !failed || !v.Now.Before(f.Retry) {
		d.Actions = append(d.Actions, a)
		return
	}
	d.wakeAt(f.Retry)
	if _, _, changes := f.at(v.Now); !changes.IsZero() {
		d.wakeAt(changes)
	}
}
