package apps

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/catalog"
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

const defaultHistory = 10 // revisions that are kept for a rollback

// readyColumn shows how many of the wanted pods are ready.
func readyColumn[T catalog.Object](f func(T) (ready, of int32)) catalog.Column {
	return catalog.Text("Ready", "Number of the pod with ready state", func(obj T) string {
		ready, of := f(obj)
		return fmt.Sprintf("%d/%d", ready, of)
	})
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
