// Package definition finds the resource that a CustomResourceDefinition serves under a given name of its kind.
//
// It reads unstructured definitions, because the program has no Go type for them. It does not check whether a definition
// is established.
package definition
