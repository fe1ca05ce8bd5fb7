// Package manifest makes objects of common kinds from flags, with the flags and the results
// of kubectl create and kubectl run.
//
// A [Form] is one kind: its flags, and a function that makes the object from them. The
// package sends no requests and writes no files; errors name the flags and files that are
// invalid.
package manifest
