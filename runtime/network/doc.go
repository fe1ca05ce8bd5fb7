// Package network gives pods an address on a bridge of the node.
//
// A [Network] owns one bridge, the veth pairs on it and, for each IP family that the
// pods have, a route and an nftables table. It touches nothing else, with one exception:
// the settings by which the host passes packets on, net.ipv4.ip_forward and
// net.ipv6.conf.all.forwarding, whose old values it notes on the bridge; the last such
// bridge that goes puts them back. Everything goes over netlink; no outside program is run.
//
//	N1  An address belongs to at most one pod, across restarts.
//	N2  Packets for the service network never leave by another route: the bridge
//	    has a route for all of it, whether or not somebody answers there.
//	N3  The bridge keeps its link address as long as it lives, so that neighbours'
//	    caches stay right when pods come and go.
//	N4  [Network.Up] and [Network.Down] may be repeated, and find what was left by
//	    a process that was killed in the middle of either.
//	N5  Packets are passed on as long as any bridge of this kind stands in the network
//	    namespace whose pods have addresses of the family, and afterwards if they were
//	    before the first one. Where the host hears routers of IPv6 it goes on to.
//	N6  Rules of the network layer see what goes from pod to pod, and a pod to which they
//	    lead its own packets gets these.
//	N7  An address can be used at once, whatever its family, and no pod can make itself
//	    a router of the host or of other pods by saying that it is one.
//
//	N8  A port of the host leads to at most one pod, and to none as soon as that is detached, flows
//	    of UDP included. Rules of a pod come and go in one transaction, and it is only packets
//	    to an address of the host that they touch. Over a restart they stand; what nobody
//	    has reserved by [Network.Settle] goes.
//	N9  Connections from 127.0.0.1 may leave by the bridge (its route_localnet) while a port of the host
//	    at that address leads to a pod, and go no further. What a pod sends to or from such addresses
//	    is dropped before anybody sees it, always.
//
// Which addresses and ports are taken is not written down twice: whoever keeps the pods says
// so with [Network.Reserve] after a restart.
package network
