// Package definitions keeps the served kinds equal to the stored definitions of custom resources
// (CustomResourceDefinition).
//
// A definition is judged as soon as it is written: which of its names are free, and whether its kinds can be served. The
// catalog gets the kinds first, then the status of the definition says so; a client that waits for the condition
// Established finds the resource. A definition that is being deleted keeps its kind until its objects are deleted.
package definitions
