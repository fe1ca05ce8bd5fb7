package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/podstate"
)

// Runtime is the scheme of container IDs in statuses, the name of the container
// runtime: "sampan" in "sampan://0123".
type Runtime string

// Status returns the status of the pod to write to the API server. Conditions that
// others own are copied from the pod.
func (r Runtime) Status(of View) corev1.PodStatus {
	v := of.filed()
	if v.unmade() {
		return unmade(v)
	}
	s := v.Pod.Status // what is not ours stays
	s.ObservedGeneration = v.Pod.Generation
	s.StartTime = v.Last.StartTime
	s.Reason, s.Message = v.Memory.Failed.Reason, v.Memory.Failed.Message
	s.HostIPs, s.PodIP, s.PodIPs = nil, "", nil
	s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses = nil, nil, nil
	if s.QOSClass == "" {
		s.QOSClass = QOS(v.Pod)
	}
	if s.StartTime == nil {
		now := metav1.NewTime(v.Now).Rfc3339Copy()
		s.StartTime = &now
	}
	if len(v.HostIPs) > 0 {
		s.HostIP = v.HostIPs[0]
		for _, ip := range v.HostIPs {
			s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: ip})
		}
	}
	r.addresses(&s, v)

	over := v.Finished() || v.Deleting() && !v.Alive()
	for i := range v.Pod.Spec.InitContainers {
		c := &v.Pod.Spec.InitContainers[i]
		s.InitContainerStatuses = append(s.InitContainerStatuses, r.container(v, c, roleOf(c), over || IsSidecar(c) && v.completed()))
	}
	for i := range v.Pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, r.container(v, &v.Pod.Spec.Containers[i], regular, over))
	}
	for i := range v.Pod.Spec.EphemeralContainers {
		c := (*corev1.Container)(&v.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, r.container(v, c, ephemeral, over))
	}
	if over && !v.Alive() {
		endOthers(v, &s)
	}
	wholeStatus(v, &s)
	s.Phase = phase(v, &s)
	if l := &v.Last; podstate.FinishedIn(l) && s.Reason == "" {
		s.Reason, s.Message = l.Reason, l.Message
	}
	s.Conditions = conditions(v, &s)
	return s
}

// unmade is the status of a pod that ended before anything of it was made. As in Kubernetes, it has neither addresses nor
// container statuses.
func unmade(v *View) corev1.PodStatus {
	s := v.Pod.Status
	s.ObservedGeneration = v.Pod.Generation
	s.QOSClass = corev1.PodQOSClass(or(string(s.QOSClass), string(QOS(v.Pod))))
	if s.StartTime = v.Last.StartTime; s.StartTime == nil {
		now := metav1.NewTime(v.Now).Rfc3339Copy()
		s.StartTime = &now
	}
	s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses = nil, nil, nil
	if f := v.Memory.Failed; f.Reason != "" {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, f.Reason, f.Message
	}
	return s
}

// addresses fills in the pod's addresses. Those of an ended pod stay what they
// were, as they do in Kubernetes.
func (r Runtime) addresses(s *corev1.PodStatus, v *View) {
	var ips []string
	switch sb := v.sandbox(); {
	case sb != nil && sb.Ready && v.Pod.Spec.HostNetwork:
		ips = v.HostIPs
	case sb != nil && sb.Ready:
		ips = sb.IPs
	case v.Finished() || v.Deleting():
		s.PodIP, s.PodIPs = v.Last.PodIP, v.Last.PodIPs
		return
	}
	for _, ip := range ips {
		s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(ips) > 0 {
		s.PodIP = ips[0]
	}
}

// container returns the status of one container. If over is true, it will not be started again.
func (r Runtime) container(v *View, c *corev1.Container, as role, over bool) corev1.ContainerStatus {
	started := false
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Started: &started}
	if as == ephemeral {
		s.Started = nil // as in Kubernetes
	}
	all := v.attempts(c.Name)
	if len(all) == 0 {
		r.notCreated(v, c, &s, over)
		return s
	}
	if len(all) > 1 && all[0].State == Created {
		all = all[1:] // a restart counts when the container starts: kubelet reports nothing between the two steps
	}
	latest := all[0]
	s.RestartCount = latest.Attempt
	s.Image, s.ImageID = or(latest.Image, c.Image), latest.ImageID
	s.ContainerID = r.ID(latest.ID)
	s.User = latest.User
	s.LastTerminationState = r.before(v, c.Name, all)
	switch latest.State {
	case Running:
		started = v.hasStarted(c, latest)
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(latest.StartedAt).Rfc3339Copy()}
		s.Ready = started && ready(v, c, latest, as)
		r.running(v, c, &s, latest.ID)
		if v.inHook(latest) {
			// As in Kubernetes, a container is shown as running when its postStart hook has ended.
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: beginning(v.Pod)}}
		}
	case Exited:
		r.ended(v, c, &s, all, as, over)
	case Unknown:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(latest.StartedAt).Rfc3339Copy()}
	case Created:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: beginning(v.Pod)}
	}
	return s
}

