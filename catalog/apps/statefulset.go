package apps

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
	"github.com/sampan-io/sampan/catalog/workload"
)

func statefulSets() *catalog.Kind {
	return workload.Common[*appsv1.StatefulSet, appsv1.StatefulSetStatus]{
		Kind: gvk("StatefulSet"), Resource: "statefulsets", ShortName: "sts",
		Template: func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template },
		Status:   func(s *appsv1.StatefulSet) *appsv1.StatefulSetStatus { return &s.Status },
		Columns: []catalog.Column{
			readyColumn(func(s *appsv1.StatefulSet) (ready, of int32) {
				return s.Status.ReadyReplicas, numberOr(s.Spec.Replicas, 1)
			}),
		},
		Selector: func(s *appsv1.StatefulSet) *metav1.LabelSelector { return s.Spec.Selector },
		Validate: validateStatefulSet, ValidateStatus: validateStatefulSetStatus,
		KeepSpec: func(s, old *appsv1.StatefulSet) { s.Spec = old.Spec },
		Size:     func(s *appsv1.StatefulSet) **int32 { return &s.Spec.Replicas },
		SizeNow:  func(s *appsv1.StatefulSetStatus) int32 { return s.Replicas },
		FreeName: true,
	}.In(&catalog.Kind{
		New:     func() catalog.Object { return &appsv1.StatefulSet{} },
		NewList: func() runtime.Object { return &appsv1.StatefulSetList{} },
		Default: catalog.Default(defaultStatefulSet),
		// Its pods have the name in a label.
		ValidateName: apivalidation.NameIsDNSLabel,
		Warn:         catalog.Warn(warnOfStatefulSet),
	})
}

