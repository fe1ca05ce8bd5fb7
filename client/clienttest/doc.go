// Package clienttest is an API server for tests of the parts that use package
// client: a small model, in memory, of what a Kubernetes API server does to
// objects.
//
// [Server] fits client.Interface. It keeps the promises that controllers rest
// on: resource versions rise, a stale update is a conflict, a write that changes
// nothing has no event, a watch tells everything after its revision once and in order,
// status and spec are written apart, generation counts changes of the
// spec, finalizers and grace periods hold a deletion up, and
// propagation policies leave their finalizers. A test that changes a shared object
// fails. [Conform] is what the model and the real API server are both held
// to, so that the model stays honest.
//
// It does not default or validate, knows no users, and garbage collection, binding
// decisions and everything else that controllers do is left to them.
package clienttest
