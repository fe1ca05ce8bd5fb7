package storage

import (
	"fmt"
	"maps"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
)

func csiStorageCapacities() *catalog.Kind {
	doc := storagev1.CSIStorageCapacity{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: storagev1.SchemeGroupVersion.WithKind("CSIStorageCapacity"),
		Resource:         "csistoragecapacities",
		Warn:             catalog.Warn(warnOfCapacity),
		Conditional:      true,
		Singular:         "csistoragecapacity",
		Namespaced:       true,
		New:              func() catalog.Object { return &storagev1.CSIStorageCapacity{} },
		NewList:          func() runtime.Object { return &storagev1.CSIStorageCapacityList{} },
		Validate:         catalog.Validate(validateCapacity),
		Columns: []catalog.Column{
			catalog.Text("StorageClassName", doc["storageClassName"], func(c *storagev1.CSIStorageCapacity) string { return c.StorageClassName }),
			catalog.Text("Capacity", doc["capacity"], func(c *storagev1.CSIStorageCapacity) string {
				if c.Capacity == nil {
					return catalog.Unset
				}
				return c.Capacity.String()
			}),
		},
	}
}

func validateCapacity(c, old *storagev1.CSIStorageCapacity) (errs field.ErrorList) {
	topology, class := field.NewPath("nodeTopology"), field.NewPath("storageClassName")
	errs = append(errs, metav1validation.ValidateLabelSelector(c.NodeTopology, metav1validation.LabelSelectorValidationOptions{}, topology)...)
	for _, fault := range validation.IsDNS1123Subdomain(c.StorageClassName) {
		errs = append(errs, field.Invalid(class, c.StorageClassName, fault))
	}
	if q := c.Capacity; q != nil && q.Sign() < 0 {
		errs = append(errs, field.Invalid(field.NewPath("capacity"), q.String(), apivalidation.IsNegativeErrorMsg))
	}
	if old == nil {
		return errs
	}
	if !equality.Semantic.DeepEqual(c.NodeTopology, old.NodeTopology) {
		errs = append(errs, field.Invalid(topology, c.NodeTopology, apivalidation.FieldImmutableErrorMsg))
	}
	return append(errs, apivalidation.ValidateImmutableField(c.StorageClassName, old.StorageClassName, class)...)
}

func warnOfCapacity(c *storagev1.CSIStorageCapacity) (all []string) {
	if c.NodeTopology == nil {
		return nil
	}
	at := field.NewPath("nodeTopology")
	for i, e := range c.NodeTopology.MatchExpressions {
		if old := podspec.OldNodeLabel(e.Key); old != "" {
			all = append(all, fmt.Sprintf("%s: %s is %s", at.Child("matchExpressions").Index(i).Child("key"), e.Key, old))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.NodeTopology.MatchLabels)) {
		if old := podspec.OldNodeLabel(key); old != "" {
			all = append(all, fmt.Sprintf("%s: %s", at.Child("matchLabels").Child(key), old))
		}
	}
	return all
}
