// Package bootstrappolicy has the RBAC objects that every cluster starts with: those of Kubernetes
// v1.37 with its default feature gates, and a few more that the components of Sampan need.
//
// upstream.json has the former. A test in test/upstream/policy generates it from upstream's
// functions, and compares each object. sampan.yaml has the others. The files omit what all objects
// have in common: the label and the annotation of bootstrap objects, and the API groups of subjects
// and referenced roles.
//
// [Reconcile] returns the changes of a server at its start.
package bootstrappolicy
