// Package typedjson reads and writes the JSON of Go types faster than the general packages do, with
// the same result to the last byte, or not at all.
//
// For each type a plan is made once: where its fields are, what they are called, what is left out
// when empty. Reading and writing follow the plan over memory and need no reflection for what most
// objects are made of. Unusual values are left to the packages that define what is right:
//
//	J1  [Unmarshal] either reports false, or has made the object that
//	    sigs.k8s.io/json's UnmarshalStrict makes, which then would have returned
//	    neither an error nor a strict error. It does not return the reason for false: call
//	    UnmarshalStrict for that.
//	J2  [Marshal] returns the bytes and the errors of encoding/json's Marshal.
//	J3  The strings of an object that was read share some of their memory with each
//	    other, none with the bytes that they were read from.
//	J4  A normalized object ([Normalize]) is the same after it was written in any encoding
//	    of the API and read back; the kinds and versions of objects within it and the
//	    location of times apart.
//	J5  [UnmarshalContent] and [MarshalContent] do the same for objects without a Go type.
//
// Unusual are, for a reader: unknown and repeated fields, escapes in field names, bytes that are
// not UTF-8, numbers with a fraction or an exponent, values of any type; for a writer: values of
// any type and types that write themselves as text.
//
// The plans use package unsafe; both laws are fuzzed against the two packages, and the tests run
// with the race detector check every pointer.
package typedjson
