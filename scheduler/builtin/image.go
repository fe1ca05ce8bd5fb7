package builtin

import (
	"context"
	"slices"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// ImageLocality prefers nodes that already have the images of the pod's containers and image volumes. Large images count
// more than small ones. An image that only few nodes have counts less, because it would otherwise attract all pods to
// these nodes.
type ImageLocality struct{}

// Images below leastImage bytes make no difference, and beyond mostImage bytes per image nothing is gained; the
// numbers are upstream's.
const (
	leastImage = 23 << 20
	mostImage  = 1000 << 20
)

// Name implements [plugin.Plugin].
func (ImageLocality) Name() string { return "ImageLocality" }

// PreScore implements [plugin.PreScore].
func (ImageLocality) PreScore(_ context.Context, pod *plugin.Pod, s *plugin.Snapshot, _ []*plugin.Node) (plugin.Scorer, plugin.Verdict) {
	if !slices.ContainsFunc(pod.Images, func(name string) bool { return s.NodesWithImage(name) > 0 }) {
		return nil, plugin.Skip
	}
	scorer := &imageScorer{nodes: int64(len(s.Nodes())), most: mostImage * int64(len(pod.Images))}
	for _, name := range pod.Images {
		if nodes := s.NodesWithImage(name); nodes > 0 {
			scorer.images = append(scorer.images, sharedImage{name, int64(nodes)})
		}
	}
	return scorer, plugin.Verdict{}
}

// sharedImage is an image with the number of nodes that have it, which is at least 1.
type sharedImage struct {
	name  string
	nodes int64
}

type imageScorer struct {
	images []sharedImage
	nodes  int64 // in the cluster
	most   int64 // bytes
}

// Score implements [plugin.Scorer].
func (s *imageScorer) Score(n *plugin.Node) int64 {
	var sum int64
	for _, i := range s.images {
		if size, ok := n.Images[i.name]; ok {
			// In floating point: sizes are as a node reports them, and may be anything.
			sum += min(int64(float64(size)*float64(i.nodes)/float64(s.nodes)), s.most)
		}
	}
	return plugin.MaxScore * (min(max(sum, leastImage), s.most) - leastImage) / (s.most - leastImage)
}
