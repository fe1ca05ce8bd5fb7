package plugin_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

// content returns the state of a node that Filters and Scores can see, and the pods that are nominated to it.
func content(s *plugin.Snapshot, n *plugin.Node) string {
	var pods, promised []string
	for _, p := range n.Pods {
		pods = append(pods, p.Name)
	}
	for _, p := range s.Nominated(n) {
		promised = append(promised, p.Name)
	}
	slices.Sort(pods)
	slices.Sort(promised)
	ports := slices.Clone(n.Ports)
	slices.SortFunc(ports, func(a, b plugin.HostPort) int { return int(a.Port - b.Port) })
	return fmt.Sprintln(n.Allocatable, n.Labels, pods, promised, n.Requested, n.Presumed, ports)
}

// TestANodeOfOneGenerationIsTheSame lets clusters and what-ifs go their way. Answers are kept by a node's generation,
// so a node that has had it before must be what it was then; and the end of a what-if must leave no trace, neither
// in what nodes have nor in their generations.
func TestANodeOfOneGenerationIsTheSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &plugin.Cluster{}
		s := &c.Snapshot
		names := []string{"a", "b", "c"}
		for _, name := range names {
			c.SetNode(plugintest.Node(name, "cpu=4"))
		}
		was := map[string]string{} // by node and generation
		look := func(what string) {
			for _, n := range s.Nodes() {
				key, now := fmt.Sprint(n.Name, n.Generation()), content(s, n)
				if old, seen := was[key]; seen && old != now {
					rt.Fatalf("after %s, node %s of generation %d is\n%sand was\n%s", what, n.Name, n.Generation(), now, old)
				}
				was[key] = now
			}
		}
		all := func() (out []string) {
			for _, n := range s.Nodes() {
				out = append(out, fmt.Sprintln(n.Name, n.Generation(), content(s, n)))
			}
			return out
		}
		pods := map[string]*plugin.Pod{}
		pod := func() *plugin.Pod {
			name := fmt.Sprint("p", rapid.IntRange(0, 4).Draw(rt, "pod"))
			if pods[name] == nil {
				pods[name] = plugin.NewPod(plugintest.Pod(name, "cpu=1", "port=8"+name[1:]))
			}
			return pods[name]
		}
		node := func() string { return rapid.SampledFrom(names).Draw(rt, "node") }
		look("the beginning")
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			switch what := rapid.SampledFrom([]string{"place", "unplace", "nominate", "set", "drop", "what if", "what if", "what if"}).Draw(rt, "step"); what {
			case "place":
				c.Place(pod(), node())
			case "unplace":
				c.Unplace(pod().UID)
			case "nominate":
				c.Nominate(pod(), rapid.SampledFrom(append(names, "")).Draw(rt, "promised on"))
			case "set":
				c.SetNode(plugintest.Node(node(), fmt.Sprintf("cpu=%d", rapid.IntRange(4, 5).Draw(rt, "cpu"))))
			case "drop":
				c.DropNode(node())
			case "what if":
				before := all()
				try := c.WhatIf()
				on := map[*plugin.Pod]string{} // added
				gone := map[*plugin.Pod]bool{} // removed
				for range rapid.IntRange(1, 8).Draw(rt, "steps of it") {
					p := pod()
					_, at, placed := s.Placed(p.UID)
					switch {
					case placed && gone[p]:
						try.Add(p, at)
						delete(gone, p)
					case placed:
						try.Remove(p, at)
						gone[p] = true
					case on[p] != "":
						try.Remove(p, on[p])
						delete(on, p)
					default:
						on[p] = node()
						try.Add(p, on[p])
					}
					look("a step of a what-if")
				}
				try.Undo()
				if after := all(); !slices.Equal(before, after) {
					rt.Fatalf("before the what-if\n%safter it\n%s", before, after)
				}
				try.Undo() // of nothing
				if after := all(); !slices.Equal(before, after) {
					rt.Fatalf("before the what-if\n%safter its second end\n%s", before, after)
				}
			}
			look("a change")
		}
	})
}