// ended fills in the state of a container whose latest attempt has ended.
func (r Runtime) ended(v *View, c *corev1.Container, s *corev1.ContainerStatus, all []Container, as role, over bool) {
	latest := all[0]
	t := r.terminated(v, latest)
	again := !over && as != ephemeral && restarts(v.Pod, c, latest) && (as != initial || latest.ExitCode != 0)
	reason, message := r.held(v, c.Name, all)
	switch {
	case again && reason != "":
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
		s.LastTerminationState.Terminated = t
	case again && (as == initial || as == sidecar) && !v.here(all, v.sandbox()):
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
		s.LastTerminationState.Terminated = t
	default:
		s.State.Terminated = t
	}
	s.Ready = as == initial && t.ExitCode == 0
}

// before returns how the attempt before the latest one ended: from the runtime,
// or from the last status.
func (r Runtime) before(v *View, name string, all []Container) corev1.ContainerState {
	if len(all) > 1 && all[1].State == Exited {
		return corev1.ContainerState{Terminated: r.terminated(v, all[1])}
	}
	switch last := v.last(name); {
	case last == nil:
		return corev1.ContainerState{}
	case last.RestartCount < all[0].Attempt && last.State.Terminated != nil:
		return corev1.ContainerState{Terminated: last.State.Terminated}
	case last.LastTerminationState.Terminated != nil && last.LastTerminationState.Terminated.ContainerID == r.ID(all[0].ID):
		return corev1.ContainerState{} // it is the state of the latest attempt
	default:
		return last.LastTerminationState
	}
}

// notCreated is the state of a container that has not been made yet.
func (r Runtime) notCreated(v *View, c *corev1.Container, s *corev1.ContainerStatus, over bool) {
	if last := v.last(c.Name); over && last != nil && last.State.Waiting != nil {
		s.State.Waiting = last.State.Waiting
		return
	}
	reason, message := beginning(v.Pod), ""
	if f, failed := v.Memory.Failures[c.Name]; failed {
		reason, message, _ = f.at(v.Now)
	} else if last := v.last(c.Name); last != nil && last.ContainerID == "" && last.State.Waiting != nil && !empty(last.State.Waiting.Reason) {
		// Keep the reason of the agent before the restart, until the container is tried again.
		reason, message = last.State.Waiting.Reason, last.State.Waiting.Message
	}
	s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
}

// endOthers ends the containers that still wait for a start when their pod has ended, as in Kubernetes: the regular ones if the
// pod is initialized, and the init containers up to the last one that was started.
func endOthers(v *View, s *corev1.PodStatus) {
	if initialized(v.Pod, s) {
		for i := range s.ContainerStatuses {
			endUnknown(&s.ContainerStatuses[i])
		}
	}
	started := 1
	for i := range s.InitContainerStatuses {
		if tried(&s.InitContainerStatuses[i]) {
			started = i + 1
		}
	}
	for i := range min(started, len(s.InitContainerStatuses)) {
		endUnknown(&s.InitContainerStatuses[i])
	}
}

// initialized reports whether a regular container has been started, or would have been the next one.
func initialized(pod *corev1.Pod, s *corev1.PodStatus) bool {
	n := len(s.InitContainerStatuses)
	if n == 0 || slices.ContainsFunc(s.ContainerStatuses, func(c corev1.ContainerStatus) bool { return tried(&c) }) {
		return true
	}
	last := &s.InitContainerStatuses[n-1]
	if IsSidecar(&pod.Spec.InitContainers[n-1]) {
		return last.Started != nil && *last.Started
	}
	end := exit(last)
	return end != nil && end.ExitCode == 0
}

// tried reports whether a container has been started.
func tried(s *corev1.ContainerStatus) bool {
	return s.State.Waiting == nil || s.LastTerminationState.Terminated != nil
}

// endUnknown ends a container that waits, with the exit code of an unknown end.
func endUnknown(s *corev1.ContainerStatus) {
	if s.State.Waiting != nil {
		s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: unknownEnd, Message: unknownEndMessage}}
	}
}

