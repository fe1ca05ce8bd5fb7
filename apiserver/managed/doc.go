// Package managed keeps the managed fields of objects (which manager owns which field), and merges
// by them: server-side apply.
//
// They are the object's metadata.managedFields. It uses k8s.io/apimachinery's field manager over
// structured-merge-diff, so that entries, conflicts and messages are those of Kubernetes. This
// package adds the types of objects, the fields that a subresource leaves alone, the mapping of a
// scale, and bounds. It does not depend on requests or stores. The server decides which objects
// have managed fields: decision 0015.
//
//	M1  Objects that are passed in are never changed: they may be shared.
//	M2  An apply that changes nothing returns managed fields that differ from the stored
//	    ones at most in times, and catalog.SameManagers says so.
//	M3  Times are whole seconds, as they come back from every encoding.
//	M4  The work of merging, which grows with the square of the number of fields or
//	    items in one place, is bounded: [Largest]. Larger objects have no managed fields, and
//	    an apply of one is refused.
package managed
