package sets

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/controller/dependents"
	"github.com/sampan-io/sampan/controller/rolling"
	"github.com/sampan-io/sampan/internal/podstate"
)

// ordinalOf returns the number of a pod of a StatefulSet; false if it has not the name
// of one.
func ordinalOf(set, pod string) (int, bool) {
	text, ok := strings.CutPrefix(pod, set+"-")
	n, err := strconv.Atoi(text)
	if !ok || err != nil || n < 0 || strconv.Itoa(n) != text {
		return 0, false
	}
	return n, true
}

// podName returns the name of the pod of an ordinal.
func podName(set *appsv1.StatefulSet, ordinal int) string {
	return set.Name + "-" + strconv.Itoa(ordinal)
}

// A statefulView is a StatefulSet, its pods, and the names of its revisions: the one
// that its pods have and the one that they are to have.
type statefulView struct {
	set             *appsv1.StatefulSet
	pods            []*corev1.Pod
	current, update string
	now             time.Time
	claims          claimFinder // used if the set has templates of claims

	// pause returns how long to wait before an ended pod is replaced. 0 or less means at once, and so does a nil pause.
	pause func(pod string) time.Duration
}

// A statefulPlan is the next step of a StatefulSet.
type statefulPlan struct {
	create  []statefulPod
	remove  []*corev1.Pod
	restart []*corev1.Pod // have ended, and are deleted to be replaced
	label   []*corev1.Pod // lack the labels of their identity
	claims  claimPlan     // what comes before all that
	after   time.Duration // when to look again by the passing of time alone; 0 means never
}

// A statefulPod is a pod to be made.
type statefulPod struct {
	ordinal  int
	revision string
}

func (v *statefulView) want() int {
	return int(dependents.Size(v.set.Spec.Replicas))
}

func (v *statefulView) start() int {
	if v.set.Spec.Ordinals == nil {
		return 0
	}
	return int(v.set.Spec.Ordinals.Start)
}

func (v *statefulView) rolling() bool {
	return v.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType
}

// first returns the lowest ordinal that an update touches.
func (v *statefulView) first() int {
	if r := v.set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		return v.start() + int(*r.Partition)
	}
	return v.start()
}

// revisionFor returns the revision of a new pod of that ordinal: one below the partition
// is not updated by the way.
func (v *statefulView) revisionFor(ordinal int) string {
	if v.rolling() && ordinal < v.first() {
		return v.current
	}
	return v.update
}

// places are the pods of a set by their place, which is the ordinal from the first one on. A set may want two billion, so
// there is nothing here for a pod that does not exist.
type places map[int]*corev1.Pod

// sorted returns the places that have a pod.
func (ps places) sorted() []int { return slices.Sorted(maps.Keys(ps)) }

// upTo iterates over the first want places in order, with nil for a pod that does not exist. After missing of these it
// leaves out the others.
func (ps places) upTo(want, missing int) iter.Seq2[int, *corev1.Pod] {
	return func(yield func(int, *corev1.Pod) bool) {
		next := 0
		for _, i := range append(ps.sorted(), want) {
			for ; next < i && missing > 0; next++ {
				missing--
				if !yield(next, nil) {
					return
				}
			}
			if i == want || !yield(i, ps[i]) {
				return
			}
			next = i + 1
		}
	}
}

// split returns the pods by place, and the pods whose ordinals are not wanted, the highest first.
func (v *statefulView) split() (at places, surplus []*corev1.Pod) {
	at = places{}
	number := map[*corev1.Pod]int{}
	for _, p := range v.pods {
		n, ok := ordinalOf(v.set.Name, p.Name)
		if !ok {
			continue
		}
		number[p] = n
		if i := n - v.start(); i >= 0 && i < v.want() {
			at[i] = p
		} else {
			surplus = append(surplus, p)
		}
	}
	slices.SortFunc(surplus, func(a, b *corev1.Pod) int { return cmp.Compare(number[b], number[a]) })
	return at, surplus
}

func (v *statefulView) least() time.Duration {
	return time.Duration(v.set.Spec.MinReadySeconds) * time.Second
}

