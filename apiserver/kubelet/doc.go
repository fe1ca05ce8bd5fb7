// Package kubelet reaches through to the HTTPS API of nodes: for the logs of pods
// and for whatever is asked of a node itself.
//
// The API server speaks to a node as itself, with its own client certificate; who
// asked for it was authorized before, and what that user authenticated with is
// never passed on. The certificate of a node is verified by the cluster's authority,
// unless the kubelet is a foreign one (docs/decisions/0023). Streams are passed on as
// they come.
//
// Connections are not kept: these requests are rare, and an idle cluster holds
// nothing open.
package kubelet
