package autoscaling

import (
	"errors"
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog/podspec"
)

// Limits of the behaviour, in seconds.
const (
	maxPeriod = 1800
	maxWindow = 3600
)

func validate(h, old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	at, s := field.NewPath("spec"), &h.Spec
	var errs field.ErrorList
	if m := s.MinReplicas; m != nil && *m < 0 {
		errs = append(errs, field.Invalid(at.Child("minReplicas"), *m, "must be greater than or equal to 0"))
	}
	switch {
	case s.MaxReplicas == 0:
		errs = append(errs, field.Required(at.Child("maxReplicas"), "must be set and greater than 0"))
	case s.MaxReplicas < 0:
		errs = append(errs, field.Invalid(at.Child("maxReplicas"), s.MaxReplicas, "must be greater than or equal to 1"))
	}
	if s.MinReplicas != nil && s.MaxReplicas < *s.MinReplicas {
		errs = append(errs, field.Invalid(at.Child("maxReplicas"), s.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	target := s.ScaleTargetRef
	check := needGroup
	switch {
	case old != nil && old.Spec.ScaleTargetRef.APIVersion == target.APIVersion && old.Spec.ScaleTargetRef.Kind == target.Kind:
		check = anyVersion
	case target.Kind == "ReplicationController": // the only one of the core group that can be scaled
		check = anyGroup
	}
	errs = append(errs, validateReference(target, check, at.Child("scaleTargetRef"))...)
	errs = append(errs, validateMetrics(s, objectCheck(old), at.Child("metrics"))...)
	if b := s.Behavior; b != nil {
		errs = append(errs, validateRules(b.ScaleUp, at.Child("behavior", "scaleUp"))...)
		errs = append(errs, validateRules(b.ScaleDown, at.Child("behavior", "scaleDown"))...)
	}
	return errs
}

func validateStatus(h, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	at := field.NewPath("status")
	var errs field.ErrorList
	for i, c := range h.Status.Conditions {
		if c.ObservedGeneration != nil {
			errs = append(errs, apivalidation.ValidateNonnegativeField(*c.ObservedGeneration, at.Child("conditions").Index(i).Child("observedGeneration"))...)
		}
	}
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(h.Status.CurrentReplicas), at.Child("currentReplicas"))...)
	return append(errs, apivalidation.ValidateNonnegativeField(int64(h.Status.DesiredReplicas), at.Child("desiredReplicas"))...)
}

// A versionCheck returns the fault of the apiVersion of a reference.
type versionCheck func(apiVersion string) error

func anyVersion(string) error { return nil }

func anyGroup(apiVersion string) error {
	_, err := schema.ParseGroupVersion(apiVersion)
	return err
}

func needGroup(apiVersion string) error {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err == nil && gv.Group == "" {
		err = errors.New("apiVersion must specify API group")
	}
	return err
}

// objectCheck returns the check of the objects that metrics describe: one that was wrong before may stay.
func objectCheck(old *autoscalingv2.HorizontalPodAutoscaler) versionCheck {
	if old != nil && slices.ContainsFunc(old.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType && m.Object != nil && anyGroup(m.Object.DescribedObject.APIVersion) != nil
	}) {
		return anyVersion
	}
	return anyGroup
}

func validateReference(ref autoscalingv2.CrossVersionObjectReference, check versionCheck, at *field.Path) field.ErrorList {
	errs := validateSegment(ref.Kind, "", at.Child("kind"))
	errs = append(errs, validateSegment(ref.Name, "", at.Child("name"))...)
	if err := check(ref.APIVersion); err != nil {
		errs = append(errs, field.Invalid(at.Child("apiVersion"), ref.APIVersion, err.Error()))
	}
	return errs
}

// validateSegment checks a name that must be there and fit into a path.
func validateSegment(name, required string, at *field.Path) (errs field.ErrorList) {
	if name == "" {
		return field.ErrorList{field.Required(at, required)}
	}
	for _, fault := range content.IsPathSegmentName(name) {
		errs = append(errs, field.Invalid(at, name, fault))
	}
	return errs
}

