package workload

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/internal/storytest"
)

// A fleet is the pods that the sets of a story really have, which statuses show with a delay. True means available.
type fleet map[string][]bool

// obey gives each set its wanted number of pods. Available pods are deleted last.
func (f fleet) obey(sets []*appsv1.ReplicaSet) {
	for _, set := range sets {
		pods, n := f[set.Name], int(sizeOf(set))
		slices.SortFunc(pods, func(a, b bool) int {
			switch {
			case a == b:
				return 0
			case a:
				return -1
			}
			return 1
		})
		for len(pods) < n {
			pods = append(pods, false)
		}
		f[set.Name] = pods[:n]
	}
}

func (f fleet) serving(name string) (n int32) {
	for _, serves := range f[name] {
		if serves {
			n++
		}
	}
	return n
}

func (f fleet) total() (all, serving int32) {
	for name := range f {
		all += int32(len(f[name]))
		serving += f.serving(name)
	}
	return all, serving
}

func (f fleet) report(set *appsv1.ReplicaSet) {
	n := f.serving(set.Name)
	set.Status.Replicas, set.Status.ReadyReplicas, set.Status.AvailableReplicas = int32(len(f[set.Name])), n, n
	set.Status.ObservedGeneration = set.Generation
}

// TestARolloutKeepsItsLimits takes rollouts through random changes of template and size,
// with pods that begin to serve when they like and statuses that are behind, and checks
// that no step of ours takes the Deployment below its least or above its most, and that
// it ends once all pods serve.
func TestARolloutKeepsItsLimits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newRolloutStory(storytest.NewStory(t))
		s.setDeployment([]string{"replicas=" + rapid.SampledFrom([]string{"1", "2", "5", "10", "23"}).Draw(rt, "replicas"), "history=2"})
		shares := []string{"0", "1", "3", "10%", "25%", "100%"}
		s.d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{
			MaxSurge:       new(intstr.Parse(rapid.SampledFrom(shares).Draw(rt, "surge"))),
			MaxUnavailable: new(intstr.Parse(rapid.SampledFrom(shares).Draw(rt, "unavailable"))),
		}
		f := fleet{}
		step := func() {
			before, sizesBefore := int32(0), int32(0) // as far as statuses show
			for _, set := range s.sets {
				sizesBefore += sizeOf(set)
				before += min(set.Status.AvailableReplicas, sizeOf(set), f.serving(set.Name))
			}
			scaled := s.look().scaled()
			s.plan()
			f.obey(s.sets)
			all, after := f.total()
			limits := s.look().limits()
			if most := max(limits.Max, sizesBefore); all > most {
				rt.Fatalf("%d pods, want at most %d: %s", all, most, s.sizes())
			}
			if least := min(before, limits.Min); after < least && !scaled {
				rt.Fatalf("%d pods serve, want at least %d: %s", after, least, s.sizes())
			}
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "event") {
			case 0:
				s.setDeployment([]string{"image=" + rapid.SampledFrom([]string{"v1", "v2", "v3"}).Draw(rt, "image")})
			case 1:
				s.setDeployment([]string{"replicas=" + rapid.SampledFrom([]string{"1", "4", "12"}).Draw(rt, "size")})
			default:
				for _, set := range s.sets {
					for i := range f[set.Name] {
						f[set.Name][i] = f[set.Name][i] || rapid.Bool().Draw(rt, "serves")
					}
				}
			}
			for i, set := range s.sets {
				if rapid.Bool().Draw(rt, "observed") {
					s.sets[i] = set.DeepCopy()
					f.report(s.sets[i])
				}
			}
			step()
		}
		for range 200 {
			for name := range f {
				for i := range f[name] {
					f[name][i] = true
				}
			}
			for i, set := range s.sets {
				s.sets[i] = set.DeepCopy()
				f.report(s.sets[i])
			}
			step()
			if r := s.look(); r.current != nil && r.current.size == r.want() && total(r.old) == 0 {
				return
			}
		}
		rt.Fatalf("it does not end: %s", s.sizes())
	})
}
