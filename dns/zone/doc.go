// Package zone maps the names of a cluster to resource records: it is built from Services,
// EndpointSlices and Namespaces, and follows the Kubernetes DNS specification 1.1.
//
// It is the pure core of package dns: no sockets, no clients, no time. A [Zone] is updated with one
// Service at a time, at a cost that depends on this Service only. [Zone.Answer] is a function of a
// question and the zone's contents.
//
//	web.shop.svc.cluster.local             A, AAAA  the cluster IPs
//	                                       A, AAAA  headless: each ready endpoint
//	                                       CNAME    the external name
//	_http._tcp.web.shop.svc.cluster.local  SRV      the port of that name; headless: one for each endpoint
//	db-0.db.shop.svc.cluster.local         A, AAAA  headless: the endpoint with that hostname or,
//	                                                without one, with that address, in dashes;
//	                                                not headless: an endpoint with that hostname
//	1-2-3-4.shop.pod.cluster.local         A, AAAA  the address in the name
//	10.0.96.10.in-addr.arpa                PTR      the name of a cluster IP or headless endpoint;
//	                                                no other name in the cluster's networks exists
//	dns-version.cluster.local              TXT      1.1.0
//
// Invariants:
//
//	zone-Z1  If a name exists but has no records of a type, the answer is empty with the SOA. If
//	         it does not exist, the answer is NXDOMAIN with the SOA. A name exists if it or a name
//	         below it has records. A headless Service without a ready endpoint does not exist
//	         (specification, 2.4.1).
//	zone-Z2  Names are compared without regard to case; answers have the case of the question.
//	zone-Z3  Records are valid whatever a Service or an EndpointSlice has: names that are not DNS
//	         labels, ports out of range, and addresses that are not unicast addresses of another
//	         host (loopback, link-local, unspecified, multicast) are left out.
//
// Not supported: wildcards, the records of kube-dns before the specification, and names for the
// real addresses of pods.
package zone
