package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
)

// Kinds returns the kinds of apps.
func Kinds() []*catalog.Kind {
	return []*catalog.Kind{
		controllerRevisions(),
		daemonSets(),
		deployments(),
		replicaSets(),
		statefulSets(),
	}
}

func gvk(kind string) schema.GroupVersionKind { return appsv1.SchemeGroupVersion.WithKind(kind) }

// readWrite are the verbs of a status and of a scale.
var readWrite = []string{"get", "patch", "update"}

const defaultHistory = 10 // revisions that are kept for a rollback

// templateColumns are the wide columns that tell what the pods of a template are.
func templateColumns[T catalog.Object](template func(T) *corev1.PodTemplateSpec) []catalog.Column {
	return []catalog.Column{
		catalog.Text("Containers", "Names of each container in the template.", func(obj T) string {
			names, _ := podspec.Containers(template(obj))
			return names
		}).Wide(),
		catalog.Text("Images", "Images referenced by each container in the template.", func(obj T) string {
			_, images := podspec.Containers(template(obj))
			return images
		}).Wide(),
	}
}

func selectorColumn[T catalog.Object](description string, selector func(T) *metav1.LabelSelector) catalog.Column {
	return catalog.Text("Selector", description, func(obj T) string { return metav1.FormatLabelSelector(selector(obj)) }).Wide()
}

// orDefault gives *p the value if it is nil.
func orDefault[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

func numberOr(p *int32, otherwise int32) int32 {
	if p == nil {
		return otherwise
	}
	return *p
}
