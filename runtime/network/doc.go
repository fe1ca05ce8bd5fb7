// Package network attaches pods to a bridge of the node and assigns their addresses.
//
// A [Network] owns one bridge, the veth pairs on it and, for each IP family of the pods, a route and an nftables table.
// It changes nothing else, with one exception: the settings by which the host forwards packets, net.ipv4.ip_forward and
// net.ipv6.conf.all.forwarding. It stores their old values in the alias of the bridge; the last such bridge that is
// removed restores them. Everything is done over netlink, without running other programs.
//
//	N1  An address belongs to at most one pod, across restarts.
//	N2  Packets for the service network never leave by another route: the bridge has a route for all of it, even for
//	    addresses without a service.
//	N3  The bridge keeps its link address as long as it exists, so that neighbours' caches stay right when pods are
//	    added and removed.
//	N4  [Network.Up] and [Network.Down] may be repeated, and find the remains of a process that was killed in the
//	    middle of either.
//	N5  Packets are forwarded as long as any bridge of this kind whose pods have addresses of the family exists in the
//	    network namespace, and afterwards if they were forwarded before the first one. A host that accepts IPv6 router
//	    advertisements keeps accepting them.
//	N6  Rules of the network layer see packets between pods, and a pod to which they direct its own packets receives
//	    these.
//	N7  An address can be used at once, whatever its family, and no pod can become a router of the host or of other
//	    pods by sending router advertisements.
//	N8  A port of the host leads to at most one pod, and to none as soon as that pod is detached, UDP flows included.
//	    Rules of a pod are added and removed in one transaction, and apply only to packets to an address of the host.
//	    They are kept over a restart; rules whose pod is not reserved again before [Network.Settle] are removed.
//	N9  Connections from 127.0.0.1 may leave by the bridge (its route_localnet) while a port of the host at that address
//	    leads to a pod, and go no further. Packets that a pod sends to or from such addresses are always dropped first.
//
// The addresses and ports in use are not stored a second time: after a restart the owner of the pods reserves them
// again with [Network.Reserve].
package network
