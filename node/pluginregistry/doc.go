// Package pluginregistry finds the plug-ins of a node by kubelet's plug-in registration API (v1): a plug-in is a
// program on the node, usually in a pod of a DaemonSet, that makes a socket in the directory plugins_registry.
//
// A [Registry] asks each socket for the type, the name and the versions of its plug-in, passes that to the [Handler] of
// the type, and answers the plug-in whether it is registered. When the socket is removed, the handler removes the
// plug-in. A registration that failed is tried again, with growing pauses.
//
// Plug-ins are not trusted with paths: their sockets have to be below the directory of the agent, and no link leads out
// of it ([Sockets]).
package pluginregistry
