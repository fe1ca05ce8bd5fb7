// Package userspace relays connections of Services in this process: it has a socket for each
// service port and balances among the backends.
//
// Its purpose is to retry. The kernel sends a connection to one backend, and if that does not
// answer the client waits for its own timeout; this package dials the next backend. The client
// notices only the delay.
//
// A TCP connection has two goroutines, one per direction. They take a buffer only while there are
// bytes to copy; long runs of bytes are moved by splice(2), as package net does between two
// sockets. A panic in one connection is logged and ends this connection. UDP is relayed by one goroutine per processor, which reads and writes packets in
// batches (docs/decisions/0026).
//
// Invariants:
//
//	userspace-U1  A TCP connection goes to one backend. Until bytes were carried, a backend that
//	              refuses or resets is skipped at once, and one that does not answer is skipped at
//	              the end of its round. Rounds take 250 ms, 500 ms, 1 s and 2 s; each tries each
//	              backend once. After bytes were carried there is no second try.
//	userspace-U2  Without backends a connection is reset at once. If all refuse, it waits for the
//	              next round or other backends; after the last round it is reset.
//	userspace-U3  A backend that failed is avoided for a second. Then one client tries it; as long
//	              as it fails, that interval doubles up to ten seconds. All this holds only while
//	              there are backends that did not fail.
//	userspace-U4  With affinity a client goes to its last backend, unless that was removed or has
//	              failed.
//	userspace-U5  Each direction ends separately; a reset of either side resets the other, even after
//	              its stream has ended; a side that does not read blocks the other. Urgent bytes
//	              stay in the stream. Exactly the bytes that the kernel accepted are counted; bytes
//	              that are spliced are counted per MiB and at the end.
//	userspace-U6  The state of remaining backends survives changes of others. Connections outlive
//	              the change, the removal of their backend, and the pool. When Run ends they are
//	              reset.
//	userspace-U7  Settle waits for connections to removed backends until the backend has sent
//	              something or a second after it accepted (docs/decisions/0008).
//	userspace-U8  TCP connections are limited for all pools of a Service together, flows of UDP for
//	              each pool, and both for the forwarder, by descriptors. Connections above a limit
//	              are reset and counted. Pipes of splice(2) have a limit of their own: a stream that
//	              pauses has none, and streams above the limit are copied. There are 1024 buffers of
//	              64 KiB; directions above that limit have 4 KiB. If the process has no descriptor
//	              left, a reserved one is closed to accept and reset.
//	userspace-U9  A flow of UDP is a client's address and port; each has a socket. It ends when it was
//	              silent for a minute, when its backend is removed, and with its pool. If its backend
//	              refuses (ICMP) it moves to another one, with the packet if that is known whole. If
//	              all have refused, or there is none, the client gets the ICMP error that it would
//	              get without a forwarder, with a rate limit (see limiter). If there are too many
//	              flows, the one that was silent longest ends if that is at least a second; otherwise
//	              packets of new flows are dropped, as are packets that the kernel does not accept.
//	              Nothing waits for UDP.
//	userspace-U10 Answers come from the address and port that the client sent to.
//	userspace-U11 The process does not wake up while nothing is carried, except once per connection
//	              within its first second and once after a long stream pauses.
//	userspace-U12 What transparent connections need of the network namespace exists as long as the
//	              table ([Options.Table]) of any forwarder that has had a transparent pool. The last
//	              forwarder removes it. After a process was killed, the next one with the same table
//	              or [RemoveTransparent] does.
//
// Terms: a pool is one socket and its backends ([proxy.Pool]). A connection is young
// while it may be in its server's accept queue. A round tries each
// backend once.
//
// Not supported: SCTP, which only the kernel carries, and PROXY headers for UDP. A transparent
// connection needs answers that come back through this node, see [Options.Reachable].
package userspace
