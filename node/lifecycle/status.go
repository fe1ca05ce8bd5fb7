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
func (r Runtime) Status(v View) corev1.PodStatus {
	if v.unmade() {
		return unmade(&v)
	}
	s := v.Pod.Status // what is not ours stays
	s.ObservedGeneration = v.Pod.Generation
	s.StartTime = v.Last.StartTime
	s.Reason, s.Message = v.Memory.Failed.Reason, v.Memory.Failed.Message
	s.HostIPs, s.PodIP, s.PodIPs = nil, "", nil
	s.InitContainerStatuses, s.ContainerStatuses = nil, nil
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
	r.addresses(&s, &v)

	over := v.Finished() || v.Deleting() && !v.Alive()
	initialized := true
	for i := range v.Pod.Spec.InitContainers {
		c := &v.Pod.Spec.InitContainers[i]
		cs, done := r.container(&v, c, true, over)
		s.InitContainerStatuses = append(s.InitContainerStatuses, cs)
		initialized = initialized && done
	}
	for i := range v.Pod.Spec.Containers {
		cs, _ := r.container(&v, &v.Pod.Spec.Containers[i], false, over)
		s.ContainerStatuses = append(s.ContainerStatuses, cs)
	}
	s.Phase = phase(&v, &s)
	if l := &v.Last; podstate.FinishedIn(l) && s.Reason == "" {
		s.Reason, s.Message = l.Reason, l.Message
	}
	s.Conditions = conditions(&v, &s, initialized)
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

// container returns the status of one container and whether it is done, which
// matters for init containers: it has succeeded. If over is true, it will not be started
// again.
func (r Runtime) container(v *View, c *corev1.Container, isInit, over bool) (corev1.ContainerStatus, bool) {
	started := false
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Started: &started}
	all := v.attempts(c.Name)
	if len(all) == 0 {
		r.notCreated(v, c, &s, over)
		return s, false
	}
	sb, latest := v.sandbox(), all[0]
	s.RestartCount = latest.Attempt
	s.Image, s.ImageID = or(latest.Image, c.Image), latest.ImageID
	s.ContainerID = r.ID(latest.ID)
	s.User = latest.User
	s.LastTerminationState = r.before(v, c.Name, all)
	switch latest.State {
	case Running:
		started = true
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(latest.StartedAt).Rfc3339Copy()}
		s.Ready = ready(v, c, latest, isInit)
		r.granted(v, c, &s)
	case Exited:
		t := r.terminated(latest)
		again := !over && restarts(v.Pod.Spec.RestartPolicy, latest) && (!isInit || latest.ExitCode != 0)
		reason, message := r.held(v, c.Name, latest)
		switch {
		case again && reason != "":
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
			s.LastTerminationState.Terminated = t
		case again && isInit && !here(all, sb):
			s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
			s.LastTerminationState.Terminated = t
		default:
			s.State.Terminated = t
		}
		s.Ready = isInit && t.ExitCode == 0
	case Unknown:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(latest.StartedAt).Rfc3339Copy()}
	case Created:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: beginning(v.Pod)}
	}
	return s, latest.State == Exited && latest.ExitCode == 0 && (sb == nil || !sb.Ready || here(all, sb))
}

