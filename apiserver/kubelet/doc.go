// Package kubelet reaches the HTTPS API of nodes: it serves the logs of pods, and the commands (exec), terminals
// (attach) and ports (port-forward) of their containers, and has the transport for the proxy subresource of nodes.
//
// The API server uses its own client certificate for a node. The user was authorized before, and
// the user's credentials are never passed on. The certificate of a node is verified by the
// cluster's authority, unless the kubelet is a foreign one (docs/decisions/0023). Streams are
// forwarded as they arrive.
//
// Connections are not kept: these requests are rare, and an idle cluster should have no open
// connections.
//
// Clients ask for exec, attach and port-forward over SPDY/3.1 or over WebSocket. Every kubelet serves SPDY and the
// older WebSocket protocols, so these connections are passed on byte by byte. The two newer forms end here, because not
// every kubelet and container runtime has them (docs/decisions/0048): the WebSocket protocol v5.channel.k8s.io becomes
// streams of SPDY, and SPDY inside of WebSocket messages (SPDY/3.1+portforward.k8s.io) is taken out of them.
//
// A stream has no buffer beyond one message in each direction: a side that does not read stops the other one. It ends
// when either side closes it, when the request's context ends, or after four hours without a byte.
package kubelet
