// Package manifest makes objects of common kinds from flags, as kubectl's create and run
// do: the same flags, the same objects.
//
// A [Form] is one kind: its flags, and a function that makes the object of them. Nothing
// is asked of a server and nothing is written; what is wrong with flags, or with the files
// that they name, is an error that names them.
package manifest
