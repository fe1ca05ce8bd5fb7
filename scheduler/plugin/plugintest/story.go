package plugintest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sampan-io/sampan/internal/storytest"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// Play plays the stories in dir/*.txt with a set of plug-ins. A story is a list of commands; the output of a command follows
// it in lines that begin with ">". To accept changed output run the test with -update, then review the difference.
//
//	node …            adds or changes a node (see [Node]), drop NAME removes it
//	namespace NAME [LABEL=VALUE…]
//	object YAML       adds an object of another kind, on one line; drop-object YAML removes it
//	pod … on=NODE     adds a pod that runs (see [Pod]), end NAME ends it
//	schedule …        decides about a pod and places it; preempts pods if that helps
//	ask …             prints the verdict on each node and the score of each node that fits, and changes nothing
//	only [NAME…]      goes on with only these plug-ins of the set, or with all of them
func Play(t *testing.T, dir string, set plugin.Set) {
	t.Helper()
	storytest.Play(t, dir, func(t *testing.T) func(string) []string {
		return (&teller{t: t, all: set, set: set}).tell
	})
}

// A teller plays one story.
type teller struct {
	t        *testing.T
	all, set plugin.Set
	cluster  plugin.Cluster
}

func (s *teller) decider() *scheduler.Decider {
	d, err := scheduler.NewDecider(s.set)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *teller) tell(line string) []string {
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil
	}
	command, words := words[0], words[1:]
	switch command {
	case "node":
		s.cluster.SetNode(Node(words...))
	case "drop":
		s.cluster.DropNode(words[0])
	case "namespace":
		labels := map[string]string{}
		for _, w := range words[1:] {
			k, v, _ := strings.Cut(w, "=")
			labels[k] = v
		}
		s.cluster.SetNamespace(words[0], labels)
	case "object":
		obj := Object(strings.Join(words, " "))
		s.cluster.SetObject(resourceOf(obj), obj)
	case "drop-object":
		obj := Object(strings.Join(words, " "))
		s.cluster.DropObject(resourceOf(obj), obj.GetNamespace(), obj.GetName())
	case "pod":
		p := Pod(words...)
		s.cluster.Place(plugin.NewPod(p), p.Spec.NodeName)
	case "end":
		s.cluster.Unplace(Pod(words[0]).UID)
	case "only":
		s.set = s.all
		if len(words) > 0 {
			s.set = plugin.Set{}
			for _, name := range words {
				i := s.all.Find(name)
				if i < 0 {
					s.t.Fatalf("no plug-in %q", name)
				}
				s.set = s.set.With(s.all.Entries[i])
			}
		}
	case "schedule":
		return s.schedule(plugin.NewPod(Pod(words...)))
	case "ask":
		return s.ask(plugin.NewPod(Pod(words...)))
	default:
		s.t.Fatalf("no command %q", command)
	}
	return nil
}

func (s *teller) schedule(pod *plugin.Pod) []string {
	d := s.decider()
	q := scheduler.Question{Pod: pod}
	got := d.Decide(s.t.Context(), &s.cluster, q)
	if got.Node != "" {
		s.cluster.Place(pod, got.Node)
		return []string{got.String()}
	}
	d.MakeRoom(s.t.Context(), q, &got)
	out := []string{got.String()}
	if room := got.Room; room.Node != "" {
		var said strings.Builder
		said.WriteString("nominated to " + room.Node)
		for i, v := range room.Victims {
			if i == 0 {
				said.WriteString(", preempting")
			}
			said.WriteString(" " + v.Name)
			s.cluster.Unplace(v.UID)
		}
		s.cluster.Nominate(pod, room.Node)
		out = append(out, said.String())
	}
	return out
}

func (s *teller) ask(pod *plugin.Pod) []string {
	e := s.decider().Explain(s.t.Context(), &s.cluster, pod)
	if e.Err != nil {
		return []string{e.Err.Error()}
	}
	var out []string
	for _, n := range e.ByNode {
		var line strings.Builder
		line.WriteString(n.Node)
		if n.Verdict.OK() {
			line.WriteString(": fits")
			for _, score := range n.Scores {
				fmt.Fprintf(&line, " %s=%d", score.Plugin, score.Score)
				if score.Weight != 1 {
					fmt.Fprintf(&line, "×%d", score.Weight)
				}
			}
		} else {
			line.WriteString(": " + n.Verdict.String() + " (" + n.Plugin + ")")
			for _, l := range n.Lacks {
				fmt.Fprintf(&line, "; %s: asked %d, free %d of %d", l.What, l.Asked, l.Free, l.Total)
			}
		}
		out = append(out, line.String())
	}
	return out
}
