// Package userspace forwards Services in the program itself: a socket per service port, a
// balancer that goes round the backends, and carrying of bytes in both directions.
//
// What it is for is that it retries. The kernel sends a connection to one backend, and if that
// does not answer the client waits for its own timeout; here the next one is dialed. The client
// notices nothing but the time.
//
// One loop per core carries all connections: it waits for their sockets with epoll, and moves
// bytes with splice(2) through pipes that are only held while a side does not take what the other
// sent. (What is as short as a question is copied: that is faster.) A connection has two
// descriptors and one block of memory; it has no goroutine, no timer and no buffer.
//
// Invariants, which tests cite by their sense:
//
//	U1  A connection of TCP goes to one backend. As long as nothing was carried, a backend that
//	    refuses or resets is passed over at once, and one that does not answer when its round
//	    is over, which takes 250 ms, 500 ms, 1 s and 2 s. In a round each backend is tried once.
//	    Once bytes were carried there is no second try.
//	U2  Without backends a connection is reset at once. If all refuse, it waits for the next
//	    round or other backends; after the last round it is reset.
//	U3  A backend that failed is avoided by all for a second, then by all but one that tries
//	    it, twice as long each time up to ten, as long as there are others that did not fail.
//	U4  With affinity a client goes where it went last, unless that is gone or has failed.
//	U5  Each direction ends on its own; a reset of either side resets the other; a side that
//	    takes nothing stops the other, and costs at most a pipe. What the kernel took is
//	    counted, no more and no less.
//	U6  What is known of backends that stay survives a change of the others. Connections
//	    outlive the change, their backend's leaving, and the pool. They end with Run, by a reset.
//	U7  Settle waits for those that were sent to a backend that left, until that has sent
//	    something or a second after it took the connection (docs/decisions/0008).
//	U8  Connections of TCP are bounded for all pools of a Service together, flows of UDP for each
//	    pool, and both for the forwarder, by descriptors. Those above
//	    are reset and counted. When the process has none left at all, one that is kept for it
//	    is given up to accept and reset.
//	U9  A flow of UDP is a client's address and port, and has a socket of its own. It ends when
//	    it was silent for a minute, when its backend leaves, and with its pool. When its backend
//	    refuses (ICMP) it moves to another, and takes the packet along if that is known whole. When
//	    all have refused, or there are none, the client is told by ICMP what its kernel would be told
//	    without a forwarder; so often and not more (see limiter). When there are too many flows, the one
//	    that was silent the longest makes room if that is a second at least; else the packets of
//	    the new one are dropped, as are packets that the kernel does not take. Nothing waits for UDP.
//	U10 Answers come from the address and port that the client sent to.
//	U11 Nothing wakes up while nothing is carried, but once for what ended within a second.
//	U12 What transparent connections need of the network namespace is there as long as there is the
//	    table ([Options.Table]) of any forwarder that has had a transparent pool. Whoever goes
//	    last removes it. What a process that was killed left goes with the next one that has its table,
//	    or by [RemoveTransparent].
//
// Terms: a pool is one socket and its backends ([proxy.Pool]). A connection is fresh for a second
// after it was made, and young as long as it may stand in its server's queue. A round
// is one turn through the backends.
//
// What it does not do: SCTP, which only the kernel carries. UDP has no PROXY header. A transparent
// connection needs answers that come back through this node, see [Options.Reachable].
package userspace
