package apps

import (
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
	"github.com/sampan-io/sampan/catalog/workload"
)

func daemonSets() *catalog.Kind {
	spec, status := appsv1.DaemonSetSpec{}.SwaggerDoc(), appsv1.DaemonSetStatus{}.SwaggerDoc()
	number := func(name, field string, f func(s *appsv1.DaemonSetStatus) int32) catalog.Column {
		return catalog.Number(name, status[field], func(d *appsv1.DaemonSet) int64 { return int64(f(&d.Status)) })
	}
	selector := func(d *appsv1.DaemonSet) *metav1.LabelSelector { return d.Spec.Selector }
	k := workload.Common[*appsv1.DaemonSet, appsv1.DaemonSetStatus]{
		Kind: gvk("DaemonSet"), Resource: "daemonsets", ShortName: "ds",
		Template: func(d *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &d.Spec.Template },
		Status:   func(d *appsv1.DaemonSet) *appsv1.DaemonSetStatus { return &d.Status },
		Columns: []catalog.Column{
			number("Desired", "desiredNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.DesiredNumberScheduled }),
			number("Current", "currentNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.CurrentNumberScheduled }),
			number("Ready", "numberReady", func(s *appsv1.DaemonSetStatus) int32 { return s.NumberReady }),
			number("Up-to-date", "updatedNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.UpdatedNumberScheduled }),
			number("Available", "numberAvailable", func(s *appsv1.DaemonSetStatus) int32 { return s.NumberAvailable }),
			catalog.Text("Node Selector", corev1.PodSpec{}.SwaggerDoc()["nodeSelector"], func(d *appsv1.DaemonSet) string {
				return labels.FormatLabels(d.Spec.Template.Spec.NodeSelector)
			}),
		},
		Selector: selector, Validate: validateDaemonSet, ValidateStatus: validateDaemonSetStatus,
		KeepSpec: func(d, old *appsv1.DaemonSet) {
			d.Spec = old.Spec
			setTemplateGeneration(d, templateGeneration(old))
		},
		FreeName: true,
	}.In(&catalog.Kind{
		New:     func() catalog.Object { return &appsv1.DaemonSet{} },
		NewList: func() runtime.Object { return &appsv1.DaemonSetList{} },
		Default: catalog.Default(defaultDaemonSet), Prepare: catalog.Prepare(countTemplates),
	})
	k.Columns = append(k.Columns, selectorColumn(spec["selector"], selector))
	return k
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	podspec.Default(&d.Spec.Template.Spec)
	u := &d.Spec.UpdateStrategy
	if u.Type == "" {
		u.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	if u.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		var rolling appsv1.RollingUpdateDaemonSet
		if u.RollingUpdate != nil {
			rolling = *u.RollingUpdate
		}
		orDefault(&rolling.MaxUnavailable, intstr.FromInt32(1))
		orDefault(&rolling.MaxSurge, intstr.FromInt32(0))
		if u.RollingUpdate == nil || *u.RollingUpdate != rolling {
			u.RollingUpdate = &rolling
		}
	}
	if r := u.RollingUpdate; r != nil && (r.MaxUnavailable == nil || r.MaxSurge == nil) {
		shares := *r // upstream has no absent shares in its own form of the type
		orDefault(&shares.MaxUnavailable, intstr.FromInt32(0))
		orDefault(&shares.MaxSurge, intstr.FromInt32(0))
		u.RollingUpdate = &shares
	}
	orDefault(&d.Spec.RevisionHistoryLimit, defaultHistory)
}

// countTemplates counts the changes of the template in an annotation, where it went
// when it ceased to be a field.
func countTemplates(d, old *appsv1.DaemonSet) {
	if old == nil {
		setTemplateGeneration(d, max(1, templateGeneration(d)))
		return
	}
	generation := templateGeneration(old)
	if !equality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
		generation++
	}
	setTemplateGeneration(d, generation)
}

// templateGeneration returns the number in the annotation, or 1 if there is none.
func templateGeneration(d *appsv1.DaemonSet) int64 {
	n, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return 1
	}
	return n
}

func setTemplateGeneration(d *appsv1.DaemonSet, generation int64) {
	d.Annotations = maps.Clone(d.Annotations)
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(generation, 10)
}

func validateDaemonSet(d, old *appsv1.DaemonSet) field.ErrorList {
	at, s := field.NewPath("spec"), &d.Spec
	var was *corev1.PodTemplateSpec
	if old != nil {
		was = &old.Spec.Template
	}
	c := workload.Counts{At: at}
	c.Number("minReadySeconds", int64(s.MinReadySeconds))
	c.Maybe("revisionHistoryLimit", s.RevisionHistoryLimit)
	errs := append(c.Errs, validateSelector(s.Selector, &s.Template, "daemonset", at)...)
	errs = append(errs, workload.ValidateTemplate(&s.Template, was, "DaemonSet", at.Child("template"))...)
	errs = append(errs, validateAnnotations(d, progressDeadline)...)
	errs = append(errs, validateDaemonStrategy(&s.UpdateStrategy, at.Child("updateStrategy"))...)
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(s.Selector, old.Spec.Selector, at.Child("selector"))...)
	}
	return errs
}

func validateDaemonStrategy(u *appsv1.DaemonSetUpdateStrategy, at *field.Path) (errs field.ErrorList) {
	rolling, r := at.Child("rollingUpdate"), u.RollingUpdate
	switch {
	case u.Type == appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case u.Type != appsv1.RollingUpdateDaemonSetStrategyType:
		return field.ErrorList{field.NotSupported(at, *u, []appsv1.DaemonSetUpdateStrategyType{
			appsv1.OnDeleteDaemonSetStrategyType, appsv1.RollingUpdateDaemonSetStrategyType,
		})}
	case r == nil:
		return field.ErrorList{field.Required(rolling, "")}
	}
	unavailable, surge := rolling.Child("maxUnavailable"), rolling.Child("maxSurge")
	errs = append(errs, validateShare(r.MaxUnavailable, unavailable)...)
	errs = append(errs, validateShare(r.MaxSurge, surge)...)
	errs = append(errs, validateAtMostAll(r.MaxUnavailable, unavailable)...)
	errs = append(errs, validateAtMostAll(r.MaxSurge, surge)...)
	if len(errs) > 0 {
		return errs
	}
	switch {
	case !isNothing(r.MaxUnavailable) && !isNothing(r.MaxSurge):
		errs = append(errs, field.Invalid(surge, *r.MaxSurge, "may not be set when maxUnavailable is non-zero"))
	case isNothing(r.MaxUnavailable) && isNothing(r.MaxSurge):
		errs = append(errs, field.Required(unavailable, "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func validateDaemonSetStatus(d, old *appsv1.DaemonSet) field.ErrorList {
	s := &d.Status
	c := workload.Counts{At: field.NewPath("status")}
	c.Number("currentNumberScheduled", int64(s.CurrentNumberScheduled))
	c.Number("numberMisscheduled", int64(s.NumberMisscheduled))
	c.Number("desiredNumberScheduled", int64(s.DesiredNumberScheduled))
	c.Number("numberReady", int64(s.NumberReady))
	c.Number("observedGeneration", s.ObservedGeneration)
	c.Number("updatedNumberScheduled", int64(s.UpdatedNumberScheduled))
	c.Number("numberAvailable", int64(s.NumberAvailable))
	c.Number("numberUnavailable", int64(s.NumberUnavailable))
	c.Maybe("collisionCount", s.CollisionCount)
	if old != nil {
		c.NotLess("collisionCount", s.CollisionCount, old.Status.CollisionCount)
	}
	return c.Errs
}
