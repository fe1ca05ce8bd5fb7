// Package managed keeps account of who manages which field of an object, and merges by
// that account: server-side apply.
//
// The account is the object's metadata.managedFields. It is kept by
// k8s.io/apimachinery's field manager over structured-merge-diff, so that entries, conflicts and
// their words are Kubernetes' own; this package says what objects are made of, what a
// subresource leaves alone and what a scale is, and puts bounds around it. It knows
// nothing of requests and stores, and of which objects an account is kept: decision 0015.
//
//	M1  Objects that come in are never changed: they may be shared.
//	M2  An apply that changes nothing returns an account that differs from the stored
//	    one in times at most, and catalog.SameManagers says so.
//	M3  Times are whole seconds, as they come back from every encoding.
//	M4  The work of an account, which grows with the square of the number of fields or
//	    items in one place, is bounded: [Largest]. Larger objects have no account, and
//	    an apply of one is refused.
package managed
