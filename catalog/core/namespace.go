package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

func namespaces() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: gvk("Namespace"),
		Resource:         "namespaces",
		Singular:         "namespace",
		ShortNames:       []string{"ns"},
		// Not deletecollection: deleting all namespaces is never meant.
		Verbs:        []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		New:          func() catalog.Object { return &corev1.Namespace{} },
		NewList:      func() runtime.Object { return &corev1.NamespaceList{} },
		Default:      catalog.Default(defaultNamespace),
		Prepare:      catalog.Prepare(prepareNamespace),
		Validate:     catalog.Validate(validateNamespace),
		ValidateName: apivalidation.NameIsDNSLabel,
		Columns: []catalog.Column{
			catalog.Text("Status", "The status of the namespace", func(ns *corev1.Namespace) string { return string(ns.Status.Phase) }),
			catalog.Age(),
		},
		Fields: map[string]func(catalog.Object) string{
			"status.phase": catalog.Value(func(ns *corev1.Namespace) string { return string(ns.Status.Phase) }),
		},
		Lifecycle: catalog.Lifecycle{
			AnswersDeleted: true,
			Terminating:    catalog.Default(func(ns *corev1.Namespace) { ns.Status.Phase = corev1.NamespaceTerminating }),
			Held:           func(obj catalog.Object) bool { return len(obj.(*corev1.Namespace).Spec.Finalizers) > 0 },
		},
		Subresources: []catalog.Subresource{
			{
				Name:  "status",
				Verbs: readWrite,
				Shape: catalog.Part{
					Prepare: catalog.Prepare(func(ns, old *corev1.Namespace) {
						ns.Spec = old.Spec
					}),
					Validate: catalog.Validate(validateNamespaceStatus),
				},
			},
			{
				Name:  "finalize",
				Verbs: update,
				Shape: catalog.Part{
					Prepare: catalog.Prepare(func(ns, old *corev1.Namespace) {
						ns.Status = old.Status
					}),
					Validate: catalog.Validate(validateFinalize),
				},
			},
		},
	}
}

func defaultNamespace(ns *corev1.Namespace) {
	labelNamespace(ns)
	if ns.Status.Phase == "" {
		ns.Status.Phase = corev1.NamespaceActive
	}
}

// labelNamespace gives a namespace its name as a label, so that selectors can
// name it.
func labelNamespace(ns *corev1.Namespace) {
	if ns.Name == "" || ns.Labels[corev1.LabelMetadataName] == ns.Name {
		return
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

func prepareNamespace(ns, old *corev1.Namespace) {
	labelNamespace(ns)
	if old != nil {
		ns.Spec.Finalizers = old.Spec.Finalizers
		ns.Status = old.Status
		return
	}
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

func validateNamespace(ns, _ *corev1.Namespace) field.ErrorList {
	return validateFinalize(ns, nil)
}

func validateFinalize(ns, _ *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("spec", "finalizers")
	for i, f := range ns.Spec.Finalizers {
		errs = append(errs, apivalidation.ValidateFinalizerName(string(f), at.Index(i))...)
		if f != corev1.FinalizerKubernetes && !strings.Contains(string(f), "/") {
			errs = append(errs, field.Invalid(at.Index(i), string(f), "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

func validateNamespaceStatus(ns, _ *corev1.Namespace) field.ErrorList {
	at := field.NewPath("status", "phase")
	want, word := corev1.NamespaceActive, "empty"
	if ns.DeletionTimestamp != nil {
		want, word = corev1.NamespaceTerminating, "not empty"
	}
	if ns.Status.Phase == want {
		return nil
	}
	return field.ErrorList{field.Invalid(at, ns.Status.Phase, fmt.Sprintf("may only be '%s' if `deletionTimestamp` is %s", want, word))}
}
