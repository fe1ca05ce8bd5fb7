package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
)

func pods() *catalog.Kind {
	text := func(f func(p *corev1.Pod) string) func(catalog.Object) string { return catalog.Value(f) }
	return &catalog.Kind{
		GroupVersionKind: gvk("Pod"),
		Resource:         "pods",
		Singular:         "pod",
		ShortNames:       []string{"po"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() catalog.Object { return &corev1.Pod{} },
		NewList:          func() runtime.Object { return &corev1.PodList{} },
		Default:          catalog.Default(defaultPod),
		Prepare:          catalog.Prepare(preparePod),
		Validate:         catalog.Validate(validatePod),
		Warn:             catalog.WarnChange(warnOfPod),
		Generation:       true,
		Lifecycle:        catalog.Lifecycle{Grace: podGrace, AnswersDeleted: true},
		Columns:          podColumns(),
		Fields: map[string]func(catalog.Object) string{
			"spec.nodeName":           text(func(p *corev1.Pod) string { return p.Spec.NodeName }),
			"spec.restartPolicy":      text(func(p *corev1.Pod) string { return string(p.Spec.RestartPolicy) }),
			"spec.schedulerName":      text(func(p *corev1.Pod) string { return p.Spec.SchedulerName }),
			"spec.serviceAccountName": text(func(p *corev1.Pod) string { return p.Spec.ServiceAccountName }),
			"spec.hostNetwork":        text(func(p *corev1.Pod) string { return yes(p.Spec.HostNetwork) }),
			"status.phase":            text(func(p *corev1.Pod) string { return string(p.Status.Phase) }),
			"status.podIP":            text(func(p *corev1.Pod) string { return p.Status.PodIP }),
			// Upstream takes these two labels as well: the older name of spec.nodeName, and one
			// that no pod has a value for.
			"spec.host":                text(func(p *corev1.Pod) string { return p.Spec.NodeName }),
			"status.podIPs":            func(catalog.Object) string { return "" },
			"status.nominatedNodeName": text(func(p *corev1.Pod) string { return p.Status.NominatedNodeName }),
		},
		Storing: catalog.Storing{Indexed: []string{"spec.nodeName"}},
		Subresources: []catalog.Subresource{
			{
				Name:  "status",
				Verbs: readWrite,
				Shape: catalog.Part{
					Prepare:  catalog.Prepare(preparePodStatus),
					Keeps:    []string{"metadata.deletionTimestamp", "metadata.ownerReferences"},
					Validate: catalog.Validate(validatePodStatus),
					Warn:     catalog.Warn(warnOfPodStatus),
				},
			},
			{
				Name:  "ephemeralcontainers",
				Verbs: readWrite,
				Shape: catalog.Part{
					Prepare:  catalog.Prepare(prepareEphemeral),
					Only:     []string{"spec.ephemeralContainers"},
					Counts:   true,
					Validate: catalog.Validate(validateEphemeral),
				},
			},
			{
				Name:  "resize",
				Verbs: readWrite,
				Shape: catalog.Part{
					Prepare: catalog.Prepare(prepareResize),
					Only: []string{
						"spec.containers.*.resources", "spec.containers.*.resizePolicy",
						"spec.initContainers.*.resources", "spec.initContainers.*.resizePolicy", "spec.resources",
					},
					Counts:   true,
					Validate: catalog.Validate(validateResize),
				},
			},
			{
				Name:  "binding",
				Verbs: create,
				Shape: catalog.Action{
					Body:  &catalog.Body{Kind: gvk("Binding"), New: func() runtime.Object { return &corev1.Binding{} }},
					Alias: "bindings",
					Apply: bind,
				},
			},
			{
				Name:  "eviction",
				Verbs: create,
				Shape: catalog.Evict{Body: &catalog.Body{
					Kind:     policyv1.SchemeGroupVersion.WithKind("Eviction"),
					Versions: []schema.GroupVersion{{Group: policyv1.GroupName, Version: "v1beta1"}},
					New:      func() runtime.Object { return &policyv1.Eviction{} },
				}},
			},
			{
				Name:  "log",
				Verbs: []string{"get"},
				Shape: catalog.Stream{Handler: catalog.PodLog},
			},
			streamed("exec", catalog.PodExec, "PodExecOptions", func() runtime.Object { return &corev1.PodExecOptions{} }),
			streamed("attach", catalog.PodAttach, "PodAttachOptions", func() runtime.Object { return &corev1.PodAttachOptions{} }),
			streamed("portforward", catalog.PodPortForward, "PodPortForwardOptions", func() runtime.Object { return &corev1.PodPortForwardOptions{} }),
			proxied(catalog.PodProxy, "PodProxyOptions", func() runtime.Object { return &corev1.PodProxyOptions{} }),
		},
	}
}

// warnOfPod warns of new pods alone: users seldom write to others.
func warnOfPod(p, old *corev1.Pod) []string {
	if old != nil {
		return nil
	}
	return append(podspec.NameWarnings(p.Name, podspec.InHostname), podspec.Warnings("Pod", p.Name, &p.ObjectMeta, &p.Spec, nil)...)
}

func warnOfPodStatus(p *corev1.Pod) (all []string) {
	at := field.NewPath("status")
	for i, ip := range p.Status.PodIPs {
		all = append(all, validation.GetWarningsForIP(at.Child("podIPs").Index(i).Child("ip"), ip.IP)...)
	}
	for i, ip := range p.Status.HostIPs {
		all = append(all, validation.GetWarningsForIP(at.Child("hostIPs").Index(i).Child("ip"), ip.IP)...)
	}
	return all
}

func defaultPod(p *corev1.Pod) {
	podspec.DefaultPod(&p.Spec)
	if g := p.Spec.TerminationGracePeriodSeconds; g != nil && *g < 0 { // of pods alone, not of templates
		p.Spec.TerminationGracePeriodSeconds = new(int64(1))
	}
	// The old single field and the list say the same.
	s := &p.Status
	switch {
	case s.PodIP == "" && len(s.PodIPs) > 0:
		s.PodIP = s.PodIPs[0].IP
	case s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP):
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
}

func preparePod(p, old *corev1.Pod) {
	podspec.DropClosed(&p.Spec)
	if old != nil {
		p.Status = old.Status
		return
	}
	podspec.MatchLabelKeys(&p.Spec, p.Labels)
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: podspec.QOS(&p.Spec)}
	if len(p.Spec.SchedulingGates) > 0 {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type:               corev1.PodScheduled,
			Status:             corev1.ConditionFalse,
			LastTransitionTime: metav1.Now().Rfc3339Copy(),
			Reason:             corev1.PodReasonSchedulingGated,
			Message:            "Scheduling is blocked due to non-empty scheduling gates",
		})
	}
}

