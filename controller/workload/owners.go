package workload

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// rollbackManager is the field manager of a rollback, until [handBack].
const rollbackManager = "sampan-rollback"

// handBack returns d without the managed fields of a rollback, or nil if it has none. The restored fields of the template
// belong to the client that applies the template: its next apply is no conflict, and removes the fields that it no longer
// has. They have no owner if no client or several apply the template.
func handBack(d *appsv1.Deployment) *appsv1.Deployment {
	at := slices.IndexFunc(d.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == rollbackManager })
	if at < 0 {
		return nil
	}
	d = d.DeepCopy()
	_, restored := ownedFields(&d.ManagedFields[at])
	d.ManagedFields = slices.Delete(d.ManagedFields, at, at+1)
	var (
		applier *metav1.ManagedFieldsEntry
		owned   *fieldpath.Set
	)
	for i := range d.ManagedFields {
		m := &d.ManagedFields[i]
		all, template := ownedFields(m)
		switch {
		case m.Operation != metav1.ManagedFieldsOperationApply || m.Subresource != "" || template.Empty():
		case applier != nil:
			return d
		default:
			applier, owned = m, all
		}
	}
	if applier == nil {
		return d
	}
	if text, err := owned.Union(restored).ToJSON(); err == nil { // otherwise they have no owner
		applier.FieldsV1 = metav1.NewFieldsV1(string(text))
	}
	return d
}

// ownedFields returns the fields of an entry, and those of them in the template. Fields that cannot be read are left out.
func ownedFields(m *metav1.ManagedFieldsEntry) (all, template *fieldpath.Set) {
	all = &fieldpath.Set{}
	if err := all.FromJSON(m.FieldsV1.GetRawReader()); err != nil {
		all = &fieldpath.Set{}
	}
	return all, all.FilterIncludeMatches(fieldpath.MakePrefixMatcherOrDie("spec", "template"))
}
