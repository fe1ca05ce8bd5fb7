package garbage

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
)

// An ownerState is how an owner that a dependent names is doing.
type ownerState int

const (
	solid   ownerState = iota // it exists
	absent                    // it does not exist
	waiting                   // it is being deleted in the foreground and waits for its dependents
	unknown                   // it cannot be looked for: its kind is not served, or has namespaces and the dependent has none
)

// An ownerVerdict is what becomes of an object because of its owners.
type ownerVerdict struct {
	// Keep is the owner references that remain if the object stays; it differs
	// from those it has if some owners are no more.
	keep []metav1.OwnerReference

	delete     bool
	foreground bool // delete the object's own dependents first
}

// judge decides about an object whose owners are in the given states, in the order of
// its references. An object stays as long as one owner does. It stays as it is, with the references to absent owners, if the
// state of an owner is unknown, as with upstream's collector.
func judge(obj client.Object, states []ownerState, hasDependents bool) ownerVerdict {
	refs := obj.GetOwnerReferences()
	if slices.Contains(states, unknown) {
		return ownerVerdict{keep: refs}
	}
	var v ownerVerdict
	held := false
	for i, ref := range refs {
		switch states[i] {
		case solid:
			v.keep = append(v.keep, ref)
		case waiting:
			held = true
		case absent, unknown:
		}
	}
	if len(v.keep) > 0 || len(refs) == 0 {
		return v
	}
	v.delete = true
	v.foreground = held && hasDependents
	return v
}

// policy returns how an object that its owners no longer hold is to be deleted: as it was
// asked to before, if it was.
func (v ownerVerdict) policy(obj client.Object) metav1.DeletionPropagation {
	switch {
	case v.foreground:
		return metav1.DeletePropagationForeground
	case slices.Contains(obj.GetFinalizers(), metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case slices.Contains(obj.GetFinalizers(), metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// deletingDependents says that an object is being deleted in the foreground.
func deletingDependents(obj client.Object) bool {
	return obj.GetDeletionTimestamp() != nil && slices.Contains(obj.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

// orphaning says that an object is being deleted and its dependents are to stay.
func orphaning(obj client.Object) bool {
	return obj.GetDeletionTimestamp() != nil && slices.Contains(obj.GetFinalizers(), metav1.FinalizerOrphanDependents)
}

// blocks says that a dependent holds up the deletion of the owner of that UID.
func blocks(obj client.Object, owner string) bool {
	return slices.ContainsFunc(obj.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return string(ref.UID) == owner && ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
	})
}

// withoutOwner returns the references of an object but for those to one owner.
func withoutOwner(obj client.Object, owner string) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(obj.GetOwnerReferences()), func(ref metav1.OwnerReference) bool {
		return string(ref.UID) == owner
	})
}

// unblocked returns the references of an object with none that holds up a deletion.
func unblocked(obj client.Object) []metav1.OwnerReference {
	refs := slices.Clone(obj.GetOwnerReferences())
	for i := range refs {
		no := false
		refs[i].BlockOwnerDeletion = &no
	}
	return refs
}

// without returns the finalizers of an object but for one.
func without(obj client.Object, finalizer string) []string {
	return slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == finalizer })
}
