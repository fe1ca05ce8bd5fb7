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
	fit      bool // it is Ready, and not about to go
	excluded bool // it is labelled node.kubernetes.io/exclude-from-external-load-balancers
}

// answers returns the node that answers for an address, or "" if none is to. If only is not
// nil it is one of these: those with endpoints, of a Service with an externalTrafficPolicy of Local.
// Nodes that are not fit are better than none.
//
// Each node finds the same answer without asking another: it is rendezvous hashing (Thaler and
// Ravishankar, 1996). When a node goes, its addresses are shared out, and no other one moves; when one
// comes, it takes its share and nothing else moves.
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

// weight is how much an address wants to be at a node.
func weight(a netip.Addr, node string) uint64 {
	sum := sha256.Sum256(append(a.AppendTo(nil), " "+node...))
	return binary.BigEndian.Uint64(sum[:])
}
