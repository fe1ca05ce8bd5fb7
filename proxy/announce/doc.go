// Package announce makes this node answer for addresses of load balancers, for clients
// on the links that it has.
//
// The addresses stand on a link of their own, which is there while there are any.
// The kernel answers for IPv4 addresses on every link, wherever they stand; for IPv6 it
// does so only on the link that has the address, so each of these stands a second time
// on the link in whose network it is. Neighbours are told when an address comes.
//
//	A1  An address that this host has otherwise is neither added nor removed.
//	A2  What an earlier process left is taken over, and what is not wanted any more
//	    removed.
//	A3  Without addresses nothing is left.
//	A4  This host speaks from none of them by itself.
package announce
