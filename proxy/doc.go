// Package proxy makes Services reachable: every node runs a proxy for all Services, whether it has
// pods of them or not.
//
// [NewPlan] is a pure function of a Service, its EndpointSlices and the node ([Here]). It returns,
// for each [Frontend] (an address and port of the Service), which endpoints its connections go to,
// which clients may connect, and whether connections are relayed. A [Proxy] is the loop around it:
// it watches Services, EndpointSlices and its node, plans the Services that changed, and passes the
// differences on. A [Kernel] (package proxy/nft) has the kernel send connections to backends. A
// [Forwarder] (package proxy/userspace) relays the connections of Services that ask for that; for
// the kernel its socket is then the only backend.
//
//	proxy-P1  Backends are the ready endpoints or, if none is ready, endpoints that still serve
//	          while they terminate (KEP-1669). The traffic policy and topology hints decide
//	          whether they are taken from all nodes, from this one, or by hints.
//	proxy-P2  No rule leads from or to a loopback, link-local, multicast, broadcast,
//	          unspecified or 4-in-6 address, whichever object has it. Only cluster IPs may be in
//	          the service network, as frontends. Node ports are also at 127.0.0.1 and ::1,
//	          relayed, if [Here] has Loopback set.
//	proxy-P3  With a traffic policy of Local, connections go to endpoints of this node or are
//	          dropped; those from inside the cluster to an external address go to all endpoints.
//	proxy-P4  If several Services want one frontend, the oldest has it; when that is deleted,
//	          the next oldest.
//	proxy-P5  A batch of changes is one change of the kernel. After a refused change, or when
//	          another program removes the rules, all rules are replaced, with retries until
//	          that succeeds.
//	proxy-P6  Sockets are open before rules lead to them, and closed after. Connections outlive
//	          both.
//	proxy-P7  A revision is reported as applied (package proxy/applied) when kernel and forwarder
//	          have it, and connections that were being made before have arrived.
//	proxy-P8  An invalid setting of a Service is ignored, and reported once as an event and in
//	          the log.
//	proxy-P9  Of the nodes whose proxies have an [Announcer], which their Leases say, one answers
//	          for each address as soon as all have seen the same nodes. If that node goes away,
//	          only its addresses move.
//	proxy-P10 While nothing changes the proxy does nothing.
package proxy
