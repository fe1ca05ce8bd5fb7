package simulated

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/simulation"
)

// Links cuts and restores the links of nodes as the annotation
// sampan.dev/simulated-failure on them says.
type Links struct {
	links map[string]*Link // by node; not changed while the caches run
}

// NewLinks returns links to no nodes, which follow the nodes of the caches while those
// run.
func NewLinks(caches *cache.Shared) *Links {
	l := &Links{links: map[string]*Link{}}
	cache.Of[*corev1.Node](caches, client.Nodes, nil).Subscribe(func(_, node *corev1.Node) {
		if node != nil && l.links[node.Name] != nil {
			l.links[node.Name].Set(simulation.IsCut(node))
		}
	})
	return l
}

// To returns the link of a node through a client that acts as it. It must not be
// called while the caches run.
func (l *Links) To(node string, as client.Interface) *Link {
	l.links[node] = NewLink(as)
	return l.links[node]
}
