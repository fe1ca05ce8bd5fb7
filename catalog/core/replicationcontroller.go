package core

import (
	"fmt"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
)

func replicationControllers() *catalog.Kind {
	spec, status := corev1.ReplicationControllerSpec{}.SwaggerDoc(), corev1.ReplicationControllerStatus{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: gvk("ReplicationController"),
		Resource:         "replicationcontrollers",
		Singular:         "replicationcontroller",
		ShortNames:       []string{"rc"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() catalog.Object { return &corev1.ReplicationController{} },
		NewList:          func() runtime.Object { return &corev1.ReplicationControllerList{} },
		Default:          catalog.Default(defaultRC),
		Prepare:          catalog.Prepare(prepareRC),
		Validate:         catalog.Validate(validateRC),
		Warn: catalog.Warn(func(rc *corev1.ReplicationController) []string {
			return podspec.Warnings(&rc.Spec.Template.Spec, field.NewPath("spec", "template", "spec"))
		}),
		Generation: true,
		// Deleting a controller in v1 has always left its pods alone unless the
		// request says otherwise.
		DefaultPropagation: metav1.DeletePropagationOrphan,
		Columns: []catalog.Column{
			catalog.Number("Desired", spec["replicas"], func(rc *corev1.ReplicationController) int64 { return int64(replicas(rc)) }),
			catalog.Number("Current", status["replicas"], func(rc *corev1.ReplicationController) int64 { return int64(rc.Status.Replicas) }),
			catalog.Number("Ready", status["readyReplicas"], func(rc *corev1.ReplicationController) int64 { return int64(rc.Status.ReadyReplicas) }),
			catalog.Age(),
			catalog.Text("Containers", "Names of each container in the template.", func(rc *corev1.ReplicationController) string {
				names, _ := podspec.Containers(rc.Spec.Template)
				return names
			}).Wide(),
			catalog.Text("Images", "Images referenced by each container in the template.", func(rc *corev1.ReplicationController) string {
				_, images := podspec.Containers(rc.Spec.Template)
				return images
			}).Wide(),
			catalog.Text("Selector", spec["selector"], func(rc *corev1.ReplicationController) string {
				return catalog.OrNone(labels.FormatLabels(rc.Spec.Selector))
			}).Wide(),
		},
		Fields: map[string]func(catalog.Object) string{
			"status.replicas": catalog.Value(func(rc *corev1.ReplicationController) string { return fmt.Sprint(rc.Status.Replicas) }),
		},
		Subresources: []catalog.Subresource{
			{
				Name:  "status",
				Verbs: readWrite,
				Shape: catalog.Part{
					Prepare: catalog.Prepare(func(rc, old *corev1.ReplicationController) {
						rc.Spec = old.Spec
					}),
					Validate: catalog.Validate(validateRCStatus),
				},
			},
			{
				Name:  "scale",
				Verbs: readWrite,
				Shape: catalog.View{
					Body:     &catalog.Body{Kind: autoscalingv1.SchemeGroupVersion.WithKind("Scale"), New: func() runtime.Object { return &autoscalingv1.Scale{} }},
					Get:      func(parent catalog.Object) runtime.Object { return scaleOf(parent.(*corev1.ReplicationController)) },
					Apply:    applyScale,
					Validate: catalog.Validate(validateRC),
				},
			},
		},
	}
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

func prepareRC(rc, old *corev1.ReplicationController) {
	rc.Status = corev1.ReplicationControllerStatus{}
	if old != nil {
		rc.Status = old.Status
	}
	if rc.Spec.Template != nil {
		podspec.DropClosed(&rc.Spec.Template.Spec)
	}
}

func validateRC(rc, _ *corev1.ReplicationController) field.ErrorList {
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
	errs = append(errs, podspec.ValidateTemplate(t, at)...)
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(at.Child("spec", "restartPolicy"), t.Spec.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(at.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in ReplicationController is not Supported"))
	}
	return errs
}

func validateRCStatus(rc, _ *corev1.ReplicationController) field.ErrorList {
	var errs field.ErrorList
	at, s := field.NewPath("status"), rc.Status
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(s.Replicas), at.Child("replicas"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(s.FullyLabeledReplicas), at.Child("fullyLabeledReplicas"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(s.ReadyReplicas), at.Child("readyReplicas"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(s.AvailableReplicas), at.Child("availableReplicas"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(s.ObservedGeneration, at.Child("observedGeneration"))...)
	more := func(name string, n, than int32, thanName string) {
		if n > than {
			errs = append(errs, field.Invalid(at.Child(name), n, "cannot be greater than "+thanName))
		}
	}
	more("fullyLabeledReplicas", s.FullyLabeledReplicas, s.Replicas, "status.replicas")
	more("readyReplicas", s.ReadyReplicas, s.Replicas, "status.replicas")
	more("availableReplicas", s.AvailableReplicas, s.Replicas, "status.replicas")
	more("availableReplicas", s.AvailableReplicas, s.ReadyReplicas, "readyReplicas")
	return errs
}

// scaleOf returns the part of a controller that autoscalers and "kubectl scale"
// see.
func scaleOf(rc *corev1.ReplicationController) *autoscalingv1.Scale {
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name:              rc.Name,
			Namespace:         rc.Namespace,
			UID:               rc.UID,
			ResourceVersion:   rc.ResourceVersion,
			CreationTimestamp: rc.CreationTimestamp,
		},
		Spec: autoscalingv1.ScaleSpec{Replicas: replicas(rc)},
		Status: autoscalingv1.ScaleStatus{
			Replicas: rc.Status.Replicas,
			Selector: labels.SelectorFromSet(rc.Spec.Selector).String(),
		},
	}
}

// applyScale changes how many replicas a controller is to have, if the scale is
// valid and of the controller as it is now.
func applyScale(parent catalog.Object, body runtime.Object) error {
	rc := parent.(*corev1.ReplicationController)
	scale, ok := body.(*autoscalingv1.Scale)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("wrong object passed to Scale update: %T", body))
	}
	if scale.ResourceVersion != "" && rc.ResourceVersion != "" && scale.ResourceVersion != rc.ResourceVersion {
		return apierrors.NewConflict(corev1.Resource("replicationcontrollers"), rc.Name, errStale)
	}
	var errs field.ErrorList
	for _, f := range []struct{ name, got, want string }{
		{"name", scale.Name, rc.Name},
		{"namespace", scale.Namespace, rc.Namespace},
		{"uid", string(scale.UID), string(rc.UID)},
	} {
		if f.got != "" && f.got != f.want {
			errs = append(errs, field.Invalid(field.NewPath("metadata", f.name), f.got, apivalidation.FieldImmutableErrorMsg))
		}
	}
	errs = append(errs, apivalidation.ValidateNonnegativeField(int64(scale.Spec.Replicas), field.NewPath("spec", "replicas"))...)
	if len(errs) > 0 {
		return apierrors.NewInvalid(autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(), rc.Name, errs)
	}
	rc.Spec.Replicas = new(scale.Spec.Replicas)
	return nil
}
