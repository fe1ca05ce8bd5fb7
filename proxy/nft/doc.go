// Package nft implements [proxy.Kernel] with nftables: the kernel of the node chooses among the
// backends of Services. It uses netlink and runs no other program.
//
// There is one table, of the family inet, with a configurable name. Each frontend is an element of
// a map, and so is each of its backends. Frontends with the same number of backends, affinity,
// sources and masquerade share the rules of a class. So a change of a Service changes a few
// elements, independently of the number of Services.
//
//	nft-N1  Decisions are made only in chains of type nat, which see the first packet of a
//	        connection: a change does not affect established connections. Refusal is there too:
//	        a refused packet makes no connection, so the next packet is again a first one. Two
//	        more chains see all packets; they count and change nothing.
//	nft-N2  [Kernel.Replace] and [Kernel.Update] are one transaction each. Replace empties and
//	        refills what exists and keeps base chains: there is no moment without rules.
//	nft-N3  The contents of the table follow from the rules, independently of the order of
//	        changes: a process that takes over finds the rules it wants. The exceptions are
//	        the affinity of clients, the counters of this process, and unused classes (64 at
//	        most).
//	nft-N4  The cost of an Update depends on the frontends in it, except for the first frontend
//	        of a new class: then the kernel checks all backends once. Classes of plain cluster
//	        IPs and node ports with up to 8 backends always exist.
//	nft-N5  Slot i of a frontend is its backend i. A packet in flight during a change that finds
//	        its slot removed takes slot 0, which exists as long as there is any.
//	nft-N6  Nothing outside the table is changed except net.netfilter.nf_conntrack_acct of the
//	        network namespace (for [Kernel.Settle]). A chain of the table records that it was
//	        off before the first Kernel; removing the last such table restores it.
//	nft-N7  The program nft can list the table (see findNumber).
//	nft-N8  Removal of the table by another program is noticed at once ([Kernel.Watch]), or after
//	        the change if it happens during one of our own: notifications would cost more than
//	        the change.
//	nft-N9  A packet of a connection that a rule has sent to a backend is counted once, at its
//	        frontend while that exists, except TCP packets without data. Counters never
//	        decrease (see counts.go). A frontend without traffic has no counter.
//	nft-N10 A first packet meets the rules, even if its connection has the addresses and ports of
//	        an earlier one, unless that one is still open for conntrack: a connection that its
//	        server has reset is deleted ([Kernel.Run]; docs/decisions/0016-resets.md).
//
// Chains; those with a 4 have a twin with a 6:
//
//	prerouting, output   where packets come in and where this node makes them
//	services4            find the frontend: a node port, or one at an address
//	cluster4             find a frontend in the service networks; refuse all other addresses there
//	frontend4-3-foreign, … one for each class: counts, chooses, DNAT
//	…-inside             the same for clients inside, where they have separate backends
//	…-denied             drops connections that are not from the sources of the class
//	refuse               TCP by a reset, others by ICMP port unreachable
//	postrouting          connections to backends, as they leave:
//	leave4               replace the source address? By the class of the frontend: always,
//	foreign4, local4     or for some clients, and for pods that reach themselves
//	tally-postrouting    count packets of connections after the first one, as they leave
//	tally-input          or reach this node
//	tally4, empty4       find the frontend to count at; skip packets without data
//	reset4               log connections that their server resets, for [Kernel.Run]
//
// Maps and sets:
//
//	frontends4   address . protocol . port → class; a node port has the address 0
//	classes      class → chain
//	endpoints4   frontend . slot → backend; with affinity also frontend . name → backend
//	slots4       frontend . slot → name of the backend, for frontends with affinity
//	affinity4    frontend . client → name of its backend, with a timeout
//	counts4      frontend . kind; each element has a counter
//	hairpin4     address . address of each backend that may be a pod of this node
//	pods4, node-port-addresses4, sources4-…   networks
//
// The name of a backend is a hash of its address. A client whose backend was removed finds no
// endpoint of that name, so its affinity element need not be deleted.
//
// Flows of UDP to a removed backend are deleted from conntrack. Those of TCP and SCTP go on,
// because their ends know when they are closed. Removing the table cuts connections through it: the
// kernel translates addresses only while the rules exist.
//
// It needs Linux 5.9 (refusal in prerouting, counters of elements) with nf_tables, its nat, masq,
// fib, reject, numgen and hash parts, and conntrack. Between pods on one bridge it needs
// br_netfilter, or answers bypass the node; a pod reaches itself only if its port of the bridge is
// in hairpin mode.
package nft
