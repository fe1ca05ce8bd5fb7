// Package deviceplugin hands devices of the node to containers by kubelet's device plug-in API (v1beta1).
//
// Plug-ins are programs with a socket in [Options.Dir]. A plug-in registers a resource, such as example.com/gpu, on the
// socket kubelet.sock there, and then reports its devices and their health as long as it runs. The node's capacity of
// the resource is the number of its devices, and the allocatable part that of the healthy ones.
//
// A container that is limited to n of the resource gets n devices that no other container has (D1). Which ones is
// written to disk before the plug-in is asked (D2), so that a restarted agent gives them to no other container. They
// are free again when the containers of their pod have ended for good; a pod that needs them waits for a pod that is
// ending (D4). Containers of a pod that run one after the other, as init containers do, share devices (D5). The devices
// of a plug-in that has ended stay with their containers (D3), and count as capacity, but not as allocatable.
package deviceplugin
