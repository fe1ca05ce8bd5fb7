package node

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/declared"
	"github.com/sampan-io/sampan/catalog/podspec"
)

// Kinds returns the kinds of node.k8s.io.
func Kinds() []*catalog.Kind { return []*catalog.Kind{runtimeClasses()} }

func runtimeClasses() *catalog.Kind {
	doc := nodev1.RuntimeClass{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: nodev1.SchemeGroupVersion.WithKind("RuntimeClass"),
		Resource:         "runtimeclasses",
		Conditional:      true,
		CreatedByUpdate:  true,
		Singular:         "runtimeclass",
		New:              func() catalog.Object { return &nodev1.RuntimeClass{} },
		NewList:          func() runtime.Object { return &nodev1.RuntimeClassList{} },
		Validate:         declared.With(catalog.Validate(validate), ""),
		Warn:             catalog.Warn(warnings),
		Columns: []catalog.Column{
			catalog.Text("Handler", doc["handler"], func(c *nodev1.RuntimeClass) string { return c.Handler }),
			catalog.Age(),
		},
	}
}

// warnings warns of deprecated labels.
func warnings(c *nodev1.RuntimeClass) (all []string) {
	if c.Scheduling == nil {
		return nil
	}
	for _, label := range slices.Sorted(maps.Keys(c.Scheduling.NodeSelector)) {
		if old := podspec.OldNodeLabel(label); old != "" {
			all = append(all, "scheduling.nodeSelector: "+old)
		}
	}
	return all
}

func validate(c, old *nodev1.RuntimeClass) (errs field.ErrorList) {
	handler := field.NewPath("handler")
	if c.Handler == "" {
		errs = append(errs, field.Required(handler, ""))
	} else {
		for _, fault := range content.IsDNS1123Label(c.Handler) {
			errs = append(errs, field.Invalid(handler, c.Handler, fault))
		}
	}
	if c.Overhead != nil {
		errs = append(errs, podspec.ValidateLimits(c.Overhead.PodFixed, field.NewPath("overhead"))...)
	}
	if s := c.Scheduling; s != nil {
		at := field.NewPath("scheduling")
		errs = append(errs, metav1validation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
		errs = append(errs, podspec.ValidateTolerations(s.Tolerations, at.Child("tolerations"))...)
		errs = append(errs, validateUnique(s.Tolerations, at.Child("tolerations"))...)
	}
	if old != nil && c.Handler != old.Handler {
		errs = append(errs, field.Invalid(handler, nil, apivalidation.FieldImmutableErrorMsg))
	}
	return errs
}

// validateUnique refuses tolerations that differ in their seconds alone.
func validateUnique(tolerations []corev1.Toleration, at *field.Path) (errs field.ErrorList) {
	seen := map[corev1.Toleration]bool{}
	for i, t := range tolerations {
		key := t
		if key.TolerationSeconds = nil; seen[key] {
			errs = append(errs, field.Duplicate(at.Index(i), t))
		}
		seen[key] = true
	}
	return errs
}
