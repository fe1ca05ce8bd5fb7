package simulated

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/node/simulation"
)

// Links cuts and restores the links of nodes as the annotation
// sampan.dev/simulated-failure on them says.
type Links struct {
	nodes *cache.Cache[*corev1.Node]
	links map[string]*Link // by node; never changed after Run
}

// NewLinks returns links to no nodes. The client follows all nodes.
func NewLinks(c client.Interface, log *slog.Logger) *Links {
	l := &Links{nodes: cache.New(c, client.Nodes, cache.Options[*corev1.Node]{Log: log}), links: map[string]*Link{}}
	l.nodes.Subscribe(func(_, node *corev1.Node) {
		if node != nil && l.links[node.Name] != nil {
			l.links[node.Name].Set(simulation.IsCut(node))
		}
	})
	return l
}

// To returns the link of a node through a client that acts as it. It must not be
// called after Run.
func (l *Links) To(node string, as client.Interface) *Link {
	l.links[node] = NewLink(as)
	return l.links[node]
}

// Ready is closed when the links are as the nodes have it.
func (l *Links) Ready() <-chan struct{} { return l.nodes.Ready() }

// Run works until ctx is over and then returns nil.
func (l *Links) Run(ctx context.Context) error { return l.nodes.Run(ctx) }
