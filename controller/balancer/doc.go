// Package balancer is the controller that gives Services of type LoadBalancer an
// address of a pool, where no cloud does: those without a loadBalancerClass, and those
// of the class sampan.dev/pool.
//
// A [Pool] is prefixes and ranges of addresses. plan is a pure function of a service, the
// pool and who has which address; the loop writes what it says. That packets to an address
// arrive at a node is not its business: the service proxy announces them.
//
//	B1  What is given stands in the services' status and nowhere else, so it survives
//	    every restart. An address is one service's; of two that claim it the older has it.
//	B2  A service keeps its address for as long as it is a load balancer and the pool has
//	    the address, whatever else changes; but spec.loadBalancerIP is heeded as soon as
//	    what it asks for is free.
//	B3  A service with an address has the finalizer of load balancers, as with any cloud,
//	    and an annotation that says that it is ours. Both come with the address in
//	    one write and go when it goes. What others have given is left alone.
//	B4  A service that gets none has an event that says why, once for each reason, and
//	    gets one as soon as there is one.
package balancer
