// Package dra prepares the devices of resource claims on a node, by drivers of dynamic resource allocation (KEP-4381), as
// kubelet does.
//
// A driver is a program on the node, usually in a pod of a DaemonSet. It registers by a socket in the directory
// plugins_registry (package pluginregistry), and serves NodePrepareResources and NodeUnprepareResources on another one. The
// scheduler has chosen the devices of a claim; the driver makes them usable and returns their names for the container runtime
// (Container Device Interface, CDI).
//
//	dra-D1  A claim is on disk (claims.json), with the pods that use it, before its drivers are asked to prepare it. It is
//	        removed after they have said that it is not prepared any more, which they are asked when its last pod has ended.
//	        So whatever was interrupted is undone after a restart.
//	dra-D2  The end of a pod is not reported to the API server before its claims are unprepared: the controller frees devices
//	        of pods that have ended ([Manager.Holds]).
//	dra-D3  A driver that hangs delays only the pods with its claims: each call has a time limit.
//	dra-D4  The ResourceSlices of drivers that are not connected for 30 seconds are deleted, so that no pods are scheduled to
//	        devices that can't be prepared. The slices of all drivers are deleted when the agent starts; drivers publish them
//	        again when they register.
//	dra-D5  A driver is not trusted with paths: its socket has to be in the directory of the agent ([pluginregistry.Sockets]).
package dra