func warnOfStatefulSet(s *appsv1.StatefulSet) (all []string) {
	spec := field.NewPath("spec")
	for i := range s.Spec.VolumeClaimTemplates {
		all = append(all, podspec.ClaimWarnings(&s.Spec.VolumeClaimTemplates[i].Spec, spec.Child("volumeClaimTemplates").Index(i))...)
	}
	if n := s.Spec.RevisionHistoryLimit; n != nil && *n < 0 {
		all = append(all, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return all
}

func defaultStatefulSet(set *appsv1.StatefulSet) {
	s := &set.Spec
	podspec.Default(&s.Template.Spec)
	if s.PodManagementPolicy == "" {
		s.PodManagementPolicy = appsv1.OrderedReadyPodManagement
	}
	if s.UpdateStrategy.Type == "" {
		s.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		if s.UpdateStrategy.RollingUpdate == nil {
			s.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{}
		}
	}
	if r := s.UpdateStrategy.RollingUpdate; s.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && r != nil && (r.Partition == nil || r.MaxUnavailable == nil) {
		rolling := *r
		orDefault(&rolling.Partition, 0)
		orDefault(&rolling.MaxUnavailable, intstr.FromInt32(1))
		s.UpdateStrategy.RollingUpdate = &rolling
	}
	retain := appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{}
	if s.PersistentVolumeClaimRetentionPolicy != nil {
		retain = *s.PersistentVolumeClaimRetentionPolicy
	}
	if retain.WhenDeleted == "" {
		retain.WhenDeleted = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	}
	if retain.WhenScaled == "" {
		retain.WhenScaled = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	}
	if s.PersistentVolumeClaimRetentionPolicy == nil || *s.PersistentVolumeClaimRetentionPolicy != retain {
		s.PersistentVolumeClaimRetentionPolicy = &retain
	}
	orDefault(&s.Replicas, 1)
	orDefault(&s.RevisionHistoryLimit, defaultHistory)
	s.VolumeClaimTemplates = slices.Clone(s.VolumeClaimTemplates)
	for i := range s.VolumeClaimTemplates {
		c := &s.VolumeClaimTemplates[i]
		c.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
		podspec.DefaultClaim(&c.Spec)
		if c.Status.Phase == "" {
			c.Status.Phase = corev1.ClaimPending // as the API has it, although it says nothing
		}
	}
}

func validateStatefulSet(set, old *appsv1.StatefulSet) field.ErrorList {
	at, s := field.NewPath("spec"), &set.Spec
	c := workload.Counts{At: at}
	c.Maybe("replicas", s.Replicas)
	c.Number("minReadySeconds", int64(s.MinReadySeconds))
	// revisionHistoryLimit may be negative: everything is kept.
	if s.Ordinals != nil {
		c.Number("ordinals.start", int64(s.Ordinals.Start))
	}
	errs := c.Errs
	switch s.PodManagementPolicy {
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	case "":
		errs = append(errs, field.Required(at.Child("podManagementPolicy"), ""))
	default:
		errs = append(errs, field.Invalid(at.Child("podManagementPolicy"), s.PodManagementPolicy,
			fmt.Sprintf("must be '%s' or '%s'", appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement)))
	}
	errs = append(errs, validateSetStrategy(&s.UpdateStrategy, at.Child("updateStrategy"))...)
	errs = append(errs, validateRetention(s.PersistentVolumeClaimRetentionPolicy, at.Child("persistentVolumeClaimRetentionPolicy"))...)
	if s.ServiceName != "" && old == nil { // it does not change
		for _, fault := range validation.IsDNS1123Label(s.ServiceName) {
			errs = append(errs, field.Invalid(at.Child("serviceName"), s.ServiceName, fault))
		}
	}
	errs = append(errs, validateSelector(s.Selector, &s.Template, "statefulset", at)...)
	var was *corev1.PodTemplateSpec
	if old != nil {
		was = withClaims(&old.Spec)
	} else { // they do not change
		errs = append(errs, validateClaims(s.VolumeClaimTemplates, at.Child("volumeClaimTemplates"))...)
	}
	errs = append(errs, workload.ValidateTemplate(withClaims(s), was, "StatefulSet", at.Child("template"))...)
	errs = append(errs, validateAnnotations(set, progressDeadline)...)
	if old != nil && fixed(s, &old.Spec) {
		errs = append(errs, field.Forbidden(at, "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"))
	}
	return errs
}

// validateClaims checks templates of claims. A pod finds a claim as the volume of the
// template's name.
func validateClaims(templates []corev1.PersistentVolumeClaim, at *field.Path) (errs field.ErrorList) {
	seen := map[string]bool{}
	for i := range templates {
		c, at := &templates[i], at.Index(i)
		name := at.Child("metadata", "name")
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(name, ""))
		case seen[c.Name]:
			errs = append(errs, field.Duplicate(name, c.Name))
		default:
			for _, fault := range validation.IsDNS1123Label(c.Name) {
				errs = append(errs, field.Invalid(name, c.Name, fault))
			}
		}
		seen[c.Name] = true
		errs = append(errs, metav1validation.ValidateLabels(c.Labels, at.Child("metadata", "labels"))...)
		errs = append(errs, podspec.ValidateClaim(&c.Spec, at.Child("spec"))...)
	}
	return errs
}

// withClaims returns the template of the pods as they will be: what mounts a claim finds a
// volume of its name, and the controller sets host name and subdomain. The order of
// the template's own volumes, by which faults name them, stays.
func withClaims(s *appsv1.StatefulSetSpec) *corev1.PodTemplateSpec {
	if len(s.VolumeClaimTemplates) == 0 && s.Template.Spec.Hostname == "" && s.Template.Spec.Subdomain == "" {
		return &s.Template
	}
	t := s.Template
	t.Spec.Hostname, t.Spec.Subdomain = "", ""
	t.Spec.Volumes = slices.Clone(t.Spec.Volumes)
	first := map[string]int{} // volume of a name
	for i := range t.Spec.Volumes {
		if _, twice := first[t.Spec.Volumes[i].Name]; !twice {
			first[t.Spec.Volumes[i].Name] = i
		}
	}
	for i := range s.VolumeClaimTemplates {
		name := s.VolumeClaimTemplates[i].Name
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}
		if at, has := first[name]; has {
			t.Spec.Volumes[at].VolumeSource = source // the claim is what the pod gets
		} else if len(validation.IsDNS1123Label(name)) == 0 {
			first[name] = len(t.Spec.Volumes)
			t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		}
	}
	return &t
}

