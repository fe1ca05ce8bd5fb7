// Package clienttest is an API server for tests of the parts that use package client: a small
// model, in memory, of what a Kubernetes API server does to objects.
//
// [Server] implements client.Interface. It keeps the promises that controllers depend on: resource
// versions rise, a stale update is a conflict, a write that changes nothing has no event, a watch
// reports everything after its revision once and in order, status and spec are written apart,
// generation counts changes of the spec, finalizers and grace periods hold a deletion up, and
// propagation policies leave their finalizers. A test that changes a shared object fails. [Conform]
// runs against both the model and the real API server, so that the two agree.
//
// It does not default, validate or authorize, and leaves garbage collection, binding decisions and
// everything else that controllers do to them.
package clienttest
