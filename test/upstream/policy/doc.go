// Package policy compares authorization by RBAC with upstream's: the objects that a cluster starts
// with, decisions, the checks of writes, validation and reconciliation.
//
// It is a module of its own, because it links k8s.io/kubernetes. `make upstream` runs it.
package policy
