package proxy

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
)

// A candidate is a node whose proxy can answer for addresses of load balancers.
type candidate struct {
	node     string
	fit      bool // it is Ready, and not about to be removed
	excluded bool // it is labelled node.kubernetes.io/exclude-from-external-load-balancers
}

// answers returns the node that answers for an address, or "". If only is not nil the node is one
// of these: the nodes with endpoints of a Service whose externalTrafficPolicy is Local. A node that
// is not fit is chosen only if no other is there.
//
// Each node computes the same answer without communication, by rendezvous hashing (Thaler and
// Ravishankar, 1996). If a node goes away, its addresses are shared out among the others, and no
// other address moves; a new node takes over its share, and nothing else moves.
func answers(a netip.Addr, all []candidate, only []string) string {
	var best candidate
	var most uint64
	for _, c := range all {
		if c.excluded || only != nil && !slices.Contains(only, c.node) || best.fit && !c.fit {
			continue
		}
		w := weight(a, c.node)
		if best.node == "" || c.fit && !best.fit || w > most || w == most && c.node < best.node {
			best, most = c, w
		}
	}
	return best.node
}

// weight is the rank of a node for an address; the node with the highest answers for it.
func weight(a netip.Addr, node string) uint64 {
	sum := sha256.Sum256(append(a.AppendTo(nil), " "+node...))
	return binary.BigEndian.Uint64(sum[:])
}
