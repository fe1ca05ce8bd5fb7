package apps

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
	"github.com/sampan-io/sampan/catalog/workload"
)

func replicaSets() *catalog.Kind {
	spec, status := appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc()
	selector := func(rs *appsv1.ReplicaSet) *metav1.LabelSelector { return rs.Spec.Selector }
	k := workload.Common[*appsv1.ReplicaSet, appsv1.ReplicaSetStatus]{
		Kind: gvk("ReplicaSet"), Resource: "replicasets", ShortName: "rs",
		Template: func(rs *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &rs.Spec.Template },
		Status:   func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSetStatus { return &rs.Status },
		Columns: []catalog.Column{
			catalog.Number("Desired", spec["replicas"], func(rs *appsv1.ReplicaSet) int64 { return int64(numberOr(rs.Spec.Replicas, 1)) }),
			catalog.Number("Current", status["replicas"], func(rs *appsv1.ReplicaSet) int64 { return int64(rs.Status.Replicas) }),
			catalog.Number("Ready", status["readyReplicas"], func(rs *appsv1.ReplicaSet) int64 { return int64(rs.Status.ReadyReplicas) }),
		},
		Selector: selector, Validate: validateReplicaSet, ValidateStatus: validateReplicaSetStatus,
		KeepSpec: func(rs, old *appsv1.ReplicaSet) { rs.Spec = old.Spec },
		Size:     func(rs *appsv1.ReplicaSet) **int32 { return &rs.Spec.Replicas },
		SizeNow:  func(s *appsv1.ReplicaSetStatus) int32 { return s.Replicas },
	}.In(&catalog.Kind{
		New:     func() catalog.Object { return &appsv1.ReplicaSet{} },
		NewList: func() runtime.Object { return &appsv1.ReplicaSetList{} },
		Default: catalog.Default(func(rs *appsv1.ReplicaSet) {
			podspec.Default(&rs.Spec.Template.Spec)
			orDefault(&rs.Spec.Replicas, 1)
		}),
		Fields: map[string]func(catalog.Object) string{
			"status.replicas": catalog.Value(func(rs *appsv1.ReplicaSet) string { return fmt.Sprint(rs.Status.Replicas) }),
		},
	})
	k.Columns = append(k.Columns, selectorColumn(spec["selector"], selector))
	return k
}

func validateReplicaSet(rs, old *appsv1.ReplicaSet) field.ErrorList {
	at, s := field.NewPath("spec"), &rs.Spec
	var was *corev1.PodTemplateSpec
	if old != nil {
		was = &old.Spec.Template
	}
	c := workload.Counts{At: at}
	c.Maybe("replicas", s.Replicas)
	c.Number("minReadySeconds", int64(s.MinReadySeconds))
	errs := append(c.Errs, validateSelector(s.Selector, &s.Template, "deployment", at)...)
	errs = append(errs, workload.ValidateTemplate(&s.Template, was, "ReplicaSet", at.Child("template"))...)
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(s.Selector, old.Spec.Selector, at.Child("selector"))...)
	}
	return errs
}

func validateReplicaSetStatus(rs, _ *appsv1.ReplicaSet) field.ErrorList {
	s := &rs.Status
	c := workload.Counts{At: field.NewPath("status")}
	c.Number("replicas", int64(s.Replicas))
	c.Number("fullyLabeledReplicas", int64(s.FullyLabeledReplicas))
	c.Number("readyReplicas", int64(s.ReadyReplicas))
	c.Number("availableReplicas", int64(s.AvailableReplicas))
	c.Maybe("terminatingReplicas", s.TerminatingReplicas)
	c.Number("observedGeneration", s.ObservedGeneration)
	c.NotAbove("fullyLabeledReplicas", s.FullyLabeledReplicas, s.Replicas, "status.replicas")
	c.NotAbove("readyReplicas", s.ReadyReplicas, s.Replicas, "status.replicas")
	c.NotAbove("availableReplicas", s.AvailableReplicas, s.Replicas, "status.replicas")
	c.NotAbove("availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "readyReplicas")
	return c.Errs
}
