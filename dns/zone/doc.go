// Package zone says what the names of a cluster mean: Services, EndpointSlices and
// Namespaces in, resource records out, by the Kubernetes DNS specification 1.1.
//
// It is the pure core of package dns: no sockets, no clients, no time. A [Zone] is
// told of one Service at a time, and what that costs depends on this Service alone.
// [Zone.Answer] is a function of a question and what the zone was told.
//
//	web.shop.svc.cluster.local             A, AAAA  the cluster IPs
//	                                       A, AAAA  headless: each ready endpoint
//	                                       CNAME    the external name
//	_http._tcp.web.shop.svc.cluster.local  SRV      the port of that name; headless: one for each endpoint
//	db-0.db.shop.svc.cluster.local         A, AAAA  headless: the endpoint with that hostname, or,
//	                                                of one that has none, its address with dashes;
//	                                                not headless: an endpoint with that hostname
//	1-2-3-4.shop.pod.cluster.local         A, AAAA  the address that the name says
//	10.0.96.10.in-addr.arpa                PTR      the way back, for cluster IPs and headless endpoints;
//	                                                whatever else is of the cluster's networks is nobody
//	dns-version.cluster.local              TXT      1.1.0
//
// Invariants:
//
//	Z1  A name that exists has no records of a type: success, nothing, and the SOA. A name
//	    that does not exist: NXDOMAIN and the SOA. A name exists if it or a name below it
//	    has records. A headless Service without a ready endpoint does not exist
//	    (specification, 2.4.1).
//	Z2  Names are compared without regard to case and answered as they were asked.
//	Z3  Whatever a Service or an EndpointSlice holds, records are valid: names that are no
//	    DNS labels, ports out of range, and addresses that are no unicast address of another
//	    host (loopback, link-local, unspecified, multicast) are left out.
//
// It does not fill gaps: wildcards, the records of kube-dns before the specification
// and pods' real addresses are not there.
package zone
