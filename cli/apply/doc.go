// Package apply brings the objects of a cluster to the state that files say.
//
// An [Applier] applies one object: by server-side apply where the server has it, and
// otherwise by a three-way merge between what was applied last, what is to be applied
// and what is there ([Merge], a pure function). What was applied last is kept in the
// annotation that kubectl uses, and written under its name, so that both can work on
// the same objects in turn.
//
// An object that was applied by merges moves to server-side apply by itself the first
// time: one last merge removes what has left its file, and the fields that merges
// owned become those of the server-side manager, so that from then on the server
// removes what leaves the file.
//
// A [Set] applies many: in the order in which they depend on each other ([Order]), with
// kinds that it defines itself established before the first object of theirs.
//
// An [ApplySet] (Kubernetes enhancement 3659) remembers in a parent object what belongs
// to a set, so that objects that have left it can be found and deleted:
//
//	P1  The parent names every kind and namespace of the set before the first
//	    object of them is written.
//	P2  Nothing is deleted unless everything was applied.
//	P3  Only objects with the label of the set are deleted, each by its UID.
//	P4  A parent that another tool keeps is not touched.
//
// The package prints nothing and waits for nothing but new kinds.
package apply
