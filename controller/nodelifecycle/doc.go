// Package nodelifecycle is the controller that watches over nodes and the pods on them.
//
//   - A node that does not renew its Lease in time gets the status Unknown, and its pods are not ready any more.
//   - Each node says by an annotation for how long it may keep Secrets and ConfigMaps.
//   - Taints follow the conditions of a node, and pods that do not tolerate a NoExecute taint are evicted.
//   - The pods of a deleted node are deleted, the terminating pods of a node that is out of service, and the oldest
//     finished pods if there are too many.
//
// The conditions, the taints and the time of an eviction are pure functions; the reconcile function carries them out.
//
//	nodelifecycle-N1  The cache does not decide that a node was deleted, the server does; and a deletion has the UID
//	                  of the pod as a precondition.
//	nodelifecycle-N2  Nothing is done at intervals: what time changes has a timer, and a renewal of a Lease only moves
//	                  that of its node.
package nodelifecycle
