package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
)

func podTemplates() *catalog.Kind {
	at := field.NewPath("template")
	return &catalog.Kind{
		GroupVersionKind: gvk("PodTemplate"),
		Resource:         "podtemplates",
		Lifecycle:        catalog.Lifecycle{AnswersDeleted: true},
		Singular:         "podtemplate",
		Namespaced:       true,
		New:              func() catalog.Object { return &corev1.PodTemplate{} },
		NewList:          func() runtime.Object { return &corev1.PodTemplateList{} },
		Default:          catalog.Default(func(t *corev1.PodTemplate) { podspec.Default(&t.Template.Spec) }),
		Prepare:          catalog.Prepare(func(t, _ *corev1.PodTemplate) { podspec.DropClosed(&t.Template.Spec) }),
		Validate: catalog.Validate(func(t, old *corev1.PodTemplate) field.ErrorList {
			if old != nil {
				return podspec.ValidateTemplate(&t.Template, &old.Template, at)
			}
			return podspec.ValidateTemplate(&t.Template, nil, at)
		}),
		Warn: catalog.Warn(func(t *corev1.PodTemplate) []string {
			return podspec.Warnings("PodTemplate", t.Name, &t.Template.ObjectMeta, &t.Template.Spec, at)
		}),
		Generation: true,
		Columns: []catalog.Column{
			catalog.Text("Containers", "Names of each container in the template.", func(t *corev1.PodTemplate) string {
				names, _ := podspec.Containers(&t.Template)
				return names
			}),
			catalog.Text("Images", "Images referenced by each container in the template.", func(t *corev1.PodTemplate) string {
				_, images := podspec.Containers(&t.Template)
				return images
			}),
			catalog.Text("Pod Labels", "The labels for the pod template.", func(t *corev1.PodTemplate) string {
				return labels.FormatLabels(t.Template.Labels)
			}),
		},
	}
}
