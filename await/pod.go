package await

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// judgePod: running is reached by a pod that runs or has ended well, ready by its
// Ready condition, finished and complete by the phase Succeeded.
func judgePod(d Degree, p *corev1.Pod, v View) Verdict {
	switch p.Status.Phase {
	case corev1.PodFailed:
		return failed(Certain, "the pod failed: %s", podEnd(p))
	case corev1.PodSucceeded:
		if d == Ready {
			return failed(Certain, "the pod has ended, it will not be ready again")
		}
		return done()
	case corev1.PodRunning:
		if d == Running || d == Ready && podReady(p) && p.DeletionTimestamp == nil {
			return done()
		}
	default: // not there yet
	}
	if p.DeletionTimestamp != nil {
		return waiting("the pod is being deleted")
	}
	return podTrouble(d, p, v)
}

// podTrouble says why a pod that has not ended is not further. Its verdict is
// Done when nothing is wrong with it.
func podTrouble(d Degree, p *corev1.Pod, v View) Verdict {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return waiting("%s", reason(c.Reason, c.Message))
		}
	}
	starting := ""
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range statuses {
			w := s.State.Waiting
			if w == nil {
				continue
			}
			text := reason(w.Reason, w.Message)
			switch w.Reason {
			case "InvalidImageName":
				return failed(Certain, "%s", text)
			case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable",
				"CreateContainerConfigError", "CreateContainerError", "RunContainerError":
				return failed(Likely, "%s", text)
			case "CrashLoopBackOff":
				return failed(Likely, "container %s: %s%s", s.Name, text, lastExit(s))
			}
			if starting == "" {
				starting = text
			}
		}
	}
	if p.Status.Phase == corev1.PodRunning && (d == Running || podReady(p) && d == Ready) {
		return done()
	}
	if p.Status.Phase == corev1.PodRunning && d.isOneOf(Finished, Complete) {
		return waiting("running")
	}
	if warning := v.warning(p); warning != "" {
		return waiting("%s", warning)
	}
	switch {
	case p.Status.Phase == corev1.PodRunning:
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Message != "" {
				return waiting("running, not ready: %s", oneLine(c.Message))
			}
		}
		return waiting("running, not ready")
	case starting != "":
		return waiting("%s", starting)
	case p.Spec.NodeName == "":
		return waiting("not yet on a node")
	}
	return waiting("starting on node %s", p.Spec.NodeName)
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// podEnd says how a failed pod ended: what the kubelet says, or the exit code of
// the first container that had one.
func podEnd(p *corev1.Pod) string {
	if s := reason(p.Status.Reason, p.Status.Message); s != "" {
		return s
	}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for _, s := range statuses {
			if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
				return fmt.Sprintf("container %s exited with code %d", s.Name, t.ExitCode) + because(t)
			}
		}
	}
	return "it says no more"
}

func lastExit(s corev1.ContainerStatus) string {
	t := s.LastTerminationState.Terminated
	if t == nil {
		return ""
	}
	return fmt.Sprintf(" (it exited with code %d%s)", t.ExitCode, because(t))
}

func because(t *corev1.ContainerStateTerminated) string {
	if t.Reason == "" || t.Reason == "Error" {
		return ""
	}
	return ", " + t.Reason
}
