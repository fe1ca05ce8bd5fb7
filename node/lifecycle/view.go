package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/sorting"
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

	// file is set in the copies with which the functions of this package work.
	file *file
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
	Limits          *Limits // that the runtime reports; nil if it reports none
}

// Limits are the limits of a container in the kernel. 0 means none.
type Limits struct {
	CPUShares           int64
	CPUQuota, CPUPeriod int64 // microseconds
	Memory              int64 // bytes
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
	// Started has the containers whose startup probe has succeeded, by container ID.
	Started map[string]bool
	// Hooked has the attempts of containers whose postStart hook has not ended yet, by container name. They count as not
	// started.
	Hooked map[string]int32
	// Unfit has the running containers that the agent has to stop, by container ID.
	Unfit map[string]Cause

	// StopBy is the end of the grace period of each container that is being stopped, by container ID.
	StopBy map[string]time.Time
	// PreStopped has the containers whose preStop hook has ended, by container ID.
	PreStopped map[string]bool
	// Replaced has the containers that the agent stopped to start them again, by container ID.
	Replaced map[string]bool

	// DeletionSeen is when the worker first saw that the pod is being deleted.
	DeletionSeen time.Time
	// DrainUntil holds the first signal back; zero does not.
	DrainUntil time.Time
	// KillBy is the end of the grace period, once it has begun.
	KillBy time.Time

	Resize Resize

	// Prepared is true while drivers have prepared resource claims of the pod, or may have. The end of the pod is not
	// reported before they have unprepared them.
	Prepared bool
	// Mounted is true while the pod has volumes on the node, or may have.
	Mounted bool

	// Failed ends the pod: it is stopped, and Failed for this reason.
	Failed Verdict
}

// A Cause is why a running container has to be stopped although its pod goes on.
type Cause string

// The causes.
const (
	NotLive    Cause = "liveness probe" // the liveness probe has failed
	NotStarted Cause = "startup probe"  // the startup probe has failed
	BadHook    Cause = "postStart hook" // the postStart hook has failed
)

// A Verdict is why a pod as a whole was ended by its node.
type Verdict struct {
	Reason, Message string
	// Grace is the grace period of the pod's containers; nil means that of the pod.
	Grace *time.Duration
	// Disrupted adds the condition DisruptionTarget: the node ended the pod for a reason of its own. Its message is Because;
	// "" means Message.
	Disrupted bool
	Because   string
	// Rejected is true if the node did not admit the pod.
	Rejected bool
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

// at returns what the failure is called at the given time, and when that
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
func (v *View) sandbox() *Sandbox { return Newest(v.Sandboxes) }

// Newest returns the sandbox of the last attempt, or nil if there are none.
func Newest(all []Sandbox) *Sandbox {
	var newest *Sandbox
	for i := range all {
		if s := &all[i]; newest == nil || s.Attempt > newest.Attempt {
			newest = s
		}
	}
	return newest
}

// A file finds what a view has of a container by its name. It is made once per decision: a pod can have 20,000 containers.
type file struct {
	specs     map[string]filed
	last      map[string]*corev1.ContainerStatus
	attempts  map[string][]Container
	places    map[string]int      // of the init containers
	ephemeral map[string]struct{} // names of containers for debugging

	restarted map[string]time.Time // answers of restartedAll, by the ID of the sandbox
	alive     *alive               // nil: not worked out yet
	completed *bool                // nil: not worked out yet
}

// alive are the containers of a pod that may still have a process.
type alive struct {
	regular bool // at least one of them
	sidecar int  // the place of the last one; -1 means that there is none
}

// filed is a container as [Spec] returns it.
type filed struct {
	spec   *corev1.Container
	isInit bool
}

// filed returns a copy of v with a file, which is right for as long as nothing in v changes. A view that has one already is
// returned as it is.
func (v *View) filed() *View {
	if v.file != nil {
		return v
	}
	spec, f := &v.Pod.Spec, &file{}
	f.specs = make(map[string]filed, len(spec.Containers)+len(spec.InitContainers)+len(spec.EphemeralContainers))
	add := func(c *corev1.Container, isInit bool) {
		if _, known := f.specs[c.Name]; !known {
			f.specs[c.Name] = filed{c, isInit}
		}
	}
	for i := range spec.Containers {
		add(&spec.Containers[i], false)
	}
	f.places = make(map[string]int, len(spec.InitContainers))
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		add(c, true)
		if _, known := f.places[c.Name]; !known {
			f.places[c.Name] = i
		}
	}
	f.ephemeral = make(map[string]struct{}, len(spec.EphemeralContainers))
	for i := range spec.EphemeralContainers {
		f.ephemeral[spec.EphemeralContainers[i].Name] = struct{}{}
		add((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon), false)
	}
	f.last = make(map[string]*corev1.ContainerStatus, len(f.specs))
	for _, list := range [][]corev1.ContainerStatus{v.Last.ContainerStatuses, v.Last.InitContainerStatuses, v.Last.EphemeralContainerStatuses} {
		for i := range list {
			if _, known := f.last[list[i].Name]; !known {
				f.last[list[i].Name] = &list[i]
			}
		}
	}
	f.attempts = make(map[string][]Container, len(f.specs))
	for _, c := range v.Containers {
		f.attempts[c.Name] = append(f.attempts[c.Name], c)
	}
	for name, all := range f.attempts {
		sorting.Slice(all, func(a, b Container) int { return int(b.Attempt) - int(a.Attempt) })
		f.attempts[name] = all
	}
	for name, last := range f.last {
		if all := f.attempts[name]; last.ContainerID != "" && (len(all) == 0 || all[0].Attempt < last.RestartCount) {
			f.attempts[name] = slices.Insert(all, 0, recall(last))
		}
	}
	out := *v
	out.file = f
	return &out
}

