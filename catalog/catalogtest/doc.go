// Package catalogtest is the kit for the kinds of package catalog. Every
// catalog/<group> runs [Kinds] on its kinds and its examples. It checks the laws
// that each kind keeps, whatever the objects are like:
//
//	K1  Names are there, spelled as Kubernetes spells them, and unique.
//	K2  Default is idempotent: a second time it changes nothing, and it writes
//	    to nothing that is shared.
//	K3  Nothing panics, however strange the object: Default, Prepare, Validate,
//	    Grace, columns, fields, subresources.
//	K4  Each example can be created, updated with itself, and has its status
//	    updated with itself.
//	K5  The status that a new object brings is dropped unless the kind says that
//	    it counts, and an update does not change it; an update of the status
//	    does not change the spec.
//	K6  Cells are strings, int64s or bools, as the column says, but for a few columns that upstream declares otherwise.
//	K7  Validate refuses an IntOrString of a type that there is not, with its field.
//	K8  Each example, converted to each version and back, is unchanged. Nothing panics in a
//	    conversion, however strange the object.
package catalogtest
