package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/podstate"
)

// A View is the complete state of one pod at one time. The functions of this package do
// not change it.
type View struct {
	Now time.Time
	Pod *corev1.Pod
	// Last is the status that was last written to the API server; for a pod that is
	// new to the agent, the one that came with it.
	Last corev1.PodStatus

	// Gone is true if the API server no longer has the pod.
	Gone bool
	// Sandboxes and Containers are what the runtime holds, in any order.
	Sandboxes  []Sandbox
	Containers []Container

	Memory Memory
	// HostIPs are the node's addresses, the first one the primary.
	HostIPs []string
}

// A Sandbox is a pod's environment in the runtime: its namespaces and network.
type Sandbox struct {
	ID      string
	Attempt uint32
	Ready   bool
	IPs     []string
}

// A State is what a container in the runtime is doing.
type State int

// The states of a container.
const (
	Created State = iota // made, and never started
	Running
	Exited
	Unknown
)

// A Container is one attempt at a container in the runtime.
type Container struct {
	ID      string
	Name    string
	Attempt int32
	Sandbox string // ID
	State   State
	Hash    string // [Hash] of the container that it was created from; empty if not known

	CreatedAt, StartedAt, FinishedAt time.Time

	ExitCode        int32
	Reason, Message string
	Image, ImageID  string
	User            *corev1.ContainerUser
}

// Memory is the state of a worker about its pod that is not in the runtime.
type Memory struct {
	// Failures say, by container name, why the next attempt has not been made.
	Failures map[string]Failure
	// Setup is why the sandbox or its volumes are not there yet.
	Setup Failure
	// Restarts is the back-off of each container, by name.
	Restarts map[string]Backoff
	// Ready is the last verdict of a readiness probe, by container ID. A running
	// container without an entry is ready if it has no probe.
	Ready map[string]bool

	// DeletionSeen is when the worker first saw that the pod is being deleted.
	DeletionSeen time.Time
	// DrainUntil holds the first signal back; zero does not.
	DrainUntil time.Time
	// KillBy is the end of the grace period, once it has begun.
	KillBy time.Time

	// Failed ends the pod: it is stopped, and Failed for this reason.
	Failed Verdict
}

// A Verdict is why a pod as a whole was ended by its node.
type Verdict struct {
	Reason, Message string
}

// A Failure is something that has to be tried again.
type Failure struct {
	Reason, Message string
	At              time.Time // when it failed
	Retry           time.Time // when to try again
	// Later replaces Reason and Message once half of the pause has passed: a
	// failed pull is ErrImagePull first, then ImagePullBackOff.
	LaterReason, LaterMessage string
}

// At returns what the failure is called at the given time, and when that
// changes; the zero time means not before Retry.
func (f Failure) at(now time.Time) (reason, message string, changes time.Time) {
	if f.LaterReason == "" {
		return f.Reason, f.Message, time.Time{}
	}
	if half := f.At.Add(f.Retry.Sub(f.At) / 2); now.Before(half) {
		return f.Reason, f.Message, half
	}
	return f.LaterReason, f.LaterMessage, time.Time{}
}

// sandbox returns the newest sandbox, or nil.
func (v *View) sandbox() *Sandbox {
	var newest *Sandbox
	for i := range v.Sandboxes {
		if s := &v.Sandboxes[i]; newest == nil || s.Attempt > newest.Attempt {
			newest = s
		}
	}
	return newest
}

// attempts returns the attempts at a container, newest first. If the runtime has
// lost an attempt that is in the last status, it is added again (L3, L5).
func (v *View) attempts(name string) []Container {
	var all []Container
	for _, c := range v.Containers {
		if c.Name == name {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b Container) int { return int(b.Attempt) - int(a.Attempt) })
	if last := find(v.Last, name); last != nil && last.ContainerID != "" && (len(all) == 0 || all[0].Attempt < last.RestartCount) {
		all = slices.Insert(all, 0, recall(last))
	}
	return all
}

// recall returns a container from its status only.
func recall(s *corev1.ContainerStatus) Container {
	c := Container{
		ID: s.ContainerID, Name: s.Name, Attempt: s.RestartCount, State: Exited,
		ExitCode: 137, Reason: "ContainerStatusUnknown",
		Message: "The container could not be located when the pod was terminated",
		Image:   s.Image, ImageID: s.ImageID, User: s.User,
	}
	t := s.State.Terminated
	if t == nil && s.State.Waiting != nil {
		t = s.LastTerminationState.Terminated
	}
	if t != nil {
		c.ExitCode, c.Reason, c.Message = t.ExitCode, t.Reason, t.Message
		c.StartedAt, c.FinishedAt = t.StartedAt.Time, t.FinishedAt.Time
	} else if r := s.State.Running; r != nil {
		c.StartedAt = r.StartedAt.Time
	}
	return c
}

func find(s corev1.PodStatus, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// here reports whether an attempt belongs to the given sandbox.
func here(attempts []Container, s *Sandbox) bool {
	return len(attempts) > 0 && s != nil && attempts[0].Sandbox == s.ID
}

// restarts reports whether a container that ended so is started again under the
// pod's policy.
func restarts(policy corev1.RestartPolicy, c Container) bool {
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return c.ExitCode != 0 || c.State != Exited
	default:
		return true
	}
}

// Finished reports whether the pod has ended for good (L1).
func (v *View) Finished() bool {
	return podstate.FinishedIn(&v.Last) || v.Memory.Failed.Reason != ""
}

// unmade reports whether the pod ended before anything of it was made: its node rejected it.
func (v *View) unmade() bool {
	failed := v.Last.Phase == corev1.PodFailed || v.Memory.Failed.Reason != ""
	return failed && len(v.Sandboxes)+len(v.Containers)+len(v.Last.ContainerStatuses)+len(v.Last.InitContainerStatuses) == 0
}

// Deleting reports whether the pod is being deleted.
func (v *View) Deleting() bool { return v.Gone || v.Pod.DeletionTimestamp != nil }

// Alive reports whether any container of the pod may still have a process.
func (v *View) Alive() bool {
	return slices.ContainsFunc(v.Containers, func(c Container) bool { return c.State == Running || c.State == Unknown })
}

// Stopped reports whether the pod has no process and no address any more.
func (v *View) Stopped() bool {
	return !v.Alive() && !slices.ContainsFunc(v.Sandboxes, func(s Sandbox) bool { return s.Ready })
}
