package storagemigration

import (
	"strings"

	migrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/declared"
)

type migration = migrationv1.StorageVersionMigration

// Kinds returns the kinds of storagemigration.k8s.io.
func Kinds() []*catalog.Kind {
	return []*catalog.Kind{{
		GroupVersionKind: migrationv1.SchemeGroupVersion.WithKind("StorageVersionMigration"),
		Resource:         "storageversionmigrations",
		Conditional:      true,
		Singular:         "storageversionmigration",
		New:              func() catalog.Object { return &migration{} },
		NewList:          func() runtime.Object { return &migrationv1.StorageVersionMigrationList{} },
		Prepare: catalog.Prepare(func(m, old *migration) {
			m.Status = migrationv1.StorageVersionMigrationStatus{}
			if old != nil {
				m.Status = old.Status
			}
		}),
		Validate: declared.With(catalog.Validate(validate), ""),
		Columns: []catalog.Column{
			catalog.Text("Resource", "GroupResource to migrate", func(m *migration) string { return m.Spec.Resource.String() }),
			catalog.Text("Status", "Status of the migration", status),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: []string{"get", "patch", "update"},
			Shape: catalog.Part{
				Prepare: catalog.Prepare(func(m, old *migration) {
					m.Spec = old.Spec
					metav1.ResetObjectMetaForStatus(&m.ObjectMeta, &old.ObjectMeta)
				}),
				Keeps:    []string{"metadata"},
				Validate: declared.With(catalog.Validate(validateStatus), "status"),
			},
		}},
	}}
}

// status returns the last condition that is true.
func status(m *migration) string {
	word := "Unknown"
	for _, c := range m.Status.Conditions {
		switch t := migrationv1.MigrationConditionType(c.Type); {
		case c.Status != metav1.ConditionTrue:
		case t == migrationv1.MigrationRunning, t == migrationv1.MigrationFailed, t == migrationv1.MigrationSucceeded:
			word = c.Type
		}
	}
	return word
}

func validate(m, old *migration) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	at, r := spec.Child("resource"), m.Spec.Resource
	if r.Resource == "" {
		errs = append(errs, field.Required(at.Child("resource"), "resource is required to be set"))
	} else if faults := validation.IsDNS1035Label(r.Resource); len(faults) > 0 {
		errs = append(errs, field.Invalid(at.Child("resource"), r.Resource, strings.Join(faults, ",")))
	}
	if r.Group != "" {
		if faults := validation.IsDNS1123Subdomain(r.Group); len(faults) > 0 {
			errs = append(errs, field.Invalid(at.Child("group"), r.Group, strings.Join(faults, ",")))
		}
	}
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(m.Spec, old.Spec, spec)...)
	}
	return errs
}

func validateStatus(m, old *migration) field.ErrorList {
	at := field.NewPath("status")
	conditions, version := at.Child("conditions"), at.Child("resourceVersion")
	errs := metav1validation.ValidateConditions(m.Status.Conditions, conditions)
	is, was := m.Status.ResourceVersion, old.Status.ResourceVersion
	if is != "" {
		if _, err := resourceversion.CompareResourceVersion(is, is); err != nil {
			errs = append(errs, field.Invalid(version, is, err.Error()))
		}
	}
	if was != "" && is != was {
		errs = append(errs, field.Invalid(version, is, "field is immutable"))
	}
	holds := func(m *migration, t migrationv1.MigrationConditionType) bool {
		return meta.IsStatusConditionTrue(m.Status.Conditions, string(t))
	}
	wrong := func(message string) { errs = append(errs, field.Invalid(conditions, m.Status.Conditions, message)) }
	if holds(m, migrationv1.MigrationSucceeded) && holds(m, migrationv1.MigrationFailed) {
		wrong("Both success and failed conditions cannot be true at the same time")
	}
	if holds(old, migrationv1.MigrationSucceeded) && !holds(m, migrationv1.MigrationSucceeded) {
		wrong("Success condition cannot be set to false once it is true")
	}
	if holds(old, migrationv1.MigrationFailed) && !holds(m, migrationv1.MigrationFailed) {
		wrong("Failed condition cannot be set to false once it is true")
	}
	return errs
}
