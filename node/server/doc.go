// Package server serves the API of a node: that of kubelets, for the API server, metrics collectors and others with permissions for the
// node.
//
// A [Server] answers with logs, the pods of the node, statistics and metrics, runs commands, and passes streams (exec, attach, port-forward)
// on to the container runtime. It authenticates clients by certificate or token and authorizes them at the API server. It owns the
// permissions that it keeps for a while, the connections to the runtime's streams, and the last statistics. It changes nothing about pods,
// which it sees as a [Pod].
package server
