// Package proxy makes Services reachable: every node proxies every Service,
// whether it has a pod of it or not.
//
// [NewPlan] says, as a pure function of a Service, its EndpointSlices and the node
// ([Here]), which address and port ([Frontend]) leads to which endpoints, for whom, and
// what is relayed. A [Proxy] is the loop around it: it follows Services, EndpointSlices
// and its node, plans anew only the Services that changed, and hands differences to two
// others. A [Kernel] (package proxy/nft) makes the kernel send connections to backends;
// a [Forwarder] (package proxy/userspace) relays those of Services that ask for it, and
// is the one backend of these as far as the kernel knows.
//
//	P1  Backends are endpoints that are ready, or where there are none those that
//	    serve while they terminate (KEP-1669): of all nodes, of this one, or of
//	    those that hints choose.
//	P2  No rule leads from or to an address of loopback, link-local, multicast,
//	    broadcast, an unspecified or 4-in-6 one, whoever wrote it; nor, but from cluster
//	    IPs, from or to one in the service network. Node ports are at 127.0.0.1 and ::1
//	    if [Here] says so, relayed.
//	P3  With a traffic policy of Local connections go to this node's endpoints or
//	    nowhere; those from inside to an address for clients outside go to all.
//	P4  A frontend is the oldest Service's of those that want it; when that goes, the next one's.
//	P5  A batch of changes is one change of the kernel. After a change that was refused
//	    everything is made anew, again and again until it is done.
//	    So it is if somebody else removes the rules.
//	P6  Sockets are open before rules lead there, and closed after. Connections outlive
//	    both.
//	P7  That something is applied is told (package proxy/applied) when kernel and forwarder
//	    have it, and connections that were on their way before have arrived.
//	P8  What a Service says and can't be heeded is an event of it and a line in the log,
//	    once, and as if it had not been said.
//	P9  Of the nodes whose proxies have an [Announcer], and say so in their Leases, one answers for an
//	    address, as soon as all know the same of each other. When one goes only its addresses move.
//	P10 Nothing is done while nothing changes.
package proxy
