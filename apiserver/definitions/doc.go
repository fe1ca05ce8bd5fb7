// Package definitions keeps the served kinds equal to the stored definitions of custom resources
// (CustomResourceDefinition).
//
// A definition is judged as soon as it is written: which of its names are free, and whether its kinds can be served.
// The catalog gets the kinds first, then the status of the definition says so; a client that waits for the condition
// Established finds the resource. A definition that is being deleted keeps its kind until its objects are deleted.
//
// Of several servers over one store, one judges: it decides about names, writes statuses and deletes objects. The
// others serve what the statuses say. An answer to the write of a definition waits for the judgement, whichever
// server makes it. A request for a resource that is established, but not served yet by the server that got it, waits
// as well: see operation.Appearing.
package definitions