func validateRules(r *autoscalingv2.HPAScalingRules, at *field.Path) (errs field.ErrorList) {
	if r == nil {
		return nil
	}
	window := at.Child("stabilizationWindowSeconds")
	if w := r.StabilizationWindowSeconds; w != nil && *w < 0 {
		errs = append(errs, field.Invalid(window, *w, "must be greater than or equal to zero"))
	} else if w != nil && *w > maxWindow {
		errs = append(errs, field.Invalid(window, *w, fmt.Sprintf("must be less than or equal to %d", maxWindow)))
	}
	selections := []autoscalingv2.ScalingPolicySelect{autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect}
	if r.SelectPolicy != nil && !slices.Contains(selections, *r.SelectPolicy) {
		errs = append(errs, field.NotSupported(at.Child("selectPolicy"), *r.SelectPolicy, selections))
	}
	policies := at.Child("policies")
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(policies, "must specify at least one Policy"))
	}
	for i, p := range r.Policies {
		errs = append(errs, validatePolicy(p, policies.Index(i))...)
	}
	if t := r.Tolerance; t != nil && t.Sign() < 0 {
		errs = append(errs, field.Invalid(at.Child("tolerance"), t.String(), apivalidation.IsNegativeErrorMsg))
	}
	return errs
}

func validatePolicy(p autoscalingv2.HPAScalingPolicy, at *field.Path) (errs field.ErrorList) {
	types := []autoscalingv2.HPAScalingPolicyType{autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy}
	if !slices.Contains(types, p.Type) {
		errs = append(errs, field.NotSupported(at.Child("type"), p.Type, types))
	}
	if p.Value <= 0 {
		errs = append(errs, field.Invalid(at.Child("value"), p.Value, "must be greater than zero"))
	}
	period := at.Child("periodSeconds")
	if p.PeriodSeconds <= 0 {
		errs = append(errs, field.Invalid(period, p.PeriodSeconds, "must be greater than zero"))
	} else if p.PeriodSeconds > maxPeriod {
		errs = append(errs, field.Invalid(period, p.PeriodSeconds, fmt.Sprintf("must be less than or equal to %d", maxPeriod)))
	}
	return errs
}

