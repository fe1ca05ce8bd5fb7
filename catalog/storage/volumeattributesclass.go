package storage

import (
	"maps"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

func volumeAttributesClasses() *catalog.Kind {
	doc := storagev1.VolumeAttributesClass{}.SwaggerDoc()
	return &catalog.Kind{
		GroupVersionKind: storagev1.SchemeGroupVersion.WithKind("VolumeAttributesClass"),
		Resource:         "volumeattributesclasses",
		Lifecycle:        catalog.Lifecycle{AnswersDeleted: true},
		Singular:         "volumeattributesclass",
		ShortNames:       []string{"vac"},
		New:              func() catalog.Object { return &storagev1.VolumeAttributesClass{} },
		NewList:          func() runtime.Object { return &storagev1.VolumeAttributesClassList{} },
		Validate:         catalog.Validate(validateAttributes),
		Columns: []catalog.Column{
			catalog.Text("DriverName", doc["driverName"], func(c *storagev1.VolumeAttributesClass) string { return c.DriverName }),
			catalog.Age(),
		},
	}
}

func validateAttributes(c, old *storagev1.VolumeAttributesClass) (errs field.ErrorList) {
	driver, parameters := field.NewPath("driverName"), field.NewPath("parameters")
	if c.DriverName == "" {
		errs = append(errs, field.Required(driver, ""))
	} else {
		for _, fault := range validation.IsQualifiedName(strings.ToLower(c.DriverName)) {
			errs = append(errs, field.Invalid(driver, strings.ToLower(c.DriverName), fault))
		}
	}
	errs = append(errs, validateParameters(c.Parameters, parameters)...)
	if len(c.Parameters) == 0 {
		errs = append(errs, field.Required(parameters, "must contain at least one key/value pair"))
	}
	if old == nil {
		return errs
	}
	if c.DriverName != old.DriverName {
		errs = append(errs, field.Forbidden(driver, "updates to driverName are forbidden."))
	}
	if !maps.Equal(c.Parameters, old.Parameters) {
		errs = append(errs, field.Forbidden(parameters, "updates to parameters are forbidden."))
	}
	return errs
}