// beginning is the reason of a container that waits for nothing but its first start. As in Kubernetes, all containers of
// a pod with init containers have another one than those of a pod without: the init containers themselves, too.
func beginning(pod *corev1.Pod) string {
	if len(pod.Spec.InitContainers) > 0 {
		return "PodInitializing"
	}
	return "ContainerCreating"
}

// empty reports whether a waiting container's reason is only the initial one.
func empty(reason string) bool {
	return reason == "" || reason == "ContainerCreating" || reason == "PodInitializing"
}

// held returns why an ended container has not been started again yet.
func (r Runtime) held(v *View, name string, all []Container) (reason, message string) {
	latest := all[0]
	f, failed := v.Memory.Failures[name]
	failed = failed && f.At.After(latest.FinishedAt)
	if failed && v.Now.Before(f.Retry) {
		reason, message, _ = f.at(v.Now)
		return reason, message
	}
	// A back-off for a later attempt has grown because that attempt is being made
	// right now.
	b := v.Memory.Restarts[name]
	if b.Attempt <= latest.Attempt && v.Now.Before(b.Until(v.lastExit(all))) {
		return "CrashLoopBackOff", fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", b.Pause, name, v.Pod.Name, v.Pod.Namespace, v.Pod.UID)
	}
	if failed { // it is being tried again
		reason, message, _ = f.at(v.Now)
	}
	return reason, message
}

// ID returns the ID of a container as statuses have it.
func (r Runtime) ID(id string) string {
	if strings.Contains(id, "://") { // recalled from a status
		return id
	}
	return string(r) + "://" + id
}

// maxMessages bounds the termination messages of all containers of a pod together, in bytes, as in Kubernetes.
const maxMessages = 12 << 10

func (r Runtime) terminated(v *View, c Container) *corev1.ContainerStateTerminated {
	spec := &v.Pod.Spec
	share := maxMessages / max(len(spec.Containers)+len(spec.InitContainers)+len(spec.EphemeralContainers), 1)
	return &corev1.ContainerStateTerminated{
		ExitCode: c.ExitCode, Reason: c.TerminationReason(), Message: strings.ToValidUTF8(c.Message[:min(len(c.Message), share)], ""), ContainerID: r.ID(c.ID),
		StartedAt: seconds(c.StartedAt), FinishedAt: seconds(c.FinishedAt),
	}
}

// TerminationReason returns the reason that the status of a container that has ended has: that of the runtime, or one for the exit
// code.
func (c *Container) TerminationReason() string {
	switch {
	case c.Reason != "":
		return c.Reason
	case c.ExitCode == 0:
		return "Completed"
	}
	return "Error"
}

// running fills in the resources of a running container and its mounts.
func (r Runtime) running(v *View, c *corev1.Container, s *corev1.ContainerStatus, id string) {
	if granted := v.granted(c); len(granted.Requests) > 0 {
		s.AllocatedResources = granted.Requests
	}
	applied := own(v.applied(c, id), v.granted(c))
	s.Resources = &applied
	for _, m := range c.VolumeMounts {
		vm := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			off := corev1.RecursiveReadOnlyDisabled
			vm.RecursiveReadOnly = &off
		}
		s.VolumeMounts = append(s.VolumeMounts, vm)
	}
}

func ready(v *View, c *corev1.Container, latest Container, as role) bool {
	if as == initial || as == ephemeral {
		return false
	}
	verdict, probed := v.Memory.Ready[latest.ID]
	if probed {
		return verdict
	}
	return c.ReadinessProbe == nil
}

// A tally counts the containers of a pod by what they do, for its phase.
type tally struct {
	initializing, waiting, running   int
	stopped, stoppedForGood, success int
	initFailed                       bool // an init container has failed for good
}

// phase follows Kubernetes' table of container states and restart policies.
func phase(v *View, s *corev1.PodStatus) corev1.PodPhase {
	if podstate.FinishedIn(&v.Last) {
		return v.Last.Phase
	}
	if v.Memory.Failed.Reason != "" && !v.Alive() {
		return corev1.PodFailed
	}
	var t tally
	begun := v.begun(v.sandbox())
	for i := range s.InitContainerStatuses {
		t.initContainer(v, &v.Pod.Spec.InitContainers[i], &s.InitContainerStatuses[i], begun)
	}
	for i := range s.ContainerStatuses {
		t.container(v, &v.Pod.Spec.Containers[i], &s.ContainerStatuses[i])
	}
	ended := corev1.PodFailed
	if t.stopped == len(s.ContainerStatuses) && t.stopped == t.success {
		ended = corev1.PodSucceeded
	}
	switch {
	case v.Deleting() && !v.Alive():
		return ended
	case t.initFailed:
		return corev1.PodFailed
	case t.initializing > 0 || t.waiting > 0:
		return corev1.PodPending
	case t.running > 0 || t.stopped != t.stoppedForGood:
		return corev1.PodRunning
	}
	return ended
}

