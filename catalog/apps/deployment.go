package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
	"github.com/sampan-io/sampan/catalog/workload"
)

const defaultProgressDeadline = 600 // seconds

func deployments() *catalog.Kind {
	spec, status := appsv1.DeploymentSpec{}.SwaggerDoc(), appsv1.DeploymentStatus{}.SwaggerDoc()
	selector := func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector }
	k := workload.Common[*appsv1.Deployment, appsv1.DeploymentStatus]{
		Kind: gvk("Deployment"), Resource: "deployments", ShortName: "deploy",
		Template: func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template },
		Status:   func(d *appsv1.Deployment) *appsv1.DeploymentStatus { return &d.Status },
		Columns: []catalog.Column{
			readyColumn(func(d *appsv1.Deployment) (ready, of int32) {
				return d.Status.ReadyReplicas, numberOr(d.Spec.Replicas, 1)
			}),
			catalog.Number("Up-to-date", status["updatedReplicas"], func(d *appsv1.Deployment) int64 { return int64(d.Status.UpdatedReplicas) }).Declared("string", ""),
			catalog.Number("Available", status["availableReplicas"], func(d *appsv1.Deployment) int64 { return int64(d.Status.AvailableReplicas) }),
		},
		Selector: selector, Validate: validateDeployment, ValidateStatus: validateDeploymentStatus,
		// Annotations are not carried over: the revision of a deployment is one, and is
		// written together with the status.
		KeepSpec: func(d, old *appsv1.Deployment) { d.Spec, d.Labels = old.Spec, old.Labels }, Keeps: []string{"metadata.labels"},
		Size:    func(d *appsv1.Deployment) **int32 { return &d.Spec.Replicas },
		SizeNow: func(s *appsv1.DeploymentStatus) int32 { return s.Replicas },
	}.In(&catalog.Kind{
		New:     func() catalog.Object { return &appsv1.Deployment{} },
		NewList: func() runtime.Object { return &appsv1.DeploymentList{} },
		Default: catalog.Default(defaultDeployment), Counted: catalog.Object.GetAnnotations,
	})
	k.Columns = append(k.Columns, selectorColumn(spec["selector"], selector))
	return k
}

func defaultDeployment(d *appsv1.Deployment) {
	s := &d.Spec
	podspec.Default(&s.Template.Spec)
	orDefault(&s.Replicas, 1)
	if s.Strategy.Type == "" {
		s.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if s.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		var rolling appsv1.RollingUpdateDeployment
		if s.Strategy.RollingUpdate != nil {
			rolling = *s.Strategy.RollingUpdate
		}
		orDefault(&rolling.MaxUnavailable, intstr.FromString("25%"))
		orDefault(&rolling.MaxSurge, intstr.FromString("25%"))
		if s.Strategy.RollingUpdate == nil || *s.Strategy.RollingUpdate != rolling {
			s.Strategy.RollingUpdate = &rolling
		}
	}
	orDefault(&s.RevisionHistoryLimit, defaultHistory)
	orDefault(&s.ProgressDeadlineSeconds, defaultProgressDeadline)
}

func validateDeployment(d, old *appsv1.Deployment) field.ErrorList {
	at, s := field.NewPath("spec"), &d.Spec
	var was *corev1.PodTemplateSpec
	if old != nil {
		was = &old.Spec.Template
	}
	c := workload.Counts{At: at}
	c.Maybe("replicas", s.Replicas)
	c.Number("minReadySeconds", int64(s.MinReadySeconds))
	c.Maybe("revisionHistoryLimit", s.RevisionHistoryLimit)
	c.Maybe("progressDeadlineSeconds", s.ProgressDeadlineSeconds)
	errs := c.Errs
	if p := s.ProgressDeadlineSeconds; p != nil && *p <= s.MinReadySeconds {
		errs = append(errs, field.Invalid(at.Child("progressDeadlineSeconds"), *p, "must be greater than minReadySeconds"))
	}
	errs = append(errs, validateSelector(s.Selector, &s.Template, "deployment", at)...)
	errs = append(errs, workload.ValidateTemplate(&s.Template, was, "ReplicaSet", at.Child("template"))...)
	errs = append(errs, validateStrategy(&s.Strategy, at.Child("strategy"))...)
	errs = append(errs, validateDeploymentWishes(d)...)
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(s.Selector, old.Spec.Selector, at.Child("selector"))...)
	}
	return errs
}

func validateStrategy(s *appsv1.DeploymentStrategy, at *field.Path) field.ErrorList {
	rolling := at.Child("rollingUpdate")
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if s.RollingUpdate != nil {
			return field.ErrorList{field.Forbidden(rolling, "may not be specified when strategy `type` is '"+string(appsv1.RecreateDeploymentStrategyType)+"'")}
		}
		return nil
	case appsv1.RollingUpdateDeploymentStrategyType:
		if s.RollingUpdate == nil {
			return field.ErrorList{field.Required(rolling, "this should be defaulted and never be nil")}
		}
	default:
		return field.ErrorList{field.NotSupported(at, *s, []appsv1.DeploymentStrategyType{
			appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType,
		})}
	}
	unavailable, surge := s.RollingUpdate.MaxUnavailable, s.RollingUpdate.MaxSurge
	errs := validateShare(unavailable, rolling.Child("maxUnavailable"))
	errs = append(errs, validateShare(surge, rolling.Child("maxSurge"))...)
	if len(errs) == 0 && isNothing(unavailable) && isNothing(surge) {
		errs = append(errs, field.Invalid(rolling.Child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0"))
	}
	return append(errs, validateAtMostAll(unavailable, rolling.Child("maxUnavailable"))...)
}

func validateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	s := &d.Status
	c := workload.Counts{At: field.NewPath("status")}
	c.Number("observedGeneration", s.ObservedGeneration)
	c.Number("replicas", int64(s.Replicas))
	c.Number("updatedReplicas", int64(s.UpdatedReplicas))
	c.Number("readyReplicas", int64(s.ReadyReplicas))
	c.Number("availableReplicas", int64(s.AvailableReplicas))
	c.Number("unavailableReplicas", int64(s.UnavailableReplicas))
	c.Maybe("terminatingReplicas", s.TerminatingReplicas)
	c.Maybe("collisionCount", s.CollisionCount)
	c.NotAbove("updatedReplicas", s.UpdatedReplicas, s.Replicas, "status.replicas")
	c.NotAbove("readyReplicas", s.ReadyReplicas, s.Replicas, "status.replicas")
	c.NotAbove("availableReplicas", s.AvailableReplicas, s.Replicas, "status.replicas")
	c.NotAbove("availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "readyReplicas")
	if old != nil {
		c.NotLess("collisionCount", s.CollisionCount, old.Status.CollisionCount)
	}
	return c.Errs
}
