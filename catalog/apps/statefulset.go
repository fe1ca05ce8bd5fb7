package apps

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
)

func statefulSets() *catalog.Kind {
	columns := []catalog.Column{
		catalog.Text("Ready", "Number of the pod with ready state", func(s *appsv1.StatefulSet) string {
			return fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, numberOr(s.Spec.Replicas, 1))
		}),
		catalog.Age(),
	}
	return &catalog.Kind{
		GroupVersionKind: gvk("StatefulSet"),
		Resource:         "statefulsets",
		Singular:         "statefulset",
		ShortNames:       []string{"sts"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() catalog.Object { return &appsv1.StatefulSet{} },
		NewList:          func() runtime.Object { return &appsv1.StatefulSetList{} },
		Default:          catalog.Default(defaultStatefulSet),
		Prepare: catalog.Prepare(func(s, old *appsv1.StatefulSet) {
			podspec.DropClosed(&s.Spec.Template.Spec)
			s.Status = appsv1.StatefulSetStatus{}
			if old != nil {
				s.Status = old.Status
			}
		}),
		Validate: catalog.Validate(validateStatefulSet),
		Warn: catalog.Warn(func(s *appsv1.StatefulSet) []string {
			return podspec.Unheeded(&s.Spec.Template.Spec, field.NewPath("spec", "template", "spec"))
		}),
		Generation: true,
		Columns:    append(columns, templateColumns(func(s *appsv1.StatefulSet) *corev1.PodTemplateSpec { return &s.Spec.Template })...),
		Subresources: []catalog.Subresource{
			{
				Name:  "status",
				Verbs: readWrite,
				Prepare: catalog.Prepare(func(s, old *appsv1.StatefulSet) {
					s.Spec = old.Spec
				}),
				Validate: catalog.Validate(validateStatefulSetStatus),
			},
			scaled[*appsv1.StatefulSet]{
				resource: "statefulsets",
				wanted:   func(s *appsv1.StatefulSet) **int32 { return &s.Spec.Replicas },
				present:  func(s *appsv1.StatefulSet) int32 { return s.Status.Replicas },
				selector: func(s *appsv1.StatefulSet) *metav1.LabelSelector { return s.Spec.Selector },
				validate: validateStatefulSet,
			}.subresource(),
		},
	}
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
	if r := s.UpdateStrategy.RollingUpdate; s.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && r != nil && r.Partition == nil {
		s.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(0)), MaxUnavailable: r.MaxUnavailable}
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
}

func validateStatefulSet(set, old *appsv1.StatefulSet) field.ErrorList {
	at, s := field.NewPath("spec"), &set.Spec
	c := counts{at: at}
	c.maybe("replicas", s.Replicas)
	c.number("minReadySeconds", int64(s.MinReadySeconds))
	c.maybe("revisionHistoryLimit", s.RevisionHistoryLimit)
	if s.Ordinals != nil {
		c.number("ordinals.start", int64(s.Ordinals.Start))
	}
	errs := c.errs
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
	if s.ServiceName != "" {
		for _, fault := range validation.IsDNS1123Label(s.ServiceName) {
			errs = append(errs, field.Invalid(at.Child("serviceName"), s.ServiceName, fault))
		}
	}
	errs = append(errs, validateSelector(s.Selector, &s.Template, "statefulset", at)...)
	if len(s.VolumeClaimTemplates) > 0 {
		errs = append(errs, field.Forbidden(at.Child("volumeClaimTemplates"), "persistent volume claims are not served by this version"))
	}
	errs = append(errs, validateTemplate(&s.Template, "StatefulSet", at.Child("template"))...)
	errs = append(errs, validateWishes(set, progressDeadline)...)
	if old != nil && fixed(s, &old.Spec) {
		errs = append(errs, field.Forbidden(at, "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"))
	}
	return errs
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
		c := counts{at: rolling}
		c.maybe("partition", r.Partition)
		errs = append(errs, c.errs...)
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
	c := counts{at: field.NewPath("status")}
	c.number("replicas", int64(s.Replicas))
	c.number("readyReplicas", int64(s.ReadyReplicas))
	c.number("currentReplicas", int64(s.CurrentReplicas))
	c.number("updatedReplicas", int64(s.UpdatedReplicas))
	c.number("availableReplicas", int64(s.AvailableReplicas))
	c.number("observedGeneration", s.ObservedGeneration)
	c.maybe("collisionCount", s.CollisionCount)
	c.notAbove("readyReplicas", s.ReadyReplicas, s.Replicas, "status.replicas")
	c.notAbove("currentReplicas", s.CurrentReplicas, s.Replicas, "status.replicas")
	c.notAbove("updatedReplicas", s.UpdatedReplicas, s.Replicas, "status.replicas")
	c.notAbove("availableReplicas", s.AvailableReplicas, s.Replicas, "status.replicas")
	c.notAbove("availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "status.readyReplicas")
	if old != nil {
		c.notLess("collisionCount", s.CollisionCount, old.Status.CollisionCount)
	}
	return c.errs
}
