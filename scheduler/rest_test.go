package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

// TestNoPodStarves changes clusters with rules of all kinds for a while and then lets them come to rest. Then every pod for
// which the model allows a node must have one. The test finds hints that are missing.
func TestNoPodStarves(t *testing.T) {
	lives := 40
	if n, err := strconv.Atoi(os.Getenv(worldsVariable)); err == nil {
		lives = n / 100
	}
	for seed := range lives {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { liveAndRest(t, seed) })
	}
}

func liveAndRest(t *testing.T, seed int) {
	r := rand.New(rand.NewPCG(uint64(seed), 3))
	w := plugintest.Worlds().Example(seed)
	var objs []client.Object
	for name, labels := range w.Namespaces {
		objs = append(objs, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	for _, n := range w.Nodes {
		objs = append(objs, n)
	}
	schedulingWith(t, scheduler.Options{Plugins: builtin.Default()}, func(t *testing.T, s *clienttest.Server) {
		for i := range 60 {
			pods := clienttest.All(s, client.Pods, "")
			switch r.IntN(10) {
			case 0:
				s.Set(t, plugintest.Nodes(fmt.Sprint("n", r.IntN(7))).Example(1000*seed+i))
			case 1:
				if nodes := clienttest.All(s, client.Nodes, ""); len(nodes) > 1 && r.IntN(3) == 0 {
					s.Remove(t, nodes[r.IntN(len(nodes))])
				}
			case 2, 3:
				if len(pods) > 0 {
					s.Remove(t, pods[r.IntN(len(pods))])
				}
			case 4:
				if len(pods) > 0 {
					p := pods[r.IntN(len(pods))].DeepCopy()
					p.Labels = map[string]string{"app": []string{"web", "db"}[r.IntN(2)]}
					s.Set(t, p)
				}
			case 5:
				s.Set(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other", Labels: map[string]string{"team": []string{"a", "b"}[r.IntN(2)]}}})
			default:
				s.Set(t, plugintest.Pods(fmt.Sprint("p", i)).Example(1000*seed+i))
			}
			if r.IntN(3) > 0 {
				synctest.Wait()
			}
			if r.IntN(4) == 0 {
				time.Sleep(time.Duration(r.IntN(20)) * time.Second)
			}
		}
		for settle(t, s) {
		}
		atRest := &scene{spaces: map[string]map[string]string{}, nodes: clienttest.All(s, client.Nodes, "")}
		for _, n := range clienttest.All(s, client.Namespaces, "") {
			atRest.spaces[n.Name] = n.Labels
		}
		var waiting []*corev1.Pod
		for _, p := range clienttest.All(s, client.Pods, "") {
			if p.Spec.NodeName == "" {
				waiting = append(waiting, p)
			} else {
				atRest.pods = append(atRest.pods, p)
			}
		}
		for _, p := range waiting {
			for _, n := range atRest.nodes {
				if atRest.illegal(p, n) == "" {
					t.Errorf("pod %s/%s waits, and node %s could take it; it was told %q, and promised %q", p.Namespace, p.Name, n.Name, events(t, s, p.Name), p.Status.NominatedNodeName)
				}
			}
		}
	}, objs...)
}

// TestReleasedNominationWakesPods has a pod wait only because capacity is nominated for others. When these are deleted, it is
// tried again.
func TestReleasedNominationWakesPods(t *testing.T) {
	scheduling(t, func(t *testing.T, s *clienttest.Server) {
		old := clienttest.Find(s, client.Pods, "default", "old").DeepCopy()
		old.Finalizers = []string{"example.org/slow"} // it takes long to end
		s.Set(t, old)
		s.Set(t, pod("high", "cpu=6", "priority=10"))
		synctest.Wait()
		if at := clienttest.Find(s, client.Pods, "default", "high").Status.NominatedNodeName; at != "a" {
			t.Fatalf("high is promised room on %q, want a", at)
		}
		s.Set(t, pod("mid", "cpu=4", "priority=5"))
		expect(t, s, "high: mid: old:a")
		s.Remove(t, pod("high"))
		time.Sleep(time.Minute)
		expect(t, s, "mid:a old:a")
	}, node("a", "cpu=8"), pod("old", "cpu=4", "on=a"))
}