// serves says that a pod is available and not about to go; if it only has to be ready for
// longer, plan looks again then.
func (v *statefulView) serves(p *corev1.Pod, plan *statefulPlan) bool {
	if p == nil || !podstate.Active(p) || p.Status.Phase != corev1.PodRunning {
		return false
	}
	wait := podstate.AvailableIn(p, v.least(), v.now)
	if wait > 0 && (plan.after == 0 || wait < plan.after) {
		plan.after = wait
	}
	return wait == 0
}

// plan decides about the next step, of pods and then of their claims.
func (v *statefulView) plan() statefulPlan {
	plan := v.planPods()
	v.planClaims(&plan)
	return plan
}

// planPods decides about the next step. In order means that a pod is touched only when all
// before it serve, and one at a time; the others are touched at once.
func (v *statefulView) planPods() (plan statefulPlan) {
	if v.set.DeletionTimestamp != nil {
		return plan
	}
	ordered := v.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
	at, surplus := v.split()
	for i, p := range at.upTo(v.want(), dependents.MaxBurst) {
		wait := v.place(i+v.start(), p, &plan)
		if ordered && wait {
			return plan
		}
	}
	if v.shrink(surplus, ordered, &plan) && ordered {
		return plan
	}
	if v.rolling() {
		v.replace(at, &plan)
	}
	return plan
}

// place brings one place to where it should be, apart from updates. It returns whether
// those after it have to wait.
func (v *statefulView) place(ordinal int, p *corev1.Pod, plan *statefulPlan) (wait bool) {
	switch {
	case p == nil:
		plan.create = append(plan.create, statefulPod{ordinal, v.revisionFor(ordinal)})
		return true
	case p.DeletionTimestamp != nil:
		return true
	case podstate.Finished(p):
		if v.pause != nil {
			if left := v.pause(p.Name); left > 0 {
				plan.after = dependents.Sooner(plan.after, left)
				return true
			}
		}
		plan.restart = append(plan.restart, p)
		return true
	case !identified(v.set, p):
		plan.label = append(plan.label, p)
	}
	return !v.serves(p, plan)
}

// shrink removes the pods that there are not to be, and returns whether there are any. In order means that a pod that
// does not serve is removed only if no surplus pod below it lacks as well: so scaling down halts while pods are
// unhealthy, as upstream's does.
func (v *statefulView) shrink(surplus []*corev1.Pod, ordered bool, plan *statefulPlan) bool {
	for i, p := range surplus {
		if ordered && (p.DeletionTimestamp != nil || !v.serves(p, plan) && !v.allServe(surplus[i+1:], plan)) {
			return true
		}
		if p.DeletionTimestamp == nil {
			plan.remove = append(plan.remove, p)
		}
		if ordered {
			return true
		}
	}
	return len(surplus) > 0
}

func (v *statefulView) allServe(pods []*corev1.Pod, plan *statefulPlan) bool {
	return !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return !v.serves(p, plan) })
}

// replace removes pods of an outdated template that serve, the last first, as many as may be missing at a time. Those
// that do not serve are removed as well: in order there are none here, because the update waits until all pods serve.
func (v *statefulView) replace(at places, plan *statefulPlan) {
	room := int32(1)
	if r := v.set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.MaxUnavailable != nil {
		room = max(1, rolling.Share(r.MaxUnavailable, int32(v.want()), true))
	}
	room -= int32(v.want() - len(at))
	var serving []*corev1.Pod // outdated
	for _, i := range slices.Backward(at.sorted()) {
		p := at[i]
		old := p.DeletionTimestamp == nil && !podstate.Finished(p) &&
			i+v.start() >= v.first() && revisionOfPod(p) != v.update
		switch {
		case !v.serves(p, plan):
			room--
			if old {
				plan.remove = append(plan.remove, p)
			}
		case old:
			serving = append(serving, p)
		}
	}
	plan.remove = append(plan.remove, serving[:min(max(0, int(room)), len(serving))]...)
}

func revisionOfPod(p *corev1.Pod) string { return p.Labels[revisionLabel] }