// exit returns how a container that is not running ended; nil if it has not ended.
func exit(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if s.State.Terminated != nil || s.State.Waiting == nil {
		return s.State.Terminated
	}
	return s.LastTerminationState.Terminated
}

// initContainer counts an init container. A sidecar that is starting keeps the pod from running only before the first
// regular container.
func (t *tally) initContainer(v *View, c *corev1.Container, s *corev1.ContainerStatus, begun bool) {
	end := exit(s)
	switch {
	case IsSidecar(c) && s.State.Running != nil:
		t.running++
		if !*s.Started && !begun {
			t.initializing++
		}
	case IsSidecar(c) && end == nil:
		t.waiting++
	case IsSidecar(c):
	case end == nil:
		t.initializing++
	case end.ExitCode == 0 && s.State.Terminated == nil:
		t.initializing++ // it has to run again
	case end.ExitCode != 0:
		t.initFailed = t.initFailed || !restartsAfter(v.Pod, c, end.ExitCode)
		if !begun {
			t.initializing++
		}
	}
}

func (t *tally) container(v *View, c *corev1.Container, s *corev1.ContainerStatus) {
	end := exit(s)
	switch {
	case s.State.Running != nil:
		t.running++
	case end == nil:
		t.waiting++
	default:
		t.stopped++
		if end.ExitCode == 0 && s.State.Terminated != nil {
			t.success++
		}
		if !restartsAfter(v.Pod, c, end.ExitCode) {
			t.stoppedForGood++
		}
	}
}

// conditions returns the pod's conditions in the order in which Kubernetes
// prints them, others' last.
func conditions(v *View, s *corev1.PodStatus) []corev1.PodCondition {
	own := []corev1.PodCondition{
		sandboxCondition(v),
		initCondition(v, s),
		{}, // Ready, which needs the next one
		containersCondition(v, s),
		condition(corev1.PodScheduled, true, "", ""),
	}
	own[2] = readyCondition(v, s, own[3])
	if restartsAll(v.Pod) {
		own = append(own, restartingCondition(v, s))
	}
	own = append(own, resizeConditions(v)...)
	if v.Memory.Failed.Disrupted {
		own = append(own, condition(corev1.DisruptionTarget, true, corev1.PodReasonTerminationByKubelet, or(v.Memory.Failed.Because, v.Memory.Failed.Message)))
	}
	out := make([]corev1.PodCondition, 0, len(own)+1)
	for _, c := range own {
		c.ObservedGeneration = v.Pod.Generation
		c.LastTransitionTime = metav1.NewTime(v.Now).Rfc3339Copy()
		if was := condOf(v.Last.Conditions, c.Type); was != nil && was.Status == c.Status {
			c.LastTransitionTime, c.LastProbeTime = was.LastTransitionTime, was.LastProbeTime
		} else if was := condOf(v.Pod.Status.Conditions, c.Type); was != nil && was.Status == c.Status {
			c.LastTransitionTime, c.LastProbeTime = was.LastTransitionTime, was.LastProbeTime
		}
		out = append(out, c)
	}
	for _, c := range v.Pod.Status.Conditions {
		if condOf(own, c.Type) == nil && c.Type != corev1.PodResizePending && c.Type != corev1.PodResizeInProgress {
			out = append(out, c)
		}
	}
	return out
}

func condition(t corev1.PodConditionType, holds bool, reason, message string) corev1.PodCondition {
	status := corev1.ConditionFalse
	if holds {
		status = corev1.ConditionTrue
	}
	return corev1.PodCondition{Type: t, Status: status, Reason: reason, Message: message}
}

func condOf(list []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	if i := slices.IndexFunc(list, func(c corev1.PodCondition) bool { return c.Type == t }); i >= 0 {
		return &list[i]
	}
	return nil
}

// sandboxCondition says whether the pod's sandbox and network are there.
func sandboxCondition(v *View) corev1.PodCondition {
	sb := v.sandbox()
	message := ""
	switch {
	case sb == nil:
		message = "no pod sandbox exists"
	case !sb.Ready:
		message = "pod sandbox is not ready"
	case !v.Pod.Spec.HostNetwork && len(sb.IPs) == 0:
		message = "pod sandbox has no IP address"
	default:
		return condition(corev1.PodReadyToStartContainers, true, "", "")
	}
	return condition(corev1.PodReadyToStartContainers, false, "PodSandboxNotReady", message)
}