// before returns how the attempt before the latest one ended: from the runtime,
// or from the last status.
func (r Runtime) before(v *View, name string, all []Container) corev1.ContainerState {
	if len(all) > 1 && all[1].State == Exited {
		return corev1.ContainerState{Terminated: r.terminated(all[1])}
	}
	switch last := find(v.Last, name); {
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
	if last := find(v.Last, c.Name); over && last != nil && last.State.Waiting != nil {
		s.State.Waiting = last.State.Waiting
		return
	}
	reason, message := beginning(v.Pod), ""
	if f, failed := v.Memory.Failures[c.Name]; failed {
		reason, message, _ = f.at(v.Now)
	} else if last := find(v.Last, c.Name); last != nil && last.ContainerID == "" && last.State.Waiting != nil && !empty(last.State.Waiting.Reason) {
		// Keep the reason of the agent before the restart, until the container is tried again.
		reason, message = last.State.Waiting.Reason, last.State.Waiting.Message
	}
	s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
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
func (r Runtime) held(v *View, name string, latest Container) (reason, message string) {
	f, failed := v.Memory.Failures[name]
	failed = failed && f.At.After(latest.FinishedAt)
	if failed && v.Now.Before(f.Retry) {
		reason, message, _ = f.at(v.Now)
		return reason, message
	}
	// A back-off for a later attempt has grown because that attempt is being made
	// right now.
	b := v.Memory.Restarts[name]
	if b.Attempt <= latest.Attempt && v.Now.Before(b.Until(latest.FinishedAt)) {
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

func (r Runtime) terminated(c Container) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{
		ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message, ContainerID: r.ID(c.ID),
		StartedAt: seconds(c.StartedAt), FinishedAt: seconds(c.FinishedAt),
	}
	switch {
	case t.Reason != "":
	case t.ExitCode == 0:
		t.Reason = "Completed"
	default:
		t.Reason = "Error"
	}
	return t
}

// granted copies the resources of a running container into its status: those with which it was started. A later change of
// the specification (pods/resize) has no effect on it.
func (r Runtime) granted(v *View, c *corev1.Container, s *corev1.ContainerStatus) {
	if last := find(v.Last, c.Name); last != nil && last.ContainerID == s.ContainerID && last.Resources != nil {
		s.AllocatedResources, s.Resources = last.AllocatedResources, last.Resources
	} else {
		if len(c.Resources.Requests) > 0 {
			s.AllocatedResources = c.Resources.Requests
		}
		s.Resources = &corev1.ResourceRequirements{Limits: c.Resources.Limits, Requests: c.Resources.Requests}
	}
	for _, m := range c.VolumeMounts {
		vm := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			off := corev1.RecursiveReadOnlyDisabled
			vm.RecursiveReadOnly = &off
		}
		s.VolumeMounts = append(s.VolumeMounts, vm)
	}
}

func ready(v *View, c *corev1.Container, latest Container, isInit bool) bool {
	if isInit {
		return false
	}
	verdict, probed := v.Memory.Ready[latest.ID]
	if probed {
		return verdict
	}
	return c.ReadinessProbe == nil
}

// phase follows Kubernetes' table of container states and restart policies.
func phase(v *View, s *corev1.PodStatus) corev1.PodPhase {
	if podstate.FinishedIn(&v.Last) {
		return v.Last.Phase
	}
	if v.Memory.Failed.Reason != "" && !v.Alive() {
		return corev1.PodFailed
	}
	policy := v.Pod.Spec.RestartPolicy
	var pending, failed int
	for i := range s.InitContainerStatuses {
		c := &s.InitContainerStatuses[i]
		t := c.State.Terminated
		if t == nil && c.State.Waiting != nil {
			t = c.LastTerminationState.Terminated
		}
		switch {
		case t == nil:
			pending++
		case t.ExitCode != 0:
			failed++
		case c.State.Terminated == nil:
			pending++
		}
	}
	var running, waiting, stopped, succeeded int
	for i := range s.ContainerStatuses {
		switch c := &s.ContainerStatuses[i]; {
		case c.State.Running != nil:
			running++
		case c.State.Terminated != nil:
			stopped++
			if c.State.Terminated.ExitCode == 0 {
				succeeded++
			}
		case c.LastTerminationState.Terminated != nil:
			stopped++
		default:
			waiting++
		}
	}
	ended := func() corev1.PodPhase {
		if stopped == len(s.ContainerStatuses) && stopped == succeeded {
			return corev1.PodSucceeded
		}
		return corev1.PodFailed
	}
	switch {
	case v.Deleting() && !v.Alive():
		return ended()
	case failed > 0 && policy == corev1.RestartPolicyNever:
		return corev1.PodFailed
	case pending > 0 || failed > 0 || waiting > 0:
		return corev1.PodPending
	case running > 0 || policy == corev1.RestartPolicyAlways:
		return corev1.PodRunning
	case stopped == succeeded || policy == corev1.RestartPolicyNever:
		return ended()
	}
	return corev1.PodRunning
}

// conditions returns the pod's conditions in the order in which Kubernetes
// prints them, others' last.
func conditions(v *View, s *corev1.PodStatus, initialized bool) []corev1.PodCondition {
	sb := v.sandbox()
	up := sb != nil && sb.Ready && (v.Pod.Spec.HostNetwork || len(sb.IPs) > 0)
	own := []corev1.PodCondition{
		condition(corev1.PodReadyToStartContainers, up, "", ""),
		initCondition(s, initialized),
		{}, // Ready, which needs the next one
		containersCondition(s),
		condition(corev1.PodScheduled, true, "", ""),
	}
	own[2] = readyCondition(v, s, own[3])
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
		if condOf(own, c.Type) == nil {
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

func initCondition(s *corev1.PodStatus, initialized bool) corev1.PodCondition {
	switch {
	case s.Phase == corev1.PodSucceeded:
		return condition(corev1.PodInitialized, true, "PodCompleted", "")
	case initialized || len(s.InitContainerStatuses) == 0:
		return condition(corev1.PodInitialized, true, "", "")
	}
	var open []string
	for _, c := range s.InitContainerStatuses {
		if !c.Ready {
			open = append(open, c.Name)
		}
	}
	return condition(corev1.PodInitialized, false, "ContainersNotInitialized", fmt.Sprintf("containers with incomplete status: %v", open))
}

func containersCondition(s *corev1.PodStatus) corev1.PodCondition {
	switch s.Phase {
	case corev1.PodSucceeded:
		return condition(corev1.ContainersReady, false, "PodCompleted", "")
	case corev1.PodFailed:
		return condition(corev1.ContainersReady, false, "PodFailed", "")
	default: // not ended: its containers decide
	}
	var open []string
	for _, c := range s.ContainerStatuses {
		if !c.Ready {
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

// QOS returns the pod's quality of service class.
func QOS(pod *corev1.Pod) corev1.PodQOSClass {
	guaranteed, asks := true, false
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			r := &list[i].Resources
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				request, limit := r.Requests[name], r.Limits[name]
				asks = asks || !request.IsZero() || !limit.IsZero()
				if limit.IsZero() || !request.IsZero() && request.Cmp(limit) != 0 {
					guaranteed = false
				}
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
