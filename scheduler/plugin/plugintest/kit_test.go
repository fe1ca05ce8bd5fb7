package plugintest_test

import (
	"context"
	"testing"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

// apart is required anti-affinity in both directions, by what the Snapshot counts.
type apart struct{}

func (apart) Name() string { return "Apart" }

func (apart) PreFilter(_ context.Context, pod *plugin.Pod, s *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	c := &apartCheck{s: s, pod: pod}
	if pod.Affinity != nil {
		for _, t := range pod.Affinity[plugin.RequiredAntiAffinity] {
			c.own = append(c.own, s.Count(t.Pods, t.Key, plugin.NodeQuery{}))
		}
	}
	c.look()
	return c, plugin.Verdict{}
}

func (apart) Hints() []plugin.Hint {
	return []plugin.Hint{
		{Resource: client.Pods.GroupVersionResource, Action: plugin.Deleted | plugin.PodLabels},
		{Resource: client.Nodes.GroupVersionResource, Action: plugin.Added | plugin.NodeLabels},
	}
}

type apartCheck struct {
	s      *plugin.Snapshot
	pod    *plugin.Pod
	own    []*plugin.Counts
	others []*plugin.Carried
	seen   uint64
}

func (c *apartCheck) look() {
	c.others, c.seen = c.s.Carried(plugin.RequiredAntiAffinity, c.pod), c.s.CarriedGeneration()
}

func (c *apartCheck) Filter(n *plugin.Node) plugin.Verdict {
	if c.seen != c.s.CarriedGeneration() {
		c.look()
	}
	for _, own := range c.own {
		if own.At(n) > 0 {
			return plugin.Refuse("node(s) didn't match pod anti-affinity rules")
		}
	}
	for _, other := range c.others {
		if other.At(n) > 0 {
			return plugin.Refuse("node(s) didn't satisfy existing pods anti-affinity rules")
		}
	}
	return plugin.Verdict{}
}

// crowd keeps a zone to three pods, and counts them itself.
type crowd struct{}

func (crowd) Name() string { return "Crowd" }

func (crowd) PreFilter(_ context.Context, _ *plugin.Pod, s *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	c := crowdCheck{}
	for _, n := range s.Nodes() {
		c[zone(n)] += len(n.Pods)
	}
	return c, plugin.Verdict{}
}

func zone(n *plugin.Node) string { return n.Labels["topology.kubernetes.io/zone"] }

type crowdCheck map[string]int

func (c crowdCheck) PodAdded(_ *plugin.Pod, n *plugin.Node)   { c[zone(n)]++ }
func (c crowdCheck) PodRemoved(_ *plugin.Pod, n *plugin.Node) { c[zone(n)]-- }
func (c crowdCheck) Filter(n *plugin.Node) plugin.Verdict {
	if c[zone(n)] >= 3 {
		return plugin.Refuse("node(s) were in a crowded zone")
	}
	return plugin.Verdict{}
}

func TestTheLawsHoldForPluginsThatLookAround(t *testing.T) {
	t.Run("by the counts of the snapshot", func(t *testing.T) { plugintest.Laws(t, apart{}) })
	t.Run("by counts of its own", func(t *testing.T) { plugintest.Laws(t, crowd{}) })
}

func TestStories(t *testing.T) {
	plugintest.Play(t, "testdata", builtin.Default().With(plugin.Entry{Plugin: apart{}}, plugin.Entry{Plugin: crowd{}}))
}
