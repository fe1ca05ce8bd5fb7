// Package forward passes requests on to pods, services and nodes: the subresource proxy of these kinds.
//
// A target is the address that a pod reports, that of a ready pod of a service, or that of a node. Loopback, link-local and
// multicast addresses are refused, as by upstream: a pod or node reports its own address, and must not be able to direct
// requests to servers that trust the API server's host. The one exception is the kubelet of a node whose certificate the
// cluster verifies.
//
// The user was authorized before, and the user's credentials are not passed on. The certificates of pods are not verified.
// Answers pass through as they arrive. Links in HTML, and redirects, get the path of the proxy in front, so that a
// browser comes back to it. Requests for an upgrade, such as WebSockets, are passed on as well.
//
// Nothing is buffered that a target can make large, and connections are not kept.
package forward