func validateMetrics(s *autoscalingv2.HorizontalPodAutoscalerSpec, objects versionCheck, at *field.Path) (errs field.ErrorList) {
	apart := false // there is a metric that does not come from the pods, which may be none
	for i := range s.Metrics {
		errs = append(errs, validateMetric(&s.Metrics[i], objects, at.Index(i))...)
		apart = apart || s.Metrics[i].Type == autoscalingv2.ObjectMetricSourceType || s.Metrics[i].Type == autoscalingv2.ExternalMetricSourceType
	}
	if s.MinReplicas != nil && *s.MinReplicas == 0 && !apart {
		errs = append(errs, field.Forbidden(at, "must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	return errs
}

// A source is one of the fields of a metric, one of which is set.
type source struct {
	of    autoscalingv2.MetricSourceType
	name  string
	set   bool
	check func(at *field.Path) field.ErrorList
}

func sources(m *autoscalingv2.MetricSpec, objects versionCheck) []source {
	return []source{
		{autoscalingv2.ObjectMetricSourceType, "object", m.Object != nil, func(at *field.Path) field.ErrorList { return validateObject(m.Object, objects, at) }},
		{autoscalingv2.ExternalMetricSourceType, "external", m.External != nil, func(at *field.Path) field.ErrorList { return validateExternal(m.External, at) }},
		{autoscalingv2.PodsMetricSourceType, "pods", m.Pods != nil, func(at *field.Path) field.ErrorList { return validatePods(m.Pods, at) }},
		{autoscalingv2.ResourceMetricSourceType, "resource", m.Resource != nil, func(at *field.Path) field.ErrorList {
			var errs field.ErrorList
			if m.Resource.Name == "" {
				errs = append(errs, field.Required(at.Child("name"), "must specify a resource name"))
			}
			return append(errs, validateUse(m.Resource.Target, at.Child("target"))...)
		}},
		{autoscalingv2.ContainerResourceMetricSourceType, "containerResource", m.ContainerResource != nil, func(at *field.Path) field.ErrorList {
			return validateContainer(m.ContainerResource, at)
		}},
	}
}

func validateMetric(m *autoscalingv2.MetricSpec, objects versionCheck, at *field.Path) (errs field.ErrorList) {
	all := sources(m, objects)
	var types []autoscalingv2.MetricSourceType
	for _, s := range all {
		types = append(types, s.of)
	}
	slices.Sort(types)
	if m.Type == "" {
		errs = append(errs, field.Required(at.Child("type"), "must specify a metric source type"))
	}
	if !slices.Contains(types, m.Type) {
		errs = append(errs, field.NotSupported(at.Child("type"), m.Type, types))
	}
	set := 0
	for _, s := range all {
		if !s.set {
			continue
		}
		if set++; set == 1 {
			errs = append(errs, s.check(at.Child(s.name))...)
		}
	}
	for _, s := range all {
		switch {
		case s.of == m.Type && !s.set:
			errs = append(errs, field.Required(at.Child(s.name), "must populate information for the given metric source"))
		case s.of != m.Type && s.set && set > 1:
			errs = append(errs, field.Forbidden(at.Child(s.name), "must populate the given metric source only"))
		}
	}
	return errs
}

func validateObject(s *autoscalingv2.ObjectMetricSource, check versionCheck, at *field.Path) field.ErrorList {
	errs := validateReference(s.DescribedObject, check, at.Child("describedObject"))
	errs = append(errs, validateSegment(s.Metric.Name, "must specify a metric name", at.Child("metric", "name"))...)
	errs = append(errs, validateTarget(s.Target, at.Child("target"))...)
	if s.Target.Value == nil && s.Target.AverageValue == nil {
		errs = append(errs, field.Required(at.Child("target", "averageValue"), "must set either a target value or averageValue"))
	}
	return errs
}

func validateExternal(s *autoscalingv2.ExternalMetricSource, at *field.Path) field.ErrorList {
	errs := validateSegment(s.Metric.Name, "must specify a metric name", at.Child("metric", "name"))
	errs = append(errs, validateTarget(s.Target, at.Child("target"))...)
	switch {
	case s.Target.Value == nil && s.Target.AverageValue == nil:
		errs = append(errs, field.Required(at.Child("target", "averageValue"), "must set either a target value for metric or a per-pod target"))
	case s.Target.Value != nil && s.Target.AverageValue != nil:
		errs = append(errs, field.Forbidden(at.Child("target", "value"), "may not set both a target value for metric and a per-pod target"))
	}
	return errs
}

func validatePods(s *autoscalingv2.PodsMetricSource, at *field.Path) field.ErrorList {
	errs := validateSegment(s.Metric.Name, "must specify a metric name", at.Child("metric", "name"))
	errs = append(errs, validateTarget(s.Target, at.Child("target"))...)
	if s.Target.AverageValue == nil {
		errs = append(errs, field.Required(at.Child("target", "averageValue"), "must specify a positive target averageValue"))
	}
	return errs
}

func validateContainer(s *autoscalingv2.ContainerResourceMetricSource, at *field.Path) (errs field.ErrorList) {
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), "must specify a resource name"))
	} else {
		errs = append(errs, podspec.ValidateContainerResourceName(s.Name, at.Child("name"))...)
	}
	if s.Container == "" {
		errs = append(errs, field.Required(at.Child("container"), "must specify a container"))
	} else {
		for _, fault := range content.IsDNS1123Label(s.Container) {
			errs = append(errs, field.Invalid(at.Child("container"), s.Container, fault))
		}
	}
	return append(errs, validateUse(s.Target, at.Child("target"))...)
}

// validateUse checks the target of the use of a resource.
func validateUse(t autoscalingv2.MetricTarget, at *field.Path) field.ErrorList {
	errs := validateTarget(t, at)
	switch {
	case t.AverageUtilization == nil && t.AverageValue == nil:
		errs = append(errs, field.Required(at.Child("averageUtilization"), "must set either a target raw value or a target utilization"))
	case t.AverageUtilization != nil && t.AverageValue != nil:
		errs = append(errs, field.Forbidden(at.Child("averageValue"), "may not set both a target raw value and a target utilization"))
	}
	return errs
}

func validateTarget(t autoscalingv2.MetricTarget, at *field.Path) (errs field.ErrorList) {
	if t.Type == "" {
		errs = append(errs, field.Required(at.Child("type"), "must specify a metric target type"))
	}
	switch t.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	default:
		errs = append(errs, field.Invalid(at.Child("type"), t.Type, "must be either Utilization, Value, or AverageValue"))
	}
	for _, q := range []struct {
		name string
		is   *resource.Quantity
	}{{"value", t.Value}, {"averageValue", t.AverageValue}} {
		if q.is != nil && q.is.Sign() != 1 {
			errs = append(errs, field.Invalid(at.Child(q.name), q.is.String(), "must be positive"))
		}
	}
	if u := t.AverageUtilization; u != nil && *u < 1 {
		errs = append(errs, field.Invalid(at.Child("averageUtilization"), *u, "must be greater than 0"))
	}
	return errs
}