// initCondition says whether the init containers have done their work. A pod that was initialized once stays so.
func initCondition(v *View, s *corev1.PodStatus) corev1.PodCondition {
	if s.Phase == corev1.PodSucceeded {
		return condition(corev1.PodInitialized, true, "PodCompleted", "")
	}
	if was := condOf(v.Last.Conditions, corev1.PodInitialized); was != nil && was.Status == corev1.ConditionTrue {
		return condition(corev1.PodInitialized, true, "", "")
	}
	var open []string
	for i := range s.InitContainerStatuses {
		c := &s.InitContainerStatuses[i]
		if done := c.Ready || IsSidecar(&v.Pod.Spec.InitContainers[i]) && *c.Started; !done {
			open = append(open, c.Name)
		}
	}
	begun := slices.ContainsFunc(s.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil
	})
	if begun || len(open) == 0 {
		return condition(corev1.PodInitialized, true, "", "")
	}
	return condition(corev1.PodInitialized, false, "ContainersNotInitialized", fmt.Sprintf("containers with incomplete status: %v", open))
}

// restartingCondition says whether all containers of the pod are being restarted because one of them ended.
func restartingCondition(v *View, s *corev1.PodStatus) corev1.PodCondition {
	switch s.Phase {
	case corev1.PodSucceeded:
		return condition(corev1.AllContainersRestarting, false, "PodCompleted", "")
	case corev1.PodFailed:
		return condition(corev1.AllContainersRestarting, false, "PodFailed", "")
	default: // not ended: its containers decide
	}
	at := v.restartedAll(v.sandbox())
	for _, c := range v.Containers {
		if c.State == Running && c.CreatedAt.Before(at) {
			return condition(corev1.AllContainersRestarting, true, "RestartAllContainersStarted", "container exited with restart policy rule")
		}
	}
	return condition(corev1.AllContainersRestarting, false, "", "")
}

func containersCondition(v *View, s *corev1.PodStatus) corev1.PodCondition {
	switch s.Phase {
	case corev1.PodSucceeded:
		return condition(corev1.ContainersReady, false, "PodCompleted", "")
	case corev1.PodFailed:
		return condition(corev1.ContainersReady, false, "PodFailed", "")
	default: // not ended: its containers decide
	}
	var open []string
	for i := range s.InitContainerStatuses {
		if c := &s.InitContainerStatuses[i]; IsSidecar(&v.Pod.Spec.InitContainers[i]) && !c.Ready {
			open = append(open, c.Name)
		}
	}
	for i := range s.ContainerStatuses {
		if c := &s.ContainerStatuses[i]; !c.Ready {
			open = append(open, c.Name)
		}
	}
	if len(open) > 0 {
		return condition(corev1.ContainersReady, false, "ContainersNotReady", fmt.Sprintf("containers with unready status: %v", open))
	}
	return condition(corev1.ContainersReady, true, "", "")
}

func readyCondition(v *View, s *corev1.PodStatus, containers corev1.PodCondition) corev1.PodCondition {
	if containers.Status != corev1.ConditionTrue {
		return condition(corev1.PodReady, false, containers.Reason, containers.Message)
	}
	var open []string
	for _, gate := range v.Pod.Spec.ReadinessGates {
		switch c := condOf(v.Pod.Status.Conditions, gate.ConditionType); {
		case c == nil:
			open = append(open, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		case c.Status != corev1.ConditionTrue:
			open = append(open, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, c.Status))
		}
	}
	if len(open) > 0 {
		return condition(corev1.PodReady, false, "ReadinessGatesNotReady", strings.Join(open, ", "))
	}
	return condition(corev1.PodReady, true, "", "")
}

// QOS returns the pod's quality of service class. Resources of the pod as a whole count in place of those of its containers
// (KEP-2837).
func QOS(pod *corev1.Pod) corev1.PodQOSClass {
	guaranteed, asks := true, false
	count := func(r *corev1.ResourceRequirements) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			asks = asks || !request.IsZero() || !limit.IsZero()
			if limit.IsZero() || !request.IsZero() && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	if pod.Spec.Resources != nil {
		count(pod.Spec.Resources)
	}
	if !asks {
		guaranteed = true
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				count(&list[i].Resources)
			}
		}
	}
	switch {
	case !asks:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

func seconds(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.NewTime(t).Rfc3339Copy()
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
