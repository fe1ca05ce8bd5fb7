// Package kubelet reaches the HTTPS API of nodes: it forwards requests for the logs of pods, and has the transport for the
// proxy subresource of nodes.
//
// The API server uses its own client certificate for a node. The user was authorized before, and
// the user's credentials are never passed on. The certificate of a node is verified by the
// cluster's authority, unless the kubelet is a foreign one (docs/decisions/0023). Streams are
// forwarded as they arrive.
//
// Connections are not kept: these requests are rare, and an idle cluster should have no open
// connections.
package kubelet
