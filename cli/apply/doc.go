// Package apply applies the objects of files to a cluster, as kubectl apply does.
//
// An [Applier] applies one object: with server-side apply if the server has it, and
// otherwise with a three-way merge of the last applied configuration, the new
// configuration and the live object ([Merge], a pure function). The last applied
// configuration is kept in kubectl's annotation and under kubectl's manager name, so
// that both tools can apply the same objects in turn.
//
// An object that was applied with merges is migrated to server-side apply the first
// time: a last merge removes the fields that are no longer in the file, and the fields
// of the merging managers become those of the server-side manager, so that from then
// on the server removes fields that leave the file.
//
// A [Set] applies many objects: in the order of their dependencies ([Order]), and it
// waits until CustomResourceDefinitions of the set are established before it applies
// the first object of their kinds.
//
// An [ApplySet] (KEP-3659) records the members of a set in a parent object, so that
// objects that have left the set can be found and deleted:
//
//	P1  The parent names every kind and namespace of the set before the first
//	    object of them is written.
//	P2  Objects are only deleted if every object was applied.
//	P3  Only objects with the label of the set are deleted, each by its UID.
//	P4  A parent that another tool manages is not changed.
//
// The package prints nothing, and waits only for new kinds.
package apply