// attempts returns the attempts at a container, newest first. If the runtime has
// lost an attempt that is in the last status, it is added again (L3, L5).
func (v *View) attempts(name string) []Container { return v.filed().file.attempts[name] }

// last returns what the last status says about a container, or nil.
func (v *View) last(name string) *corev1.ContainerStatus { return v.filed().file.last[name] }

// spec is [Spec] for the pod of the view.
func (v *View) spec(name string) (c *corev1.Container, isInit bool) {
	s := v.filed().file.specs[name]
	return s.spec, s.isInit
}

// place returns the index of an init container, or -1.
func (v *View) place(name string) int {
	if i, known := v.filed().file.places[name]; known {
		return i
	}
	return -1
}

// How the status shows an end that was not observed, as in Kubernetes.
const (
	unknownEnd        = "ContainerStatusUnknown"
	unknownEndMessage = "The container could not be located when the pod was terminated"
)

// recall returns a container from its status only.
func recall(s *corev1.ContainerStatus) Container {
	c := Container{
		ID: s.ContainerID, Name: s.Name, Attempt: s.RestartCount, State: Exited,
		ExitCode: 137, Reason: unknownEnd, Message: unknownEndMessage,
		Image: s.Image, ImageID: s.ImageID, User: s.User,
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

// here reports whether the latest of a container's attempts belongs to the given sandbox, and was made after all containers
// were last restarted.
func (v *View) here(attempts []Container, s *Sandbox) bool {
	return len(attempts) > 0 && s != nil && attempts[0].Sandbox == s.ID && !attempts[0].CreatedAt.Before(v.restartedAll(s))
}

// restartedAll returns when a container in a sandbox last ended so that one of its rules restarts all containers of the
// pod; the zero time means never.
func (v *View) restartedAll(s *Sandbox) (last time.Time) {
	if s == nil {
		return last
	}
	v = v.filed()
	if at, known := v.file.restarted[s.ID]; known {
		return at
	}
	defer func() {
		if v.file.restarted == nil {
			v.file.restarted = map[string]time.Time{}
		}
		v.file.restarted[s.ID] = last
	}()
	if !restartsAll(v.Pod) {
		return last
	}
	for _, c := range v.Containers {
		if c.Sandbox == s.ID && c.FinishedAt.After(last) && v.restartsOthers(c) {
			last = c.FinishedAt
		}
	}
	return last
}

// restartsOthers reports whether a container ended so that one of its rules restarts all containers of the pod.
func (v *View) restartsOthers(c Container) bool {
	spec, _ := v.spec(c.Name)
	return c.State == Exited && spec != nil && matching(spec, c.ExitCode) == corev1.ContainerRestartRuleActionRestartAllContainers
}

// begun reports whether a regular container has been made in a sandbox: the pod is initialized.
func (v *View) begun(s *Sandbox) bool {
	return slices.ContainsFunc(v.Pod.Spec.Containers, func(c corev1.Container) bool {
		all := v.attempts(c.Name)
		return v.here(all, s) && all[0].State != Created
	})
}

// again reports whether a container whose latest attempt is no longer running is started again: by its policy, or because
// its definition has changed.
func (v *View) again(c *corev1.Container, latest Container, as role) bool {
	return restarts(v.Pod, c, latest) || as == regular && latest.Hash != "" && latest.Hash != Hash(c)
}

// completed reports whether the regular containers have ended for good.
func (v *View) completed() bool {
	v = v.filed()
	if v.file.completed == nil {
		v.file.completed = new(v.haveEnded())
	}
	return *v.file.completed
}

func (v *View) haveEnded() bool {
	for i := range v.Pod.Spec.Containers {
		c := &v.Pod.Spec.Containers[i]
		all := v.attempts(c.Name)
		if len(all) == 0 || all[0].State != Exited || v.again(c, all[0], regular) {
			return false
		}
	}
	return true
}

// hasStarted reports whether a running container counts as started: its postStart hook has ended, and its startup probe has
// succeeded.
func (v *View) hasStarted(c *corev1.Container, latest Container) bool {
	return !v.inHook(latest) && (c.StartupProbe == nil || v.Memory.Started[latest.ID])
}

// inHook reports whether the postStart hook of a container has not ended.
func (v *View) inHook(c Container) bool {
	attempt, hooked := v.Memory.Hooked[c.Name]
	return hooked && attempt == c.Attempt
}

// lastExit returns the end that the back-off of a container is counted from. If the agent stopped the latest attempt itself
// (a probe failed), it is the end before that one, as in Kubernetes: the time for which the container has run counts.
func (v *View) lastExit(attempts []Container) time.Time {
	if !v.Memory.Replaced[attempts[0].ID] {
		return attempts[0].FinishedAt
	}
	if len(attempts) > 1 {
		return attempts[1].FinishedAt
	}
	return time.Time{}
}

// Replacing reports whether a container that the agent stopped to start it again does not run again yet.
func (v *View) Replacing() bool {
	if len(v.Memory.Replaced) == 0 {
		return false
	}
	v = v.filed()
	for _, list := range [][]corev1.Container{v.Pod.Spec.InitContainers, v.Pod.Spec.Containers} {
		for i := range list {
			all := v.attempts(list[i].Name)
			if len(all) > 1 && all[0].State == Created {
				all = all[1:]
			}
			if len(all) > 0 && v.Memory.Replaced[all[0].ID] {
				return true
			}
		}
	}
	return false
}

// Finished reports whether the pod has ended for good (L1).
func (v *View) Finished() bool {
	return podstate.FinishedIn(&v.Last) || v.Memory.Failed.Reason != ""
}

// unmade reports whether the pod ended before anything of it was made: its node rejected it. Some rejections come when
// the status has containers that wait already.
func (v *View) unmade() bool {
	failed := v.Last.Phase == corev1.PodFailed || v.Memory.Failed.Reason != ""
	made := func(c corev1.ContainerStatus) bool { return !v.Memory.Failed.Rejected || c.ContainerID != "" }
	return failed && len(v.Sandboxes)+len(v.Containers) == 0 &&
		!slices.ContainsFunc(v.Last.ContainerStatuses, made) && !slices.ContainsFunc(v.Last.InitContainerStatuses, made)
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
