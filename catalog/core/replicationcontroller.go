package core

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
	"github.com/sampan-io/sampan/catalog/workload"
)

func replicationControllers() *catalog.Kind {
	spec, status := corev1.ReplicationControllerSpec{}.SwaggerDoc(), corev1.ReplicationControllerStatus{}.SwaggerDoc()
	type rc = corev1.ReplicationController
	k := workload.Common[*rc, corev1.ReplicationControllerStatus]{
		Kind: gvk("ReplicationController"), Resource: "replicationcontrollers", ShortName: "rc",
		Template: func(c *rc) *corev1.PodTemplateSpec { return c.Spec.Template },
		Status:   func(c *rc) *corev1.ReplicationControllerStatus { return &c.Status },
		Columns: []catalog.Column{
			catalog.Number("Desired", spec["replicas"], func(c *rc) int64 { return int64(replicas(c)) }),
			catalog.Number("Current", status["replicas"], func(c *rc) int64 { return int64(c.Status.Replicas) }),
			catalog.Number("Ready", status["readyReplicas"], func(c *rc) int64 { return int64(c.Status.ReadyReplicas) }),
		},
		Selector: func(c *rc) *metav1.LabelSelector { return &metav1.LabelSelector{MatchLabels: c.Spec.Selector} },
		Validate: validateRC, ValidateStatus: validateRCStatus,
		KeepSpec: func(c, old *rc) { c.Spec = old.Spec },
		Size:     func(c *rc) **int32 { return &c.Spec.Replicas },
		SizeNow:  func(s *corev1.ReplicationControllerStatus) int32 { return s.Replicas },
	}.In(&catalog.Kind{
		New:     func() catalog.Object { return &rc{} },
		NewList: func() runtime.Object { return &corev1.ReplicationControllerList{} },
		Default: catalog.Default(defaultRC),
		// Deleting a controller in v1 has always left its pods alone unless the
		// request says otherwise.
		Lifecycle: catalog.Lifecycle{DefaultPropagation: metav1.DeletePropagationOrphan},
		Fields: map[string]func(catalog.Object) string{
			"status.replicas": catalog.Value(func(c *rc) string { return fmt.Sprint(c.Status.Replicas) }),
		},
	})
	k.Columns = append(k.Columns, catalog.Text("Selector", spec["selector"], func(c *rc) string {
		return catalog.OrNone(labels.FormatLabels(c.Spec.Selector))
	}).Wide())
	return k
}

func replicas(rc *corev1.ReplicationController) int32 {
	if rc.Spec.Replicas == nil {
		return 1
	}
	return *rc.Spec.Replicas
}

func defaultRC(rc *corev1.ReplicationController) {
	if t := rc.Spec.Template; t != nil {
		podspec.Default(&t.Spec)
		if len(rc.Spec.Selector) == 0 {
			rc.Spec.Selector = maps.Clone(t.Labels)
		}
		if len(rc.Labels) == 0 {
			rc.Labels = maps.Clone(t.Labels)
		}
	}
	if rc.Spec.Replicas == nil {
		rc.Spec.Replicas = new(int32(1))
	}
}

func validateRC(rc, old *corev1.ReplicationController) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(rc.Spec.MinReadySeconds), spec.Child("minReadySeconds"))...)
	if rc.Spec.Replicas == nil {
		errs = append(errs, field.Required(spec.Child("replicas"), ""))
	} else {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*rc.Spec.Replicas), spec.Child("replicas"))...)
	}
	if len(rc.Spec.Selector) == 0 {
		errs = append(errs, field.Required(spec.Child("selector"), ""))
	}
	t, at := rc.Spec.Template, spec.Child("template")
	if t == nil {
		return append(errs, field.Required(at, ""))
	}
	if len(rc.Spec.Selector) > 0 && !labels.SelectorFromSet(rc.Spec.Selector).Matches(labels.Set(t.Labels)) {
		errs = append(errs, field.Invalid(at.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`"))
	}
	var was *corev1.PodTemplateSpec
	if old != nil {
		was = old.Spec.Template
	}
	return append(errs, workload.ValidateTemplate(t, was, "ReplicationController", at)...)
}

func validateRCStatus(rc, _ *corev1.ReplicationController) field.ErrorList {
	s := &rc.Status
	c := workload.Counts{At: field.NewPath("status")}
	c.Number("replicas", int64(s.Replicas))
	c.Number("fullyLabeledReplicas", int64(s.FullyLabeledReplicas))
	c.Number("readyReplicas", int64(s.ReadyReplicas))
	c.Number("availableReplicas", int64(s.AvailableReplicas))
	c.Number("observedGeneration", s.ObservedGeneration)
	c.NotAbove("fullyLabeledReplicas", s.FullyLabeledReplicas, s.Replicas, "status.replicas")
	c.NotAbove("readyReplicas", s.ReadyReplicas, s.Replicas, "status.replicas")
	c.NotAbove("availableReplicas", s.AvailableReplicas, s.Replicas, "status.replicas")
	c.NotAbove("availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "readyReplicas")
	return c.Errs
}