// identified says that a pod has the labels by which it can be found.
func identified(set *appsv1.StatefulSet, p *corev1.Pod) bool {
	n, _ := ordinalOf(set.Name, p.Name)
	return p.Labels[appsv1.StatefulSetPodNameLabel] == p.Name && p.Labels[appsv1.PodIndexLabel] == strconv.Itoa(n)
}

// statefulFrom returns the pod of an ordinal after a template.
func statefulFrom(set *appsv1.StatefulSet, template *corev1.PodTemplateSpec, one statefulPod) *corev1.Pod {
	pod := dependents.PodFrom(set, template)
	pod.GenerateName = ""
	pod.Name = podName(set, one.ordinal)
	pod.Labels = dependents.With(pod.Labels, appsv1.StatefulSetPodNameLabel, pod.Name)
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(one.ordinal)
	pod.Labels[revisionLabel] = one.revision
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, set.Spec.ServiceName
	mountClaims(set, pod, one.ordinal)
	return pod
}

// status returns the wanted status of the set, and when it may change by the
// passing of time alone (0: never).
func (v *statefulView) status() (s appsv1.StatefulSetStatus, after time.Duration) {
	s = *v.set.Status.DeepCopy()
	s.ObservedGeneration = v.set.Generation
	s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.UpdatedReplicas = 0, 0, 0, 0, 0
	s.CurrentRevision, s.UpdateRevision = v.current, v.update
	for _, p := range v.pods {
		if _, ok := ordinalOf(v.set.Name, p.Name); !ok {
			continue
		}
		s.Replicas++
		if p.DeletionTimestamp == nil {
			switch rev := revisionOfPod(p); {
			case rev == v.update && rev == v.current:
				s.CurrentReplicas++
				s.UpdatedReplicas++
			case rev == v.current:
				s.CurrentReplicas++
			case rev == v.update:
				s.UpdatedReplicas++
			}
		}
		if p.Status.Phase != corev1.PodRunning || !podstate.Ready(p) {
			continue
		}
		s.ReadyReplicas++
		if p.DeletionTimestamp != nil {
			continue
		}
		if wait := podstate.AvailableIn(p, v.least(), v.now); wait == 0 {
			s.AvailableReplicas++
		} else if after == 0 || wait < after {
			after = wait
		}
	}
	want := int32(v.want())
	done := s.UpdatedReplicas == want && s.ReadyReplicas == want && s.Replicas == want
	if v.rolling() && done {
		s.CurrentReplicas, s.CurrentRevision = s.UpdatedReplicas, s.UpdateRevision
	}
	target := want // a partition keeps pods at the old revision
	if v.rolling() {
		target = max(0, want-int32(v.first()-v.start()))
	}
	before := &v.set.Status
	wait := deadlineAfter(v.set, v.now, &advance{
		progressed: s.ObservedGeneration > before.ObservedGeneration ||
			s.UpdatedReplicas > before.UpdatedReplicas || s.ReadyReplicas > before.ReadyReplicas || s.AvailableReplicas > before.AvailableReplicas,
		complete: s.UpdatedReplicas >= target && s.AvailableReplicas == want && s.Replicas == want,
		what:     "StatefulSet", revision: s.UpdateRevision,
	}, statefulConditions(&s))
	return s, dependents.Sooner(after, wait)
}

// statefulConditions are those of a status.
func statefulConditions(s *appsv1.StatefulSetStatus) dependents.Conditions[appsv1.StatefulSetCondition] {
	return dependents.Conditions[appsv1.StatefulSetCondition]{
		List: &s.Conditions,
		Pack: func(c metav1.Condition) appsv1.StatefulSetCondition {
			return appsv1.StatefulSetCondition{
				Type: appsv1.StatefulSetConditionType(c.Type), Status: corev1.ConditionStatus(c.Status),
				Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime,
			}
		},
		Unpack: func(c appsv1.StatefulSetCondition) metav1.Condition {
			return metav1.Condition{
				Type: string(c.Type), Status: metav1.ConditionStatus(c.Status),
				Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime,
			}
		},
	}
}
