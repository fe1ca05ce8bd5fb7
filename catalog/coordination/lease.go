package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
)

// Kinds returns the kinds of coordination.k8s.io.
func Kinds() []*catalog.Kind { return []*catalog.Kind{leases()} }

func leases() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: coordinationv1.SchemeGroupVersion.WithKind("Lease"),
		Resource:         "leases",
		Conditional:      true,
		CreatedByUpdate:  true,
		Singular:         "lease",
		Namespaced:       true,
		Storing:          catalog.Storing{Volatile: volatile},
		New:              func() catalog.Object { return &coordinationv1.Lease{} },
		NewList:          func() runtime.Object { return &coordinationv1.LeaseList{} },
		Prepare: catalog.Prepare(func(l, _ *coordinationv1.Lease) {
			// Choosing a leader by strategy is behind a closed gate in v1.37.
			l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil
		}),
		Validate: catalog.Validate(validateLease),
		Columns: []catalog.Column{
			catalog.Text("Holder", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"], func(l *coordinationv1.Lease) string {
				if l.Spec.HolderIdentity == nil {
					return ""
				}
				return *l.Spec.HolderIdentity
			}),
			catalog.Age(),
		},
	}
}

// volatile reports whether a write renews a lease and does nothing else. Whatever decides
// about leadership, above all the holder, is durable.
func volatile(obj, old catalog.Object) bool {
	l, ok := obj.(*coordinationv1.Lease)
	was, had := old.(*coordinationv1.Lease)
	if !ok || !had || !catalog.SameManagers(l.ManagedFields, was.ManagedFields) {
		return false
	}
	renewed := *was
	renewed.Spec.RenewTime = l.Spec.RenewTime
	// These follow from the write itself, and the kind is the same.
	renewed.TypeMeta, renewed.ResourceVersion, renewed.ManagedFields = l.TypeMeta, l.ResourceVersion, l.ManagedFields
	return equality.Semantic.DeepEqual(l, &renewed)
}

func validateLease(l, _ *coordinationv1.Lease) field.ErrorList {
	var errs field.ErrorList
	at, s := field.NewPath("spec"), l.Spec
	if s.LeaseDurationSeconds != nil && *s.LeaseDurationSeconds <= 0 {
		errs = append(errs, field.Invalid(at.Child("leaseDurationSeconds"), *s.LeaseDurationSeconds, "must be greater than 0"))
	}
	if s.LeaseTransitions != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*s.LeaseTransitions), at.Child("leaseTransitions"))...)
	}
	return errs
}
