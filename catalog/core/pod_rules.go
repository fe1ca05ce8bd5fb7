package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog/podspec"
)

func validatePod(p, old *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateMirror(p, old)
	if old != nil && equality.Semantic.DeepEqual(p.Spec, old.Spec) {
		return errs
	}
	errs = append(errs, podspec.Validate(&p.Spec, spec)...)
	errs = append(errs, podspec.ValidateClaimNames(p.Name, p.Spec.Volumes, spec)...)
	if old != nil {
		return append(errs, podspec.ValidateUpdate(&p.Spec, &old.Spec, spec)...)
	}
	if len(p.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "cannot be set on create"))
	}
	if p.Spec.NodeName != "" && len(p.Spec.SchedulingGates) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	return errs
}

// validateEphemeral checks a change through the subresource ephemeralcontainers.
func validateEphemeral(p, old *corev1.Pod) field.ErrorList {
	if _, mirror := old.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	spec := field.NewPath("spec")
	errs := podspec.Validate(&p.Spec, spec)
	return append(errs, podspec.ValidateEphemeralUpdate(p.Spec.EphemeralContainers, old.Spec.EphemeralContainers, spec.Child("ephemeralContainers"))...)
}

// validateResize checks a change through the subresource resize.
func validateResize(p, old *corev1.Pod) field.ErrorList {
	if _, mirror := old.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	}
	if old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "windows pods cannot be resized")}
	}
	spec := field.NewPath("spec")
	errs := podspec.Validate(&p.Spec, spec)
	if !resizable(&old.Status) {
		errs = append(errs, field.Forbidden(spec, "Pod running on node without support for resize"))
	}
	class := old.Status.QOSClass
	if class == "" {
		class = podspec.QOS(&old.Spec)
	}
	return append(errs, podspec.ValidateResize(&p.Spec, &old.Spec, class, spec)...)
}

// resizable reports whether the node of a pod can resize containers, as far as it is known: such a node reports the
// resources of running containers.
func resizable(s *corev1.PodStatus) bool {
	for i := range s.ContainerStatuses {
		if s.ContainerStatuses[i].State.Running != nil {
			return s.ContainerStatuses[i].Resources != nil
		}
	}
	return true
}

// validateMirror checks the annotation by which a node says that a pod only
// shows one that it runs by itself.
func validateMirror(p, old *corev1.Pod) field.ErrorList {
	invalid := func(value, why string) field.ErrorList {
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations").Key(corev1.MirrorPodAnnotationKey), value, why)}
	}
	value, is := p.Annotations[corev1.MirrorPodAnnotationKey]
	if old != nil {
		if was, had := old.Annotations[corev1.MirrorPodAnnotationKey]; is != had || value != was {
			return invalid(value, "may not be changed, removed, or added on update")
		}
		return nil
	}
	if is && p.Spec.NodeName == "" {
		return invalid(value, "must set spec.nodeName if mirror pod annotation is set")
	}
	return nil
}