// fixed says that something differs which cannot be changed.
func fixed(s, old *appsv1.StatefulSetSpec) bool {
	with := *old
	with.Replicas, with.Ordinals, with.Template = s.Replicas, s.Ordinals, s.Template
	with.UpdateStrategy, with.RevisionHistoryLimit = s.UpdateStrategy, s.RevisionHistoryLimit
	with.PersistentVolumeClaimRetentionPolicy, with.MinReadySeconds = s.PersistentVolumeClaimRetentionPolicy, s.MinReadySeconds
	return !equality.Semantic.DeepEqual(*s, with)
}

func validateSetStrategy(u *appsv1.StatefulSetUpdateStrategy, at *field.Path) (errs field.ErrorList) {
	rolling, r := at.Child("rollingUpdate"), u.RollingUpdate
	switch u.Type {
	case appsv1.OnDeleteStatefulSetStrategyType:
		if r != nil {
			errs = append(errs, field.Invalid(rolling, r, fmt.Sprintf("only allowed for updateStrategy '%s'", appsv1.RollingUpdateStatefulSetStrategyType)))
		}
	case appsv1.RollingUpdateStatefulSetStrategyType:
		if r == nil {
			return nil
		}
		c := workload.Counts{At: rolling}
		c.Maybe("partition", r.Partition)
		errs = append(errs, c.Errs...)
		if r.MaxUnavailable == nil {
			return errs
		}
		faults := validateShare(r.MaxUnavailable, rolling.Child("maxUnavailable"))
		if len(faults) == 0 && isNothing(r.MaxUnavailable) {
			faults = append(faults, field.Invalid(rolling.Child("maxUnavailable"), *r.MaxUnavailable, "cannot be 0"))
		}
		errs = append(errs, faults...)
		errs = append(errs, validateAtMostAll(r.MaxUnavailable, rolling.Child("maxUnavailable"))...)
	case "":
		errs = append(errs, field.Required(at, ""))
	default:
		errs = append(errs, field.Invalid(at, u.Type, fmt.Sprintf("must be '%s' or '%s'",
			appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType)))
	}
	return errs
}

func validateRetention(p *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy, at *field.Path) (errs field.ErrorList) {
	if p == nil {
		return nil
	}
	for _, f := range []struct {
		name  string
		value appsv1.PersistentVolumeClaimRetentionPolicyType
	}{{"whenDeleted", p.WhenDeleted}, {"whenScaled", p.WhenScaled}} {
		switch f.value {
		case appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType:
		default:
			errs = append(errs, field.NotSupported(at.Child(f.name), f.value, []appsv1.PersistentVolumeClaimRetentionPolicyType{
				appsv1.DeletePersistentVolumeClaimRetentionPolicyType, appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			}))
		}
	}
	return errs
}

func validateStatefulSetStatus(set, old *appsv1.StatefulSet) field.ErrorList {
	s := &set.Status
	c := workload.Counts{At: field.NewPath("status")}
	c.Number("replicas", int64(s.Replicas))
	c.Number("readyReplicas", int64(s.ReadyReplicas))
	c.Number("currentReplicas", int64(s.CurrentReplicas))
	c.Number("updatedReplicas", int64(s.UpdatedReplicas))
	c.Number("availableReplicas", int64(s.AvailableReplicas))
	c.Number("observedGeneration", s.ObservedGeneration)
	c.Maybe("collisionCount", s.CollisionCount)
	c.NotAbove("readyReplicas", s.ReadyReplicas, s.Replicas, "status.replicas")
	c.NotAbove("currentReplicas", s.CurrentReplicas, s.Replicas, "status.replicas")
	c.NotAbove("updatedReplicas", s.UpdatedReplicas, s.Replicas, "status.replicas")
	c.NotAbove("availableReplicas", s.AvailableReplicas, s.Replicas, "status.replicas")
	c.NotAbove("availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "status.readyReplicas")
	if old != nil {
		c.NotLess("collisionCount", s.CollisionCount, old.Status.CollisionCount)
	}
	return c.Errs
}
