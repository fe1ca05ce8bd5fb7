package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sampan-io/sampan/internal/podresources"
)

// The reason and messages of pods that end to make room for a critical pod, as upstream's kubelet has them.
const (
	Preempting       = "Preempting"
	PreemptedMessage = "Preempted in order to admit critical pod"
	PreemptedBecause = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// A Need is how much of a resource a pod lacks: bytes, thousandths of processors, or a number.
type Need struct {
	Resource corev1.ResourceName
	Amount   int64
}

// preemptable reports whether a pod may be ended to make room for another one: that is critical and it is not, or it has a lower
// priority.
func preemptable(preemptor, pod *corev1.Pod) bool {
	if Critical(preemptor) && !Critical(pod) {
		return true
	}
	a, b := preemptor.Spec.Priority, pod.Spec.Priority
	return a != nil && b != nil && *a > *b
}

// Needs prints as upstream's kubelet prints what a pod lacks.
type Needs []Need

func (n Needs) String() string {
	var b strings.Builder
	for _, x := range n {
		fmt.Fprintf(&b, "(res: %s, q: %d), ", x.Resource, x.Amount)
	}
	return "[" + b.String() + "]"
}

// A Candidate is a running pod with its quality of service.
type Candidate struct {
	*corev1.Pod
	Class corev1.PodQOSClass
}

// Preempt returns pods whose end gives a critical pod what it lacks; false if all pods that it may preempt do not suffice. It
// prefers pods of the class BestEffort to Burstable ones and these to Guaranteed ones, then few pods, then small ones.
func Preempt(preemptor *corev1.Pod, pods []Candidate, needs []Need) ([]*corev1.Pod, bool) {
	by := map[corev1.PodQOSClass][]*corev1.Pod{}
	for _, p := range pods {
		if preemptable(preemptor, p.Pod) {
			by[p.Class] = append(by[p.Class], p.Pod)
		}
	}
	low, middle, high := by[corev1.PodQOSBestEffort], by[corev1.PodQOSBurstable], by[corev1.PodQOSGuaranteed]
	if len(rest(needs, low, middle, high)) > 0 {
		return nil, false
	}
	high = nearest(high, rest(needs, low, middle))
	middle = nearest(middle, rest(needs, low, high))
	low = nearest(low, rest(needs, middle, high))
	return slices.Concat(low, middle, high), true
}

// rest returns what is still needed after pods have ended.
func rest(needs []Need, ended ...[]*corev1.Pod) []Need {
	var left []Need
	for _, n := range needs {
		for _, p := range slices.Concat(ended...) {
			if n.Amount -= min(n.Amount, request(p, n.Resource)); n.Amount <= 0 {
				break
			}
		}
		if n.Amount > 0 {
			left = append(left, n)
		}
	}
	return left
}

// nearest takes pods, the one that comes nearest to what is needed first, until nothing is needed any more.
func nearest(pods []*corev1.Pod, needs []Need) []*corev1.Pod {
	pods = slices.Clone(pods)
	var taken []*corev1.Pod
	for len(needs) > 0 && len(pods) > 0 {
		best := slices.MinFunc(pods, func(a, b *corev1.Pod) int {
			return cmp.Or(
				cmp.Compare(distance(needs, a), distance(needs, b)),
				cmp.Compare(request(a, corev1.ResourceMemory), request(b, corev1.ResourceMemory)),
				cmp.Compare(request(a, corev1.ResourceCPU), request(b, corev1.ResourceCPU)),
			)
		})
		taken = append(taken, best)
		pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return p == best })
		needs = rest(needs, []*corev1.Pod{best})
	}
	return taken
}

// distance is how far the end of a pod is from what is needed: the sum of the squares of the shares that it leaves open.
func distance(needs []Need, p *corev1.Pod) float64 {
	var sum float64
	for _, n := range needs {
		if left := n.Amount - request(p, n.Resource); left > 0 {
			share := float64(left) / float64(n.Amount)
			sum += share * share
		}
	}
	return sum
}

// request returns how much of a resource a pod requests, in the unit of a [Need].
func request(p *corev1.Pod, name corev1.ResourceName) int64 {
	if name == corev1.ResourcePods {
		return 1
	}
	q := podresources.Requests(p, podresources.Options{})[name]
	return amount(name, q)
}

func amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return max(q.MilliValue(), 0)
	}
	return max(q.Value(), 0)
}
