package storage

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/declared"
	"github.com/sampan-io/sampan/catalog/podspec"
)

// Bounds of the parameters, as the API has them.
const (
	mostParameters     = 512
	longestParameters  = 256 << 10 // keys and values together, in bytes
	defaultAnnotation  = "storageclass.kubernetes.io/is-default-class"
	defaultAnnotation0 = "storageclass.beta.kubernetes.io/is-default-class"
)

// Kinds returns the kinds of storage.k8s.io.
func Kinds() []*catalog.Kind {
	return []*catalog.Kind{
		csiDrivers(), csiNodes(), csiStorageCapacities(), storageClasses(), volumeAttachments(), volumeAttributesClasses(),
	}
}

func storageClasses() *catalog.Kind {
	doc := storagev1.StorageClass{}.SwaggerDoc()
	name := catalog.NameColumn()
	plain := name.Cell
	name = catalog.Text("Name", name.Description, func(c *storagev1.StorageClass) string {
		text, _ := plain(c, c.CreationTimestamp.Time).(string)
		if c.Annotations[defaultAnnotation] == "true" || c.Annotations[defaultAnnotation0] == "true" {
			text += " (default)"
		}
		return text
	})
	name.Format = "name"
	return &catalog.Kind{
		GroupVersionKind: storagev1.SchemeGroupVersion.WithKind("StorageClass"),
		Resource:         "storageclasses",
		Lifecycle:        catalog.Lifecycle{AnswersDeleted: true},
		Warn:             catalog.Warn(warnOfClass),
		Singular:         "storageclass",
		ShortNames:       []string{"sc"},
		New:              func() catalog.Object { return &storagev1.StorageClass{} },
		NewList:          func() runtime.Object { return &storagev1.StorageClassList{} },
		Default: catalog.Default(func(c *storagev1.StorageClass) {
			if c.ReclaimPolicy == nil {
				c.ReclaimPolicy = new(corev1.PersistentVolumeReclaimDelete)
			}
			if c.VolumeBindingMode == nil {
				c.VolumeBindingMode = new(storagev1.VolumeBindingImmediate)
			}
		}),
		Validate: declared.With(catalog.Validate(validate), ""),
		Columns: []catalog.Column{
			name,
			catalog.Text("Provisioner", doc["provisioner"], func(c *storagev1.StorageClass) string { return c.Provisioner }),
			catalog.Text("ReclaimPolicy", doc["reclaimPolicy"], func(c *storagev1.StorageClass) string { return orUnset(c.ReclaimPolicy, "Delete") }),
			catalog.Text("VolumeBindingMode", doc["volumeBindingMode"], func(c *storagev1.StorageClass) string { return orUnset(c.VolumeBindingMode, "Immediate") }),
			catalog.Text("AllowVolumeExpansion", doc["allowVolumeExpansion"], func(c *storagev1.StorageClass) string {
				if c.AllowVolumeExpansion != nil && *c.AllowVolumeExpansion {
					return "true"
				}
				return "false"
			}),
			catalog.Age(),
		},
	}
}

func orUnset[T ~string](v *T, otherwise string) string {
	if v == nil {
		return otherwise
	}
	return string(*v)
}

// validate checks a class. Its changes are checked by declared rules.
func validate(c, _ *storagev1.StorageClass) (errs field.ErrorList) {
	provisioner := field.NewPath("provisioner")
	if c.Provisioner == "" {
		errs = append(errs, field.Required(provisioner, ""))
	} else {
		for _, fault := range validation.IsQualifiedName(strings.ToLower(c.Provisioner)) {
			errs = append(errs, field.Invalid(provisioner, c.Provisioner, fault))
		}
	}
	errs = append(errs, validateParameters(c.Parameters, field.NewPath("parameters"))...)
	if p := c.ReclaimPolicy; p != nil && *p != "" && *p != corev1.PersistentVolumeReclaimDelete && *p != corev1.PersistentVolumeReclaimRetain {
		errs = append(errs, field.NotSupported(field.NewPath("reclaimPolicy"), *p, []corev1.PersistentVolumeReclaimPolicy{
			corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain,
		}))
	}
	switch m := c.VolumeBindingMode; {
	case m == nil:
		errs = append(errs, field.Required(field.NewPath("volumeBindingMode"), ""))
	case *m != storagev1.VolumeBindingImmediate && *m != storagev1.VolumeBindingWaitForFirstConsumer:
		errs = append(errs, field.NotSupported(field.NewPath("volumeBindingMode"), *m, []storagev1.VolumeBindingMode{
			storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer,
		}))
	}
	return append(errs, validateTopologies(c.AllowedTopologies, field.NewPath("allowedTopologies"))...)
}

func validateParameters(parameters map[string]string, at *field.Path) (errs field.ErrorList) {
	if len(parameters) > mostParameters {
		return field.ErrorList{field.TooLong(at, "", mostParameters)}
	}
	size := 0
	for key, value := range parameters {
		if key == "" {
			errs = append(errs, field.Invalid(at, key, "field can not be empty."))
		}
		size += len(key) + len(value)
	}
	if size > longestParameters {
		errs = append(errs, field.TooLong(at, "", longestParameters))
	}
	return errs
}

func validateTopologies(terms []corev1.TopologySelectorTerm, at *field.Path) (errs field.ErrorList) {
	known := make(map[string]bool, len(terms))
	for i, term := range terms {
		// To upstream, a term without expressions is a duplicate always.
		meaning := topologyOf(term)
		if len(term.MatchLabelExpressions) == 0 || known[meaning] {
			errs = append(errs, field.Duplicate(at.Index(i).Child("matchLabelExpressions"), ""))
		}
		known[meaning] = true
		seen := map[string]bool{}
		for j, e := range term.MatchLabelExpressions {
			at := at.Index(i).Child("matchLabelExpressions").Index(j)
			if errs = append(errs, metav1validation.ValidateLabelName(e.Key, at.Child("key"))...); seen[e.Key] {
				errs = append(errs, field.Duplicate(at.Child("key"), e.Key))
			}
			seen[e.Key] = true
			if len(e.Values) == 0 {
				errs = append(errs, field.Required(at.Child("values"), ""))
			}
			values := make(map[string]bool, len(e.Values))
			for k, v := range e.Values {
				if values[v] {
					errs = append(errs, field.Duplicate(at.Child("values").Index(k), v))
				}
				values[v] = true
			}
		}
	}
	return errs
}

// topologyOf returns a text that is the same for terms that have the same keys with the same values, in any order.
func topologyOf(t corev1.TopologySelectorTerm) string {
	values := map[string][]string{}
	for _, e := range t.MatchLabelExpressions {
		values[e.Key] = e.Values // the last one of a key counts
	}
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&text, "%q:%q,", key, slices.Compact(slices.Sorted(slices.Values(values[key]))))
	}
	return text.String()
}

func warnOfClass(c *storagev1.StorageClass) (all []string) {
	for i, t := range c.AllowedTopologies {
		for j, e := range t.MatchLabelExpressions {
			if old := podspec.OldNodeLabel(e.Key); old != "" {
				all = append(all, fmt.Sprintf("%s: %s", field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key"), old))
			}
		}
	}
	return all
}
