// Package probe sees, on a node, how connections to a Service go: what the kernel and the
// forwarder of the node have, and what answers. It is asked over the kubelet API of the
// node's agent (package proxy/trace has the words), by who may use nodes/proxy.
//
//	R1  Only frontends that this node has for a Service, and endpoints that it would choose,
//	    are dialled: it can't be used to look for ports elsewhere.
//	R2  A question takes bounded time and few sockets; a few are answered at a time, and
//	    others are told to come again.
//	R3  Dialling from a pod makes the socket in the pod's network namespace, on a
//	    thread that ends after it and does nothing else.
//	R4  What is looked up is looked up before anything is dialled, which may change it.
package probe
