// Package conntrack corrects entries of the kernel's connection tracking after rules change:
// rules see only the first packet of a connection, and conntrack sends the others after it.
//
// [ForgetUDP] deletes flows of UDP to removed backends. [Drains] waits until connections that
// removed TCP servers had not accepted yet are accepted or closed. [ForgetResets] deletes
// connections that a server has reset, so that a client can use the port again at once. All work in
// the network namespace of the calling thread and need CAP_NET_ADMIN.
package conntrack
