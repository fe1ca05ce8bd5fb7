// Package balancer is the controller that gives Services of type LoadBalancer an address from a pool, for clusters
// without a cloud provider. It serves Services without a loadBalancerClass and Services of the class sampan.dev/pool.
//
// A [Pool] is a list of prefixes and ranges of addresses. plan is a pure function of a Service, the pool and the owners of
// all addresses; the loop writes its result. The controller does not route packets to an address: the service proxy
// announces it.
//
//	balancer-B1  Assigned addresses are stored in the status of their Services and nowhere else, so they survive a
//	             restart. An address has one owner; if two Services claim it, the older one has it.
//	balancer-B2  A Service keeps its address while it is a load balancer and the pool has the address, even if other
//	             fields change. But spec.loadBalancerIP takes effect as soon as the address that it names is free.
//	balancer-B3  A Service with an address has the finalizer of load balancers, as with any cloud provider, and an
//	             annotation that marks it as served by this controller. Both are written and removed together with the
//	             address. Addresses from other controllers are left as they are.
//	balancer-B4  A Service that gets no address has an event with the reason, once for each reason, and gets an address
//	             as soon as there is one.
package balancer
