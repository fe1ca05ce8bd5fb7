// Package dependents is the part that controllers of owners with dependents have in common: caching the owners, adopting
// and releasing dependents, creating and deleting pods, and writing a status.
//
// [Controller] has the owners: their cache, loop and events. [Claims] has the dependents, and [Pods] dependents that
// are pods.
//
//	dependents-O1  A controller touches only objects whose controller reference has its UID. It adopts orphans that its
//	               selector matches and releases objects that the selector does not match any more, but neither while
//	               it is being deleted.
//	dependents-O2  A function that writes returns after the cache has the change (see package controller).
//	dependents-O3  Pods are created in batches that begin with one pod and double, so that an exceeded quota or a broken
//	               template costs one refused request and not a thousand.
//
// The package does not decide how many pods an owner has, and which: the plans of its users do.
package dependents
