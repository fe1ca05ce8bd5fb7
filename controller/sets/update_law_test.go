package sets

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/controller/rolling"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/storytest"
)

// TestAnUpdateOfDaemonsKeepsItsLimits takes DaemonSets through random templates, with pods
// that come up, stop and go when they like, and checks that no step of ours takes more
// pods that serve than may be missing, or makes more of them than may be ahead.
func TestAnUpdateOfDaemonsKeepsItsLimits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newDaemonStory(storytest.NewStory(t))
		for i := range rapid.IntRange(1, 8).Draw(rt, "nodes") {
			s.setNode(fmt.Sprint("n", i), nil)
		}
		s.setSet(strings.Fields(rapid.SampledFrom([]string{
			"unavailable=1", "unavailable=3", "unavailable=50%", "unavailable=0 surge=1", "unavailable=0 surge=30%",
		}).Draw(rt, "strategy")))
		without := func() (nodes, twice int32) {
			serving, all := map[string]int{}, map[string]int{}
			for _, p := range s.pods {
				if p.DeletionTimestamp == nil {
					all[meantFor(p)]++
					if podstate.Ready(p) {
						serving[meantFor(p)]++
					}
				}
			}
			for _, n := range s.nodes {
				if serving[n.Name] == 0 {
					nodes++
				}
				if all[n.Name] > 1 {
					twice++
				}
			}
			return nodes, twice
		}
		step := func() {
			before, ahead := without()
			s.Quietly(func() { s.plan() })
			after, now := without()
			surge, unavailable, _ := s.view().margins(int32(len(s.nodes)))
			if after > max(before, unavailable) {
				rt.Fatalf("%d nodes without, want at most %d: %s", after, max(before, unavailable), s.all())
			}
			if now > max(ahead, surge)+before {
				rt.Fatalf("%d nodes with two, want at most %d: %s", now, max(ahead, surge)+before, s.all())
			}
		}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			if rapid.IntRange(0, 6).Draw(rt, "event") == 0 {
				s.setSet([]string{"image=" + rapid.SampledFrom([]string{"v1", "v2", "v3"}).Draw(rt, "image")})
			}
			stir(rt, s.pods, s.become)
			step()
		}
		for range 100 {
			s.settle()
			step()
			if st := s.set.Status; st.UpdatedNumberScheduled == st.DesiredNumberScheduled && st.NumberAvailable == st.DesiredNumberScheduled && len(s.pods) == len(s.nodes) {
				return
			}
		}
		rt.Fatalf("it does not end: %s", s.all())
	})
}

// TestAnUpdateOfAStatefulSetKeepsItsLimits does so with StatefulSets.
func TestAnUpdateOfAStatefulSetKeepsItsLimits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStatefulStory(storytest.NewStory(t))
		s.setSet(strings.Fields(rapid.SampledFrom([]string{
			"replicas=1", "replicas=4", "replicas=4 management=Parallel", "replicas=5 maxUnavailable=2",
			"replicas=6 management=Parallel maxUnavailable=50%", "replicas=4 partition=2",
		}).Draw(rt, "set")))
		serving := func() (n int32) {
			for _, p := range s.pods {
				if p.DeletionTimestamp == nil && podstate.Ready(p) {
					n++
				}
			}
			return n
		}
		step := func() {
			before := serving()
			s.Quietly(func() { s.plan() })
			want := *s.set.Spec.Replicas
			room := int32(1)
			if r := s.set.Spec.UpdateStrategy.RollingUpdate; r.MaxUnavailable != nil {
				room = rolling.Share(r.MaxUnavailable, want, true)
			}
			if after := serving(); after < min(before, want-room) {
				rt.Fatalf("%d pods serve, want at least %d: %s", after, min(before, want-room), s.all())
			}
			seen := map[string]bool{}
			for _, p := range s.pods {
				if seen[p.Name] {
					rt.Fatalf("%s is there twice: %s", p.Name, s.all())
				}
				seen[p.Name] = true
			}
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			if rapid.IntRange(0, 6).Draw(rt, "event") == 0 {
				s.setSet([]string{"image=" + rapid.SampledFrom([]string{"v1", "v2", "v3"}).Draw(rt, "image")})
			}
			stir(rt, s.pods, func(state, name string) { s.become(state, name) })
			step()
		}
		s.setSet([]string{"partition=0"})
		for range 200 {
			s.settle()
			step()
			if st := s.set.Status; st.UpdatedReplicas == *s.set.Spec.Replicas && st.AvailableReplicas == *s.set.Spec.Replicas && st.CurrentRevision == st.UpdateRevision {
				return
			}
		}
		rt.Fatalf("it does not end: %s", s.all())
	})
}

// stir changes the states of random pods.
func stir(rt *rapid.T, pods []*corev1.Pod, become func(state, name string)) {
	for _, p := range append([]*corev1.Pod(nil), pods...) {
		switch n := rapid.IntRange(0, 9).Draw(rt, p.Name); {
		case p.DeletionTimestamp != nil && n < 5:
			become("gone", p.Name)
		case p.DeletionTimestamp != nil:
		case n < 5 && !podstate.Ready(p) && !podstate.Finished(p):
			become("ready", p.Name)
		case n == 8:
			become("stop", p.Name)
		case n == 9:
			become("fail", p.Name)
		}
	}
}
