// Package network gives pods an address on a bridge of the node.
//
// A [Network] owns one bridge, one route, one nftables table and the veth pairs on
// the bridge; it touches nothing else, with one exception: net.ipv4.ip_forward,
// whose old value it notes on the bridge; the last such bridge that goes puts it
// back. Everything goes over netlink; no outside program is run.
//
//	N1  An address belongs to at most one pod, across restarts.
//	N2  Packets for the service network never leave by another route: the bridge
//	    has a route for all of it, whether or not somebody answers there.
//	N3  The bridge keeps its link address as long as it lives, so that neighbours'
//	    caches stay right when pods come and go.
//	N4  [Network.Up] and [Network.Down] may be repeated, and find what was left by
//	    a process that was killed in the middle of either.
//	N5  ip_forward is on as long as any bridge of this kind stands in the network
//	    namespace, and afterwards what it was before the first one.
//	N6  Rules of the network layer see what goes from pod to pod, and a pod to which they
//	    lead its own packets gets these.
//
// Which addresses are taken is not written down twice: whoever keeps the pods says
// so with [Network.Reserve] after a restart.
package network
