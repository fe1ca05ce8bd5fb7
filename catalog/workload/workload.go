// Package workload holds the common parts of the kinds with a template of pods: columns, status,
// scale and rules.
package workload

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
)

// Common is what workload kinds have in common: the parts of a [catalog.Kind] that depend only on
// where the template, the status and the selector are.
type Common[T catalog.Object, S any] struct {
	Kind      schema.GroupVersionKind
	Resource  string // "deployments"
	ShortName string
	Template  func(T) *corev1.PodTemplateSpec
	Status    func(T) *S

	Columns        []catalog.Column // before Age and the columns of the template
	Selector       func(T) *metav1.LabelSelector
	Validate       func(obj, old T) field.ErrorList
	ValidateStatus func(obj, old T) field.ErrorList
	KeepSpec       func(obj, old T)      // is [catalog.Part.Prepare] of the status
	Keeps          []string              // is [catalog.Part.Keeps] of the status
	FreeName       bool                  // causes no warning if it is no DNS label
	Size           func(T) **int32       // returns spec.replicas; nil means that there is no scale
	SizeNow        func(status *S) int32 // returns status.replicas
}

// In completes k, which has the special parts of the kind, with the common ones.
func (w Common[T, S]) In(k *catalog.Kind) *catalog.Kind {
	prepare := k.Prepare
	k.GroupVersionKind, k.Resource, k.Singular, k.ShortNames = w.Kind, w.Resource, strings.ToLower(w.Kind.Kind), []string{w.ShortName}
	k.Categories, k.Namespaced, k.Generation = []string{"all"}, true, true
	k.Prepare = func(obj, old catalog.Object) {
		fresh := obj.(T)
		if t := w.Template(fresh); t != nil {
			podspec.DropClosed(&t.Spec)
		}
		var none S
		*w.Status(fresh) = none
		if stored, ok := old.(T); ok {
			*w.Status(fresh) = *w.Status(stored)
		}
		if prepare != nil {
			prepare(obj, old)
		}
	}
	k.Validate = catalog.Validate(w.Validate)
	more := k.Warn
	k.Warn = func(obj, old catalog.Object) []string {
		var all []string
		if old == nil && !w.FreeName {
			all = podspec.NameWarnings(obj.GetName(), podspec.InHostnames)
		}
		t := w.Template(obj.(T))
		if t != nil {
			all = append(all, podspec.Warnings(w.Kind.Kind, obj.GetName(), &t.ObjectMeta, &t.Spec, field.NewPath("spec", "template"))...)
		}
		if more != nil {
			all = append(all, more(obj, old)...)
		}
		return all
	}
	k.Columns = append(w.Columns, catalog.Age())
	k.Columns = append(k.Columns, templateColumns(w.Template)...)
	k.Subresources = []catalog.Subresource{{
		Name: "status", Verbs: []string{"get", "patch", "update"},
		Shape: catalog.Part{Prepare: catalog.Prepare(w.KeepSpec), Keeps: w.Keeps, Validate: catalog.Validate(w.ValidateStatus)},
	}}
	if w.Size != nil {
		k.Subresources = append(k.Subresources, scaled[T]{
			resource: schema.GroupResource{Group: w.Kind.Group, Resource: w.Resource}, wanted: w.Size, selector: w.Selector, validate: w.Validate,
			present: func(obj T) int32 { return w.SizeNow(w.Status(obj)) },
		}.subresource())
	}
	return k
}

// templateColumns are the wide columns that show the containers and images.
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

// Counts collects faults: it refuses numbers below zero.
type Counts struct {
	At   *field.Path
	Errs field.ErrorList
}

// Number refuses a negative number.
func (c *Counts) Number(name string, n int64) {
	c.Errs = append(c.Errs, apivalidation.ValidateNonnegativeField(n, c.At.Child(name))...)
}

// Maybe is Number for a field that may be left out.
func (c *Counts) Maybe(name string, n *int32) {
	if n != nil {
		c.Number(name, int64(*n))
	}
}

// NotAbove refuses a number that is greater than another.
func (c *Counts) NotAbove(name string, n, than int32, what string) {
	if n > than {
		c.Errs = append(c.Errs, field.Invalid(c.At.Child(name), n, "cannot be greater than "+what))
	}
}

// NotLess refuses a collision count that decreases.
func (c *Counts) NotLess(name string, n, before *int32) {
	if before != nil && (n == nil || *n < *before) {
		c.Errs = append(c.Errs, field.Invalid(c.At.Child(name), numberOr(n, 0), "cannot be decremented"))
	}
}

// ValidateTemplate checks a template of pods that run for ever. On an update old is the template that t replaces; else
// it is nil. Kind is the kind in the message.
func ValidateTemplate(t, old *corev1.PodTemplateSpec, kind string, at *field.Path) field.ErrorList {
	errs := podspec.ValidateTemplate(t, old, at)
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(at.Child("spec", "restartPolicy"), t.Spec.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(at.Child("spec", "activeDeadlineSeconds"), "activeDeadlineSeconds in "+kind+" is not Supported"))
	}
	return errs
}

func numberOr(p *int32, otherwise int32) int32 {
	if p == nil {
		return otherwise
	}
	return *p
}
