package core

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
)

func podColumns() []catalog.Column {
	spec, status := corev1.PodSpec{}.SwaggerDoc(), corev1.PodStatus{}.SwaggerDoc()
	return []catalog.Column{
		catalog.Text("Ready", "The aggregate readiness state of this pod for accepting traffic.", func(p *corev1.Pod) string {
			s := summarize(p)
			return fmt.Sprintf("%d/%d", s.ready, s.total)
		}),
		catalog.Text("Status", "The aggregate status of the containers in this pod.", func(p *corev1.Pod) string {
			return summarize(p).reason
		}),
		catalog.Timed("Restarts", "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.", func(p *corev1.Pod, now time.Time) string {
			s := summarize(p)
			if s.restarts == 0 || s.restarted.IsZero() {
				return fmt.Sprint(s.restarts)
			}
			return fmt.Sprintf("%d (%s ago)", s.restarts, catalog.Since(s.restarted, now))
		}),
		catalog.Age(),
		catalog.Text("IP", status["podIP"], func(p *corev1.Pod) string {
			if len(p.Status.PodIPs) > 0 {
				return catalog.OrNone(p.Status.PodIPs[0].IP)
			}
			return catalog.OrNone(p.Status.PodIP)
		}).Wide(),
		catalog.Text("Node", spec["nodeName"], func(p *corev1.Pod) string { return catalog.OrNone(p.Spec.NodeName) }).Wide(),
		catalog.Text("Nominated Node", status["nominatedNodeName"], func(p *corev1.Pod) string {
			return catalog.OrNone(p.Status.NominatedNodeName)
		}).Wide(),
		catalog.Text("Readiness Gates", spec["readinessGates"], readinessGates).Wide(),
	}
}

func readinessGates(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return catalog.None
	}
	open := 0
	for _, g := range p.Spec.ReadinessGates {
		if isTrue(p, g.ConditionType) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(p.Spec.ReadinessGates))
}

func isTrue(p *corev1.Pod, t corev1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// A summary is the state of the containers of a pod in a table.
type summary struct {
	ready, total int    // containers; init containers count if they run beside the others
	reason       string // the word under STATUS
	restarts     int
	restarted    time.Time // of the last restart; zero if there was none
}

// summarize returns the reason that describes a pod best: the state of the init container that it
// waits for, else that of the first container with a reason, else its phase; and Terminating before
// all if it is being deleted.
func summarize(p *corev1.Pod) summary {
	s := summary{
		total:  len(p.Spec.Containers),
		reason: cmp.Or(p.Status.Reason, string(p.Status.Phase)),
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.reason = corev1.PodReasonSchedulingGated
		}
	}
	beside := map[string]bool{}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; podspec.RunsBeside(c) {
			beside[c.Name] = true
			s.total++
		}
	}
	initializing, sidecars := s.addInit(p, beside)
	if !initializing || isTrue(p, corev1.PodInitialized) {
		// The states of init containers are past.
		s.restarts, s.restarted = sidecars.restarts, sidecars.restarted
		s.addMain(p)
	}
	switch {
	case p.DeletionTimestamp == nil:
	case p.Status.Reason == "NodeLost":
		s.reason = "Unknown"
	case p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed:
		s.reason = "Terminating"
	}
	return s
}

// addInit adds the init containers up to the first that is not done, and reports whether there is
// such a container. It also returns the restarts of the sidecars, which run beside the others.
func (s *summary) addInit(p *corev1.Pod, beside map[string]bool) (initializing bool, sidecars summary) {
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		s.addRestarts(c)
		if beside[c.Name] {
			sidecars.addRestarts(c)
		}
		ended, waiting := c.State.Terminated, c.State.Waiting
		switch {
		case ended != nil && ended.ExitCode == 0:
			continue
		case beside[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case ended != nil:
			s.reason = "Init:" + endReason(ended)
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing":
			s.reason = "Init:" + waiting.Reason
		default:
			s.reason = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return true, sidecars
	}
	return false, sidecars
}

// addMain adds the containers proper. The first one that has a reason gives it.
func (s *summary) addMain(p *corev1.Pod) {
	running := false
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &p.Status.ContainerStatuses[i]
		s.addRestarts(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.reason = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.reason = endReason(c.State.Terminated)
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	// Some are done, others go on.
	if s.reason == "Completed" && running {
		s.reason = "NotReady"
		if isTrue(p, corev1.PodReady) {
			s.reason = "Running"
		}
	}
}

func (s *summary) addRestarts(c *corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(s.restarted) {
		s.restarted = t.FinishedAt.Time
	}
}

func endReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}
