// Package nft makes the kernel send what is addressed to a Service to the socket
// that serves it, with nftables over netlink.
//
// All of it lives in one table of the family ip with a name of the caller's; no
// other table is read or touched. Two maps hold the redirects, from address and
// port, and for node ports from the port alone, to the socket; a handful of rules
// look them up where packets come in and where this host makes them. So a change
// of a Service is a change of map elements, whatever the number of Services, and
// a connection that is established never sees it.
//
// What is addressed to the service network and has no redirect is refused at
// once (ICMP port unreachable), as a closed port is.
package nft
