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
)

func replicaSets() *catalog.Kind {
	spec, status := appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc()
	template := func(rs *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &rs.Spec.Template }
	columns := []catalog.Column{
		catalog.Number("Desired", spec["replicas"], func(rs *appsv1.ReplicaSet) int64 { return int64(numberOr(rs.Spec.Replicas, 1)) }),
		catalog.Number("Current", status["replicas"], func(rs *appsv1.ReplicaSet) int64 { return int64(rs.Status.Replicas) }),
		catalog.Number("Ready", status["readyReplicas"], func(rs *appsv1.ReplicaSet) int64 { return int64(rs.Status.ReadyReplicas) }),
		catalog.Age(),
	}
	columns = append(columns, templateColumns(template)...)
	columns = append(columns, selectorColumn(spec["selector"], func(rs *appsv1.ReplicaSet) *metav1.LabelSelector { return rs.Spec.Selector }))
	return &catalog.Kind{
		GroupVersionKind: gvk("ReplicaSet"),
		Resource:         "replicasets",
		Singular:         "replicaset",
		ShortNames:       []string{"rs"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() catalog.Object { return &appsv1.ReplicaSet{} },
		NewList:          func() runtime.Object { return &appsv1.ReplicaSetList{} },
		Default: catalog.Default(func(rs *appsv1.ReplicaSet) {
			podspec.Default(&rs.Spec.Template.Spec)
			orDefault(&rs.Spec.Replicas, 1)
		}),
		Prepare: catalog.Prepare(func(rs, old *appsv1.ReplicaSet) {
			podspec.DropClosed(&rs.Spec.Template.Spec)
			rs.Status = appsv1.ReplicaSetStatus{}
			if old != nil {
				rs.Status = old.Status
			}
		}),
		Validate: catalog.Validate(validateReplicaSet),
		Warn: catalog.Warn(func(rs *appsv1.ReplicaSet) []string {
			return podspec.Unheeded(&rs.Spec.Template.Spec, field.NewPath("spec", "template", "spec"))
		}),
		Generation: true,
		Columns:    columns,
		Fields: map[string]func(catalog.Object) string{
			"status.replicas": catalog.Value(func(rs *appsv1.ReplicaSet) string { return fmt.Sprint(rs.Status.Replicas) }),
		},
		Subresources: []catalog.Subresource{
			{
				Name:  "status",
				Verbs: readWrite,
				Prepare: catalog.Prepare(func(rs, old *appsv1.ReplicaSet) {
					rs.Spec = old.Spec
				}),
				Validate: catalog.Validate(validateReplicaSetStatus),
			},
			scaled[*appsv1.ReplicaSet]{
				resource: "replicasets",
				wanted:   func(rs *appsv1.ReplicaSet) **int32 { return &rs.Spec.Replicas },
				present:  func(rs *appsv1.ReplicaSet) int32 { return rs.Status.Replicas },
				selector: func(rs *appsv1.ReplicaSet) *metav1.LabelSelector { return rs.Spec.Selector },
				validate: validateReplicaSet,
			}.subresource(),
		},
	}
}

func validateReplicaSet(rs, old *appsv1.ReplicaSet) field.ErrorList {
	at, s := field.NewPath("spec"), &rs.Spec
	c := counts{at: at}
	c.maybe("replicas", s.Replicas)
	c.number("minReadySeconds", int64(s.MinReadySeconds))
	errs := append(c.errs, validateSelector(s.Selector, &s.Template, "deployment", at)...)
	errs = append(errs, validateTemplate(&s.Template, "ReplicaSet", at.Child("template"))...)
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(s.Selector, old.Spec.Selector, at.Child("selector"))...)
	}
	return errs
}

func validateReplicaSetStatus(rs, _ *appsv1.ReplicaSet) field.ErrorList {
	s := &rs.Status
	c := counts{at: field.NewPath("status")}
	c.number("replicas", int64(s.Replicas))
	c.number("fullyLabeledReplicas", int64(s.FullyLabeledReplicas))
	c.number("readyReplicas", int64(s.ReadyReplicas))
	c.number("availableReplicas", int64(s.AvailableReplicas))
	c.maybe("terminatingReplicas", s.TerminatingReplicas)
	c.number("observedGeneration", s.ObservedGeneration)
	c.notAbove("fullyLabeledReplicas", s.FullyLabeledReplicas, s.Replicas, "status.replicas")
	c.notAbove("readyReplicas", s.ReadyReplicas, s.Replicas, "status.replicas")
	c.notAbove("availableReplicas", s.AvailableReplicas, s.Replicas, "status.replicas")
	c.notAbove("availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "readyReplicas")
	return c.errs
}
