package apps

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
)

// A workload is what the kinds have in common that keep pods of a template: the parts
// of a [catalog.Kind] that depend on nothing but where the template, the status and the
// selector are.
type workload[T catalog.Object, S any] struct {
	kind      string // "Deployment"
	resource  string // "deployments"
	shortName string
	template  func(T) *corev1.PodTemplateSpec
	status    func(T) *S

	columns        []catalog.Column // before those of the template
	selector       func(T) *metav1.LabelSelector
	validate       func(obj, old T) field.ErrorList
	validateStatus func(obj, old T) field.ErrorList
	keepSpec       func(obj, old T)      // an update of the status carries it over
	keeps          []string              // what keepSpec carries over beside the spec
	size           func(T) **int32       // nil: there is no scale
	sizeNow        func(status *S) int32 // with size
}

// in returns k, which has what is special, with what workloads have in common.
func (w workload[T, S]) in(k *catalog.Kind) *catalog.Kind {
	prepare := k.Prepare
	k.GroupVersionKind, k.Resource, k.Singular, k.ShortNames = gvk(w.kind), w.resource, strings.ToLower(w.kind), []string{w.shortName}
	k.Categories, k.Namespaced, k.Generation = []string{"all"}, true, true
	k.Prepare = func(obj, old catalog.Object) {
		fresh := obj.(T)
		podspec.DropClosed(&w.template(fresh).Spec)
		var none S
		*w.status(fresh) = none
		if stored, ok := old.(T); ok {
			*w.status(fresh) = *w.status(stored)
		}
		if prepare != nil {
			prepare(obj, old)
		}
	}
	k.Validate = catalog.Validate(w.validate)
	k.Warn = catalog.Warn(func(obj T) []string {
		return podspec.Warnings(&w.template(obj).Spec, field.NewPath("spec", "template", "spec"))
	})
	k.Columns = append(w.columns, catalog.Age())
	k.Columns = append(k.Columns, templateColumns(w.template)...)
	k.Subresources = []catalog.Subresource{{
		Name: "status", Verbs: readWrite,
		Shape: catalog.Part{Prepare: catalog.Prepare(w.keepSpec), Keeps: w.keeps, Validate: catalog.Validate(w.validateStatus)},
	}}
	if w.size != nil {
		k.Subresources = append(k.Subresources, scaled[T]{
			resource: w.resource, wanted: w.size, selector: w.selector, validate: w.validate,
			present: func(obj T) int32 { return w.sizeNow(w.status(obj)) },
		}.subresource())
	}
	return k
}

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

// templateColumns are the wide columns that show the containers, images and selector.
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
