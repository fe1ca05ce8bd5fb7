// Package devices has the controllers of dynamic resource allocation (KEP-4381): they make the ResourceClaims that pods get
// from templates, free claims and their devices when the pods are done, and evict pods from devices with taints.
//
// The scheduler allocates devices to claims and reserves claims for pods (plug-in DynamicResources). Two loops are upstream's
// resourceclaim-controller (D1 to D4), and two are its device-taint-eviction-controller:
//
//	devices-D1  A pod that names a template gets a claim of its own, owned by it, once: the claim has the annotation
//	            resource.kubernetes.io/pod-claim-name, and its name is in status.resourceClaimStatuses of the pod. A claim
//	            that was made before a crash is found by owner and annotation. One that was deleted is made again.
//	devices-D2  A pod that has a node without having been scheduled gets its allocated claims reserved.
//	devices-D3  A reservation ends when its pod is gone, was replaced or is done: it has ended, or is being deleted without
//	            a node. Whether a pod that the cache does not have is gone, the server decides. Reservations for anything
//	            but pods are left alone.
//	devices-D4  A claim whose last reservation ends loses its allocation and the finalizer
//	            resource.kubernetes.io/delete-protection. A claim that was made for a pod is deleted when the pod is done.
//	devices-D5  A pod with a node is deleted when one of its devices gets a taint with the effect NoExecute, by its driver or
//	            by a DeviceTaintRule, that the request does not tolerate; or when the time is over for which it does. The
//	            condition EvictionInProgress of the rule reports that, at most every ten seconds.
package devices