func validatePodStatus(p, old *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	at, s := field.NewPath("status"), &p.Status
	if s.NominatedNodeName != "" && (old == nil || s.NominatedNodeName != old.Status.NominatedNodeName) {
		nominated := at.Child("nominatedNodeName")
		errs = append(errs, faults(validation.IsDNS1123Subdomain(s.NominatedNodeName), nominated, s.NominatedNodeName)...)
		if old != nil && old.Spec.NodeName != "" {
			errs = append(errs, field.Forbidden(nominated, "may not be set on pods that are already bound to a node"))
		}
	}
	errs = append(errs, validateStatusDetails(p, at)...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(s.ObservedGeneration, at.Child("observedGeneration"))...)
	var was corev1.PodStatus
	if old != nil {
		was = old.Status
	}
	errs = append(errs, validateIPs(podIPs(s), podIPs(&was), at.Child("podIPs"))...)
	errs = append(errs, validateIPs(hostIPs(s), hostIPs(&was), at.Child("hostIPs"))...)
	if len(s.HostIPs) > 0 && s.HostIPs[0].IP != s.HostIP {
		errs = append(errs, field.Invalid(at.Child("hostIPs").Index(0).Child("ip"), s.HostIPs[0].IP, "must be equal to `hostIP`"))
	}
	for i, c := range s.Conditions {
		at := at.Child("conditions").Index(i)
		if !knownCondition(c.Type) {
			errs = append(errs, faults(validation.IsQualifiedName(string(c.Type)), at.Child("type"), string(c.Type))...)
		}
		errs = append(errs, apivalidation.ValidateNonnegativeField(c.ObservedGeneration, at.Child("observedGeneration"))...)
	}
	if old == nil {
		return errs
	}
	errs = append(errs, apivalidation.ValidateImmutableField(s.QOSClass, old.Status.QOSClass, at.Child("qosClass"))...)
	errs = append(errs, validateStayEnded(s.EphemeralContainerStatuses, old.Status.EphemeralContainerStatuses, at.Child("ephemeralContainerStatuses"))...)
	policy := p.Spec.RestartPolicy
	if restartsAll(&p.Spec) {
		return errs // one container can restart all the others
	}
	errs = append(errs, validateEnded(s.ContainerStatuses, old.Status.ContainerStatuses, policy, p.Spec.Containers, at.Child("containerStatuses"))...)
	// An init container that has ended well stays so under each policy but Always.
	errs = append(errs, validateEnded(s.InitContainerStatuses, old.Status.InitContainerStatuses, policy, p.Spec.InitContainers, at.Child("initContainerStatuses"))...)
	return errs
}

// knownCondition reports whether a condition is one of Kubernetes' own.
func knownCondition(t corev1.PodConditionType) bool {
	switch t {
	case corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReadyToStartContainers, corev1.DisruptionTarget:
		return true
	default:
		return false
	}
}

// restartsAll reports whether a rule of one container restarts all containers of the pod.
func restartsAll(spec *corev1.PodSpec) bool {
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, r := range c.RestartPolicyRules {
			if r.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
				return true
			}
		}
	}
	return false
}

// validateEnded checks that containers that are not started again stay ended.
func validateEnded(now, was []corev1.ContainerStatus, policy corev1.RestartPolicy, specs []corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if policy == corev1.RestartPolicyAlways {
		return nil
	}
	for _, w := range was {
		own := slices.ContainsFunc(specs, func(c corev1.Container) bool { return c.Name == w.Name && c.RestartPolicy != nil })
		if own || w.State.Terminated == nil || w.State.Terminated.ExitCode != 0 && policy == corev1.RestartPolicyOnFailure {
			continue
		}
		for i, n := range now {
			if n.Name == w.Name && n.State.Terminated == nil {
				errs = append(errs, field.Forbidden(at.Index(i).Child("state"), "may not be transitioned to non-terminated state"))
			}
		}
	}
	return errs
}

func podIPs(s *corev1.PodStatus) []string {
	var ips []string
	for _, ip := range s.PodIPs {
		ips = append(ips, ip.IP)
	}
	return ips
}

func hostIPs(s *corev1.PodStatus) []string {
	var ips []string
	for _, ip := range s.HostIPs {
		ips = append(ips, ip.IP)
	}
	return ips
}

// validateIPs checks that there is at most one address of each family. Those of old count as valid.
func validateIPs(ips, old []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	six := map[bool]int{}
	for i, ip := range ips {
		errs = append(errs, validation.IsValidIPForLegacyField(at.Index(i), ip, true, old)...)
		six[strings.Contains(ip, ":")]++
	}
	if six[true] > 1 || six[false] > 1 {
		errs = append(errs, field.Invalid(at, ips, fmt.Sprintf("may specify no more than one IP for each IP family, and got %d", len(ips))))
	}
	return errs
}
