// Package nft is [proxy.Kernel] over nftables: the kernel of the node chooses among the
// backends of Services. It speaks netlink; no outside program is run.
//
// There is one table, of the family inet, with a name of the caller's. In it a frontend
// is an element of a map, and so is each of its backends. The rules are those of few classes of
// frontends, which have the number of backends, affinity, sources and masquerade in common. So a change of a
// Service is a change of some elements, whatever the number of Services.
//
//	N1  What decides anything is in chains of type nat alone, which see the first packet of a
//	    connection: a change can't touch the others. Refusal is there too: what is refused is no
//	    connection, so the next packet is a first one again. All packets are seen by two chains that count, and
//	    change nothing.
//	N2  [Kernel.Replace] and [Kernel.Update] are one transaction each. What was there is
//	    emptied and filled again, hooks stay: there is no moment without rules.
//	N3  The table follows from the rules alone, however they came about: a process that
//	    takes over finds what it would have made. Only the affinity of clients, what this process has
//	    counted, and classes that nobody uses any more (64 at most), tell of the past.
//	N4  What an Update costs depends on the frontends in it, but for the first frontend of a
//	    new class: then the kernel looks at all backends once. Classes of plain cluster IPs
//	    and node ports with up to 8 backends are always there.
//	N5  Slot i of a frontend is its backend i. A packet that is under way during a change and
//	    finds its slot gone takes slot 0, which is there as long as there is any.
//	N6  Nothing else is touched, but for net.netfilter.nf_conntrack_acct of the network namespace
//	    (for [Kernel.Settle]): a chain of the table notes if it was off before the first of us
//	    came, and who removes the last such table then puts it back.
//	N7  The program nft can list the table (see findNumber).
//	N8  Who else removes the table is heard of at once ([Kernel.Watch]). While we change it ourselves
//	    nobody listens, which would cost more than the change.
//	N9  A packet of a connection that a rule has sent to a backend is counted once, at its frontend, as long as that
//	    is there, but for those of TCP that carry nothing; counters never go back (see counts.go). Where nothing
//	    came nothing is counted, or kept.
//	N10 A first packet finds the rules, also if its connection has the addresses and ports of one before, unless that goes on for
//	    conntrack: one that its server has reset is forgotten ([Kernel.Run]; docs/decisions/0016-resets.md).
//
// Chains, of which those with a 4 have a twin with a 6:
//
//	prerouting, output   where packets come in and where this node makes them
//	services4            which frontend is it? A node port, or one at an address
//	cluster4             one in the service networks, the rest of which is refused
//	door4-3-foreign, …   one for each class: counts, chooses, DNAT
//	…-inside             the same for clients inside, where they have backends of their own
//	…-denied             drops what does not come from the sources of the class
//	refuse               TCP by a reset, others by ICMP port unreachable
//	postrouting          connections that we have sent on, as they leave:
//	leave4               whose address is replaced? The frontend's class says it: everybody's,
//	foreign4, local4     or that of some, and of pods that reach themselves
//	tally-postrouting    count the packets of connections but the first one, as they leave
//	tally-input          or reach this node
//	tally4, empty4       at which frontend? Those that carry nothing pass
//	reset4               connections that their server resets: tells [Kernel.Run], which has conntrack forget them
//
// Maps and sets:
//
//	doors4       address . protocol . port → class; a node port is at address 0
//	classes      class → chain
//	endpoints4   frontend . slot → backend; with affinity also frontend . name → backend
//	slots4       frontend . slot → name of the backend, for frontends with affinity
//	affinity4    frontend . client → name of its backend, with a timeout
//	counts4      frontend . what is counted; each element has a counter
//	hairpin4     address . address of each backend that may be a pod of this node
//	pods4, node-port-addresses4, sources4-…   networks
//
// A backend's name is a hash of its address. A client whose backend is gone finds no such name among the
// endpoints, so nobody has to look for its element.
//
// Flows of UDP to a backend that is gone are deleted from conntrack; those of TCP and SCTP go
// on, as their ends know when they are over. When the table is removed, connections through it
// are cut: the kernel translates no addresses for rules that are not there.
//
// It needs Linux 5.9 (refusal in prerouting, counters of elements) with nf_tables, its nat, masq, fib, reject,
// numgen and hash parts, and conntrack. Between pods on one bridge it needs br_netfilter, or
// answers bypass the node; a pod reaches itself only if its port of the bridge is in hairpin mode.
package nft
