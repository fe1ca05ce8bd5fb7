package catalog

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateMeta returns everything that is wrong with the metadata of obj: names,
// namespace, labels, annotations, owners, finalizers, managed fields, and on an
// update (old is not nil) changes of fixed fields: name, namespace, uid,
// the timestamps of creation and deletion, a generation that goes back, a
// finalizer that is added to an object being deleted.
//
// The caller has made the name from generateName, and on an update has filled
// in what clients may leave out (uid, timestamps, generation) from old.
func ValidateMeta(kind *Kind, obj, old Object) field.ErrorList {
	return fewQuotes(validateMeta(kind, obj, old))
}

// fewQuotes drops errors that quote all owner references, but for the first mostQuotes. There is one for each controller among
// them after the first, so that a list of controllers of 3 MB would have an answer of gigabytes.
func fewQuotes(errs field.ErrorList) field.ErrorList {
	const mostQuotes = 2
	quotes := 0
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		if _, all := e.BadValue.([]metav1.OwnerReference); !all {
			return false
		}
		quotes++
		return quotes > mostQuotes
	})
}

func validateMeta(kind *Kind, obj, old Object) field.ErrorList {
	if old == nil && len(obj.GetManagedFields()) == 0 && plainNames(kind, obj) {
		if len(obj.GetOwnerReferences())+len(obj.GetFinalizers()) == 0 {
			return nil
		}
		at := field.NewPath("metadata")
		return append(kind.checkFinalizers(obj.GetFinalizers(), at.Child("finalizers")), checkRest(obj, at)...)
	}
	at := field.NewPath("metadata")
	errs := kind.checkFinalizers(obj.GetFinalizers(), at.Child("finalizers"))
	if old == nil {
		return append(errs, validation.ValidateObjectMetaAccessor(obj, kind.Namespaced, kind.checkName, at)...)
	}
	errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(obj, old, at)...)
	if prefix := obj.GetGenerateName(); prefix != "" && prefix != old.GetGenerateName() {
		for _, fault := range kind.checkName(prefix, true) {
			errs = append(errs, field.Invalid(at.Child("generateName"), prefix, fault))
		}
	}
	return append(errs, validation.ValidateFinalizers(obj.GetFinalizers(), at.Child("finalizers"))...)
}

// checkFinalizers refuses finalizers without a domain, by which their controller could not be
// found, except those of Kubernetes itself.
func (k *Kind) checkFinalizers(names []string, at *field.Path) (errs field.ErrorList) {
	if k.AnyFinalizer {
		return nil
	}
	for i, name := range names {
		switch name {
		case string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents:
			continue
		}
		if !strings.Contains(name, "/") {
			errs = append(errs, field.Invalid(at.Index(i), name, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

// checkName applies the kind's own rule and the one that holds for every name:
// it must fit into a path.
func (k *Kind) checkName(name string, prefix bool) []string {
	rule := k.ValidateName
	if rule == nil {
		rule = validation.NameIsDNSSubdomain
	}
	fits := content.IsPathSegmentName
	if prefix {
		fits = content.IsPathSegmentPrefix
	}
	if faults := fits(name); len(faults) > 0 {
		return faults
	}
	return rule(name, prefix)
}

// SameManagers reports whether two lists of metadata.managedFields are equal apart from
// their order and the times of the entries.
func SameManagers(a, b []metav1.ManagedFieldsEntry) bool {
	type entry struct {
		metav1.ManagedFieldsEntry
		fields string
	}
	untimed := func(e metav1.ManagedFieldsEntry) entry {
		fields := ""
		if e.FieldsV1 != nil {
			fields = "=" + e.FieldsV1.GetRawString()
		}
		e.Time, e.FieldsV1 = nil, nil
		return entry{e, fields}
	}
	if len(a) != len(b) {
		return false
	}
	left := make(map[entry]int, len(a))
	for _, e := range a {
		left[untimed(e)]++
	}
	for _, e := range b {
		key := untimed(e)
		if left[key] == 0 {
			return false
		}
		left[key]--
	}
	return true
}
