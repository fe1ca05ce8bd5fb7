// Package quotas counts what objects use of a ResourceQuota, by the rules of Kubernetes v1.37.
//
// A [Resource] has the rules of one resource, as pure functions: which names of a quota its objects count towards, how
// much an object uses, and whether the scopes of a quota include it. A [Ledger] adds up the objects of one resource in
// one namespace, and is changed by one object at a time, so that a change costs the same in a namespace of any size.
//
// The API server uses it to refuse what a quota does not allow, the controller of ResourceQuotas to write their status.
// Each name of a quota belongs to one resource, so that both can look at one resource at a time.
package quotas
