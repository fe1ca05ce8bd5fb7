// Package rollout performs rolling updates of ReplicationControllers from the client, as kubectl rolling-update did.
//
// [Updater] asks package controller/rolling for the next step, whose rules R1 to R3 hold here, and makes one API call
// after the other. All state is in annotations of the two controllers, so an update that was killed after any call is
// resumed by running it again. It needs only the API of core/v1.
//
//	R4  A write is made on the object that was read (resource version, UID).
//	R5  The rename restarts no pod: the new controller releases its pods, and one call later the old one adopts them.
//	R6  Of two updaters on one controller, only one continues. The holder writes its identity and a counter on the
//	    controller; another updater watches the counter, and takes over when it has stopped. No clocks are compared.
//	R7  Only a state that was never reached before counts as progress, so pods that come and go do not keep an update
//	    from timing out.
//	R8  Before its first write, an update checks its later calls with dry runs: the creation of the new controller, the
//	    label of a pod, the deletion of the old controller. If the server rejects one, nothing has changed.
//
// The annotations are those of kubectl rolling-update. The old controller has the name of the next one and its original
// number of replicas; the new one has its desired number of replicas, and the name and UID of the controller whose pods
// it replaces, so that it never adopts pods of another controller. Sampan's own annotations have the prefix
// sampan.dev/rollout-. When the update is complete, all are removed except the result (rollout-last) and the name and UID
// of a deleted controller whose pods may still be terminating (rollout-replaced).
//
// One case cannot be seen from the cluster: if the response to the very last call was lost, running the command again
// starts it again.
//
// Deployments do this on the server; this package is for users of ReplicationControllers and scripts.
package rollout
