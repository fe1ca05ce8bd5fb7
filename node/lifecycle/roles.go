package lifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// A role is what a container is for in its pod.
type role int

const (
	regular   role = iota
	initial        // an init container that has to end before the next container starts
	sidecar        // an init container with restartPolicy Always
	ephemeral      // a container for debugging, which is never restarted
)

// IsSidecar reports whether an init container is a sidecar: it runs beside the containers that follow.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// roleOf returns the role of an init container.
func roleOf(c *corev1.Container) role {
	if IsSidecar(c) {
		return sidecar
	}
	return initial
}

// Spec returns the specification of a container of a pod and whether it is an init container. It returns nil if the pod
// has no container of that name. The specification of an ephemeral container is returned as that of a container.
func Spec(pod *corev1.Pod, name string) (c *corev1.Container, isInit bool) {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == name {
			return c, false
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return c, true
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := (*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon); c.Name == name {
			return c, false
		}
	}
	return nil, false
}

// matching returns the action of the first restart rule of c that an exit code matches; "" if none does.
func matching(c *corev1.Container, code int32) corev1.ContainerRestartRuleAction {
	for i := range c.RestartPolicyRules {
		on := c.RestartPolicyRules[i].ExitCodes
		if on == nil {
			continue
		}
		in := slices.Contains(on.Values, code)
		if on.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn && in || on.Operator == corev1.ContainerRestartRuleOnExitCodesOpNotIn && !in {
			return c.RestartPolicyRules[i].Action
		}
	}
	return ""
}

// restartsAll reports whether any rule of the pod restarts all its containers.
func restartsAll(pod *corev1.Pod) bool {
	has := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	}
	return slices.ContainsFunc(pod.Spec.InitContainers, has) || slices.ContainsFunc(pod.Spec.Containers, has)
}

// restartsAfter reports whether a container is started again after it ended with an exit code: by its rules, its own
// policy or that of the pod.
func restartsAfter(pod *corev1.Pod, c *corev1.Container, code int32) bool {
	policy := pod.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		if matching(c, code) != "" {
			return true // both actions that there are restart the container
		}
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	case corev1.RestartPolicyAlways:
	}
	return true
}

// replaces reports whether a running container that its agent stops is started again: rules need an exit code, so only the
// policies decide.
func replaces(pod *corev1.Pod, c *corev1.Container) bool {
	if c.RestartPolicy != nil {
		return *c.RestartPolicy != corev1.ContainerRestartPolicyNever
	}
	return pod.Spec.RestartPolicy != corev1.RestartPolicyNever
}

// restarts reports whether a container whose latest attempt is no longer running is started again.
func restarts(pod *corev1.Pod, c *corev1.Container, latest Container) bool {
	return latest.State != Exited || restartsAfter(pod, c, latest.ExitCode)
}
