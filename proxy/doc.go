// Package proxy makes Services reachable: every node proxies every Service,
// whether it has a pod of it or not.
//
// [Ports] says, as a pure function of a Service and its EndpointSlices, what to
// listen for and which backends to choose from. A [Proxy] is the loop around it:
// it watches both kinds, computes anew only the Services that changed, and hands
// the difference to two others. A [Forwarder] (package proxy/userspace) accepts
// connections on a socket per port and carries them to a backend; [Rules]
// (package proxy/nft) make the kernel send what is addressed to the Service to
// that socket. Sockets are there before the rules that lead to them, and outlive
// these; connections outlive both.
//
// Backends are the endpoints that are ready. When none is, those that are
// terminating and still serve are used (KEP-1669). When an endpoint that is
// terminating has been taken out, the proxy tells the agent that is to stop the pod
// (package proxy/applied).
//
// What it does not do: topology hints, internalTrafficPolicy Local and
// externalTrafficPolicy Local (traffic goes to every node's pods), SCTP, IPv6.
package proxy
