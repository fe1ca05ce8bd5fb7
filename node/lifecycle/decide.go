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
	// Stop ends one container within Grace.
	Stop Verb = "stop"
	// Release stops the sandbox, which frees its addresses. Logs stay.
	Release Verb = "release"
	// Discard removes a sandbox that another has taken the place of.
	Discard Verb = "discard"
	// Remove ends the pod: volumes, the object, then what the runtime has kept.
	// Everything is stopped by then.
	Remove Verb = "remove"
	// Fail makes the worker remember Verdict: the pod is over.
	Fail Verb = "fail"
)

// An Action is one thing to do.
type Action struct {
	Verb      Verb
	Container string // name, for Start and Stop
	ID        string // of the container (Stop) or of the sandbox (Release, Discard)
	Attempt   int32  // for SetUp and Start
	Init      bool   // for Start
	Grace     time.Duration
	Why       string // for Stop: the end of the Killing event's message
	Verdict   Verdict
}

// Key is equal for actions that must not be carried out at the same time.
func (a Action) Key() string {
	switch a.Verb {
	case SetUp, Start:
		return "start"
	case Stop, Release, Discard:
		return string(a.Verb) + " " + a.ID
	case Remove, Fail: // the pod has one of each
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
	case Stop:
		return fmt.Sprintf("stop %s grace=%s", a.ID, a.Grace)
	case Fail:
		return "fail " + a.Verdict.Reason
	case Remove:
		return "remove"
	case Release, Discard: // their ID says it all
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
func Decide(v View) Decision {
	var d Decision
	switch {
	case v.Deleting():
		d.end(&v)
		if len(d.Actions) == 0 && d.Wake.IsZero() {
			d.Actions = append(d.Actions, Action{Verb: Remove})
		}
	case v.Finished():
		d.end(&v)
	default:
		if deadline, ok := v.deadline(); ok {
			if !v.Now.Before(deadline) {
				return Decision{Actions: []Action{{Verb: Fail, Verdict: Verdict{"DeadlineExceeded", "Pod was active on the node longer than the specified deadline"}}}}
			}
			d.wakeAt(deadline)
		}
		d.run(&v)
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
	case v.Pod.DeletionGracePeriodSeconds != nil:
		s = *v.Pod.DeletionGracePeriodSeconds
	case v.Pod.Spec.TerminationGracePeriodSeconds != nil:
		s = *v.Pod.Spec.TerminationGracePeriodSeconds
	}
	return time.Duration(min(s, longestGrace)) * time.Second
}

// end stops what runs, then frees what the sandboxes hold.
func (d *Decision) end(v *View) {
	if v.Alive() && v.Now.Before(v.Memory.DrainUntil) {
		d.wakeAt(v.Memory.DrainUntil)
		return
	}
	grace := v.Grace()
	if !v.Memory.KillBy.IsZero() {
		grace = min(grace, max(v.Memory.KillBy.Sub(v.Now), 0))
	}
	for _, c := range v.Containers {
		if c.State == Running || c.State == Unknown {
			d.Actions = append(d.Actions, Action{Verb: Stop, Container: c.Name, ID: c.ID, Grace: grace, Why: "Stopping container " + c.Name})
		}
	}
	if len(d.Actions) > 0 {
		return // L4
	}
	for _, s := range v.Sandboxes {
		if s.Ready {
			d.Actions = append(d.Actions, Action{Verb: Release, ID: s.ID})
		}
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
	initialized := true
	for i := range v.Pod.Spec.InitContainers {
		c := &v.Pod.Spec.InitContainers[i]
		all := v.attempts(c.Name)
		if here(all, s) && all[0].State == Exited && all[0].ExitCode == 0 {
			continue
		}
		initialized = false
		d.container(v, s, c, all, true)
		break
	}
	if !initialized {
		return
	}
	for i := range v.Pod.Spec.Containers {
		c := &v.Pod.Spec.Containers[i]
		d.container(v, s, c, v.attempts(c.Name), false)
	}
}

// setUp adds an action to create a sandbox if a container has yet to run in it.
func (d *Decision) setUp(v *View, old *Sandbox) {
	work := false
	for i := range v.Pod.Spec.Containers {
		all := v.attempts(v.Pod.Spec.Containers[i].Name)
		if len(all) == 0 || restarts(v.Pod.Spec.RestartPolicy, all[0]) {
			work = true
		}
	}
	for i := range v.Pod.Spec.InitContainers {
		all := v.attempts(v.Pod.Spec.InitContainers[i].Name)
		if v.Pod.Spec.RestartPolicy == corev1.RestartPolicyNever && len(all) > 0 && all[0].State == Exited && all[0].ExitCode != 0 {
			work = false
		}
	}
	if !work {
		return
	}
	// Containers that still run in a broken sandbox cannot be reached any more.
	for _, c := range v.Containers {
		if c.State == Running || c.State == Unknown {
			d.Actions = append(d.Actions, Action{Verb: Stop, Container: c.Name, ID: c.ID, Grace: v.Grace(), Why: "Stopping container " + c.Name})
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

// container brings one container up, whose attempts are given, in sandbox s.
func (d *Decision) container(v *View, s *Sandbox, c *corev1.Container, all []Container, isInit bool) {
	start := Action{Verb: Start, Container: c.Name, Init: isInit}
	if len(all) > 0 {
		latest := all[0]
		start.Attempt = latest.Attempt + 1
		switch {
		case !here(all, s):
			// It ran in a sandbox that is no more. An init container runs again,
			// any other one as the policy has it, and neither waits.
			if !isInit && !restarts(v.Pod.Spec.RestartPolicy, latest) {
				return
			}
		case latest.State == Running && !isInit && latest.Hash != "" && latest.Hash != Hash(c):
			d.Actions = append(d.Actions, Action{
				Verb: Stop, Container: c.Name, ID: latest.ID, Grace: v.Grace(),
				Why: fmt.Sprintf("Container %s definition changed, will be restarted", c.Name),
			})
			return
		case latest.State == Running:
			return
		case latest.State == Exited && latest.Hash != "" && latest.Hash != Hash(c) && !isInit:
			// Its definition changed: it starts whatever the policy says.
		case latest.State == Unknown:
			d.Actions = append(d.Actions, Action{Verb: Stop, Container: c.Name, ID: latest.ID, Grace: v.Grace(), Why: fmt.Sprintf("Container %s is in unknown state, will be restarted", c.Name)})
			return
		case latest.State == Exited:
			policy := v.Pod.Spec.RestartPolicy
			if !restarts(policy, latest) {
				return
			}
			b := v.Memory.Restarts[c.Name]
			if until := b.Until(latest.FinishedAt); v.Now.Before(until) {
				d.hold(c.Name, Hold{Pause: b.Pause, Until: until})
				return
			}
		}
	}
	if f, failed := v.Memory.Failures[c.Name]; failed {
		if v.Now.Before(f.Retry) {
			d.wakeAt(f.Retry)
			if _, _, changes := f.at(v.Now); !changes.IsZero() {
				d.wakeAt(changes)
			}
			return
		}
	}
	d.Actions = append(d.Actions, start)
}
