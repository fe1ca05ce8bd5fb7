package builtin

import (
	"context"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// ImageLocality prefers nodes that have the images of the pod's containers and image volumes already: large ones above
// small ones, and those that many nodes have above those that one node has, which would otherwise draw
// all pods to it.
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
	present := false
	eachImage(pod, func(name string) { present = present || s.NodesWithImage(name) > 0 })
	if !present {
		return nil, plugin.Skip
	}
	scorer := &imageScorer{nodes: int64(len(s.Nodes()))}
	eachImage(pod, func(name string) {
		scorer.most += mostImage
		if nodes := s.NodesWithImage(name); nodes > 0 {
			scorer.images = append(scorer.images, sharedImage{name, int64(nodes)})
		}
	})
	return scorer, plugin.Verdict{}
}

// eachImage calls f with the image of each container and image volume, under the name that nodes use.
func eachImage(pod *plugin.Pod, f func(name string)) {
	for i := range pod.Spec.InitContainers {
		f(plugin.ImageName(pod.Spec.InitContainers[i].Image))
	}
	for i := range pod.Spec.Containers {
		f(plugin.ImageName(pod.Spec.Containers[i].Image))
	}
	for i := range pod.Spec.Volumes {
		if v := pod.Spec.Volumes[i].Image; v != nil {
			f(plugin.ImageName(v.Reference))
		}
	}
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