// preparePodStatus lets a status update change the status, labels and
// annotations, but neither owners nor the class that the spec gives the pod.
func preparePodStatus(p, old *corev1.Pod) {
	p.Spec = old.Spec
	p.OwnerReferences = old.OwnerReferences
	p.DeletionTimestamp = old.DeletionTimestamp
	p.DeletionGracePeriodSeconds = old.DeletionGracePeriodSeconds
	if p.Status.QOSClass == "" {
		p.Status.QOSClass = old.Status.QOSClass
	}
	// Their gates are closed by default in v1.37.
	if old.Status.VolumeHealth == nil {
		p.Status.VolumeHealth = nil
	}
	if old.Status.NodeAllocatableResourceClaimStatuses == nil {
		p.Status.NodeAllocatableResourceClaimStatuses = nil
	}
}

// prepareEphemeral lets an update of ephemeralcontainers change these alone.
func prepareEphemeral(p, old *corev1.Pod) {
	podspec.DropClosed(&p.Spec)
	ephemeral := p.Spec.EphemeralContainers
	p.Spec, p.Status = old.Spec, old.Status
	p.Spec.EphemeralContainers = ephemeral
	podspec.DropClosedShared(&p.Spec)
	metav1.ResetObjectMetaForStatus(&p.ObjectMeta, &old.ObjectMeta)
}

