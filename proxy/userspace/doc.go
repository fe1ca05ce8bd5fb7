// Package userspace forwards Services in the program itself: it opens a socket per service
// port, chooses a backend for each connection, and copies bytes in both directions.
//
// Its purpose is to retry. The kernel sends a connection to one backend, and if that does not
// answer the client waits for its own timeout; the forwarder dials the next backend, and the
// client notices nothing but the time.
//
// A TCP connection has two goroutines, one per direction. They take a buffer only while there are
// bytes to copy; long runs of bytes are moved by splice(2), as package net does between two
// sockets. UDP is relayed by one goroutine per processor, which reads and writes packets in
// batches (docs/decisions/0026).
//
// Invariants:
//
//	userspace-U1  A TCP connection is carried by one backend. Until bytes have been carried, a backend
//	    that refuses or resets is skipped at once, and one that does not answer is skipped at the end
//	    of its round. Rounds last 250 ms, 500 ms, 1 s and 2 s; in a round each backend is tried once.
//	    After bytes have been carried there is no second try.
//	userspace-U2  Without backends a connection is reset at once. If all refuse, it waits for the next
//	    round or for other backends; after the last round it is reset.
//	userspace-U3  A backend that failed is avoided for a second, then one client tries it again; each
//	    further failure doubles the time, up to ten seconds. It is not avoided if all backends have failed.
//	userspace-U4  With session affinity a client goes to the backend that it used last, unless that has
//	    been removed or has failed.
//	userspace-U5  Each direction ends separately. A reset of one side resets the other. A side that does
//	    not read stops the other one. Exactly the bytes that the kernel accepted are counted; bytes
//	    that are spliced are counted per MiB and at the end.
//	userspace-U6  A change of the backends keeps the state of the backends that stay. Connections continue
//	    after such a change, and after their backend or the pool is removed. Run resets them when it ends.
//	userspace-U7  Settle waits for connections to removed backends until the server has sent something, or
//	    for one second after it accepted (docs/decisions/0008).
//	userspace-U8  TCP connections are bounded for all pools of a Service together, UDP flows for each
//	    pool, and both by the descriptors of the forwarder. Those above are reset and counted. If the
//	    process has no descriptor left, a spare one is closed to accept and reset.
//	userspace-U9  A UDP flow is a client's address and port, and has a socket. It ends when it has been
//	    silent for a minute, when its backend is removed, and with its pool. If its backend refuses
//	    (ICMP), the flow moves to another one, and the packet is sent again if all of it is known. If all
//	    backends refuse, or there are none, the client gets the ICMP message that its kernel would get
//	    without a forwarder, at a limited rate (see limiter). If there are too many flows, the one that has
//	    been silent longest is ended, if that is at least a second; else the packets of the new flow are
//	    dropped, as are packets that the kernel does not accept.
//	userspace-U10 Answers come from the address and port that the client sent to.
//	userspace-U11 An idle forwarder does not wake up, except once per connection within its first second.
//	userspace-U12 The rules that transparent connections need exist while the nftables table
//	    ([Options.Table]) of any forwarder exists that has had a transparent pool. The last forwarder
//	    removes them. What a killed process left is removed by the next one with its table, or by
//	    [RemoveTransparent].
//
// Terms: a pool is one socket and its backends ([proxy.Pool]). A connection is young until its server is
// known to have accepted it. A round is one pass over the backends.
//
// Limits: SCTP is forwarded by the kernel only. UDP has no PROXY header. A transparent connection needs
// answers that return through this node, see [Options.Reachable].
package userspace
