package shutdown

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/sampan-io/sampan/internal/sorting"
)

// criticalPriority is the priority from which pods are critical to the cluster.
const criticalPriority = 2_000_000_000

// A Period is how long the pods from a priority on may take to end, up to the priority of the next period.
type Period struct {
	Priority int32
	Length   time.Duration // whole seconds
}

// Periods returns the periods of a configuration, the lowest priority first. Without any, the shutdown of the machine is not
// delayed.
func Periods(c *kubelet.KubeletConfiguration) []Period {
	var all []Period
	for _, p := range c.ShutdownGracePeriodByPodPriority {
		all = append(all, Period{p.Priority, time.Duration(p.ShutdownGracePeriodSeconds) * time.Second})
	}
	if total, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration; len(all) == 0 && total > 0 {
		all = []Period{{0, (total - critical).Truncate(time.Second)}, {criticalPriority, critical.Truncate(time.Second)}}
	}
	sorting.Stable(all, func(a, b Period) int { return cmp.Compare(a.Priority, b.Priority) })
	return all
}

// Total returns how long the shutdown of the machine is delayed at most.
func Total(periods []Period) time.Duration {
	var sum time.Duration
	for _, p := range periods {
		sum += p.Length
	}
	return sum
}

// A Group is pods that end together.
type Group struct {
	Period
	Pods []*corev1.Pod
}

// Groups divides pods by their priority, in the order in which they end. Pods below the first period belong to that. Groups
// without pods are left out.
func Groups(periods []Period, pods []*corev1.Pod) []Group {
	all := make([]Group, len(periods))
	for i, p := range periods {
		all[i].Period = p
	}
	for _, pod := range pods {
		var priority int32
		if pod.Spec.Priority != nil {
			priority = *pod.Spec.Priority
		}
		i := slices.IndexFunc(periods, func(p Period) bool { return p.Priority > priority })
		if i < 0 {
			i = len(periods)
		}
		if len(periods) > 0 {
			g := &all[max(i-1, 0)]
			g.Pods = append(g.Pods, pod)
		}
	}
	return slices.DeleteFunc(all, func(g Group) bool { return len(g.Pods) == 0 })
}

// Grace returns how long a pod of the group may take to end: its own grace period, within that of the group.
func (g *Group) Grace(pod *corev1.Pod) time.Duration {
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil && *own <= int64(g.Length/time.Second) {
		return time.Duration(*own) * time.Second
	}
	return g.Length
}