// prepareResize lets an update of resize change resources alone.
func prepareResize(p, old *corev1.Pod) {
	podspec.DropClosed(&p.Spec)
	podspec.PrepareResize(&p.Spec, &old.Spec)
	podspec.DropClosedShared(&p.Spec)
	p.Status = old.Status
	metav1.ResetObjectMetaForStatus(&p.ObjectMeta, &old.ObjectMeta)
}

// podGrace returns how long a pod has to stop: as long as asked for, else as it
// says itself. A pod that no node has, or that has ended, needs no time.
func podGrace(obj catalog.Object, asked *int64) int64 {
	p := obj.(*corev1.Pod)
	if asked == nil {
		asked = p.Spec.TerminationGracePeriodSeconds
	}
	switch {
	case p.Spec.NodeName == "", p.Status.Phase == corev1.PodSucceeded, p.Status.Phase == corev1.PodFailed, asked == nil:
		return 0
	case *asked < 0:
		return 1
	}
	return *asked
}

// bind gives a pod to the node that a Binding names.
func bind(parent catalog.Object, body runtime.Object) error {
	p := parent.(*corev1.Pod)
	b, ok := body.(*corev1.Binding)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("wrong object passed to pod binding: %T", body))
	}
	if b.Name != p.Name {
		return apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := validateBinding(b); len(errs) > 0 {
		return apierrors.NewInvalid(gvk("Binding").GroupKind(), p.Name, errs)
	}
	refuse := func(format string, args ...any) error {
		return apierrors.NewConflict(corev1.Resource("pods/binding"), p.Name, fmt.Errorf(format, args...))
	}
	switch {
	case b.UID != "" && b.UID != p.UID:
		return apierrors.NewConflict(corev1.Resource("pods"), p.Name,
			fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", b.UID, p.UID)) //nolint:staticcheck // the sentence is the API's
	case b.ResourceVersion != "" && p.ResourceVersion != "" && b.ResourceVersion != p.ResourceVersion:
		return apierrors.NewConflict(corev1.Resource("pods"), p.Name, errStale)
	case p.DeletionTimestamp != nil:
		return refuse("pod %s is being deleted, cannot be assigned to a host", p.Name)
	case p.Spec.NodeName != "":
		return refuse("pod %v is already assigned to node %q", p.Name, p.Spec.NodeName)
	case len(p.Spec.SchedulingGates) > 0:
		return refuse("pod %v has non-empty .spec.schedulingGates", p.Name)
	}
	p.Spec.NodeName = b.Target.Name
	p.Labels = merged(p.Labels, b.Labels)
	p.Annotations = merged(p.Annotations, b.Annotations)
	setScheduled(&p.Status, metav1.Now().Rfc3339Copy())
	return nil
}

func merged(into, from map[string]string) map[string]string {
	if len(from) == 0 {
		return into
	}
	all := maps.Clone(into)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, from)
	return all
}

// setScheduled makes the condition PodScheduled true.
func setScheduled(s *corev1.PodStatus, now metav1.Time) {
	c := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now}
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		if s.Conditions[i].Type != corev1.PodScheduled {
			continue
		}
		if s.Conditions[i].Status == corev1.ConditionTrue {
			c.LastTransitionTime = s.Conditions[i].LastTransitionTime
		}
		s.Conditions[i] = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}

func validateBinding(b *corev1.Binding) field.ErrorList {
	var errs field.ErrorList
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		errs = append(errs, field.NotSupported(field.NewPath("target", "kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		errs = append(errs, field.Required(field.NewPath("target", "name"), ""))
	} else if len(errs) == 0 {
		for _, fault := range validation.IsDNS1123Subdomain(b.Target.Name) {
			errs = append(errs, field.Invalid(field.NewPath("target", "name"), b.Target.Name, fault))
		}
	}
	return errs
}

var errStale = errors.New("the object has been modified; please apply your changes to the latest version and try again")
