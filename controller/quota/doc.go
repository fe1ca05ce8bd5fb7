// Package quota is the controller that keeps the status of ResourceQuotas up to date: what the specification allows, and
// the use of the objects in the namespace.
//
// It follows the objects of all kinds that can be counted, through the caches that the controllers share, and keeps a
// ledger (package internal/quotas) of each kind that a quota in the namespace counts. A change is added to the ledger and
// wakes the quotas that count its kind. So it costs the same in a namespace of any size, and nothing in a namespace
// without a quota.
//
//	quota-S1  A ledger begins with the objects in the cache and receives each later change. It can be ahead of the
//	          changes that it still receives, and is right once it has received them.
//	quota-S2  Names that no kind counts keep the value that they have in the status, as upstream.
//	quota-S3  A pod that should have been deleted a grace period ago stops to count, without an event: a reconcile is
//	          due then.
//
// The API server enforces quotas by its own count (decision 0031). It does not read the status.
package quota
