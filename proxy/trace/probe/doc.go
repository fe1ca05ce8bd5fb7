// Package probe reports, on a node, how connections to a Service go: the rules in the kernel, the
// pools of the forwarder, and which addresses answer. Clients with access to nodes/proxy call it
// over the kubelet API of the node's agent; package proxy/trace defines the messages.
//
//	probe-R1  It dials only frontends that this node has for a Service, and endpoints that it would
//	          choose: it can't be used to scan ports elsewhere.
//	probe-R2  A question takes bounded time and few sockets; a few are answered at a time, and
//	          others get 429.
//	probe-R3  Dialling from a pod makes the socket in the pod's network namespace, on a thread that
//	          does nothing else and ends after it.
//	probe-R4  All lookups come before dialling, which may change their results.
package probe
