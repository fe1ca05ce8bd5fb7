// Package announce makes this node answer for the addresses of load balancers, to clients on its
// links.
//
// The addresses are on a separate link, which exists while there are any. The kernel answers ARP
// for IPv4 addresses on every link, whichever link has them. For IPv6 it answers only on the link
// that has the address, so each IPv6 address is also added to the link in whose network it is.
// Neighbours get an announcement when an address is added.
//
//	announce-A1  An address that this host has already is neither added nor removed.
//	announce-A2  Addresses that an earlier process left are taken over, or removed if they are not
//	             wanted any more.
//	announce-A3  Without addresses nothing is left on the host.
//	announce-A4  This host never chooses such an address as a source address.
package announce
