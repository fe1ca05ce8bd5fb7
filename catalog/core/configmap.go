package core

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

func configMaps() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: gvk("ConfigMap"),
		Resource:         "configmaps",
		Singular:         "configmap",
		ShortNames:       []string{"cm"},
		Namespaced:       true,
		New:              func() catalog.Object { return &corev1.ConfigMap{} },
		NewList:          func() runtime.Object { return &corev1.ConfigMapList{} },
		Validate:         catalog.Validate(validateConfigMap),
		Columns: []catalog.Column{
			catalog.Number("Data", corev1.ConfigMap{}.SwaggerDoc()["data"], func(cm *corev1.ConfigMap) int64 {
				return int64(len(cm.Data) + len(cm.BinaryData))
			}).Declared("string", ""),
			catalog.Age(),
		},
	}
}

func validateConfigMap(cm, old *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for key, value := range cm.Data {
		at := field.NewPath("data").Key(key)
		errs = append(errs, faults(validation.IsConfigMapKey(key), at, key)...)
		if _, twice := cm.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(at, key, "duplicate of key present in binaryData"))
		}
		size += len(value)
	}
	for key, value := range cm.BinaryData {
		errs = append(errs, faults(validation.IsConfigMapKey(key), field.NewPath("binaryData").Key(key), key)...)
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		// The whole object is too big: upstream gives no field either.
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	if old == nil || old.Immutable == nil || !*old.Immutable {
		return errs
	}
	if cm.Immutable == nil || !*cm.Immutable {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set"))
	}
	if !maps.Equal(cm.Data, old.Data) {
		errs = append(errs, field.Forbidden(field.NewPath("data"), "field is immutable when `immutable` is set"))
	}
	if !equality.Semantic.DeepEqual(cm.BinaryData, old.BinaryData) {
		errs = append(errs, field.Forbidden(field.NewPath("binaryData"), "field is immutable when `immutable` is set"))
	}
	return errs
}

// faults makes an error of each sentence about a fault of value.
func faults(sentences []string, at *field.Path, value any) field.ErrorList {
	var errs field.ErrorList
	for _, s := range sentences {
		errs = append(errs, field.Invalid(at, value, s))
	}
	return errs
}
