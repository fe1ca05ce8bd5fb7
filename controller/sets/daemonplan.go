package sets

import (
	"cmp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/controller/dependents"
	"github.com/sampan-io/sampan/controller/rolling"
	"github.com/sampan-io/sampan/internal/podstate"
)

// A daemonView is a DaemonSet, its pods, the nodes, and the hash of the present template.
type daemonView struct {
	set   *appsv1.DaemonSet
	pods  []*corev1.Pod
	nodes []*corev1.Node
	hash  string
	now   time.Time

	// pause returns how long a node is spared after pods of the set have failed
	// on it; nil means that none has.
	pause func(node string) time.Duration
}

// A daemonPlan is the next step of a DaemonSet.
type daemonPlan struct {
	create []string // nodes
	remove []*corev1.Pod
	failed []*corev1.Pod // removed, because they have ended
	after  time.Duration // when to look again by the passing of time alone; 0 means never
}

func (p *daemonPlan) again(after time.Duration) {
	p.after = dependents.Sooner(p.after, after)
}

// A berth is a node and the pods of the set that run on it or are meant for it. Pods that are not being deleted come first,
// then ready pods, then older pods.
type berth struct {
	node      *corev1.Node // nil if there is none
	pods      []*corev1.Pod
	run, goOn bool
}

// berths returns the nodes by name, and apart from them the pods of nodes that are
// not there.
func (v *daemonView) berths() (all []*berth, lost []*corev1.Pod) {
	byName := map[string]*berth{}
	for _, node := range v.nodes {
		b := &berth{node: node}
		b.run, b.goOn = eligible(&v.set.Spec.Template, node)
		byName[node.Name] = b
		all = append(all, b)
	}
	for _, pod := range v.pods {
		if b := byName[meantFor(pod)]; b != nil {
			b.pods = append(b.pods, pod)
		} else {
			lost = append(lost, pod)
		}
	}
	for _, b := range all {
		slices.SortFunc(b.pods, func(x, y *corev1.Pod) int {
			return cmp.Or(
				podstate.First(x.DeletionTimestamp == nil, y.DeletionTimestamp == nil),
				podstate.First(podstate.Ready(x), podstate.Ready(y)),
				x.CreationTimestamp.Compare(y.CreationTimestamp.Time), strings.Compare(x.Name, y.Name),
			)
		})
	}
	slices.SortFunc(all, func(x, y *berth) int { return strings.Compare(x.node.Name, y.node.Name) })
	return all, lost
}

// living returns the first present pod and the first outdated one that go on, and the
// pods that are one too many.
func (v *daemonView) living(b *berth) (present, outdated *corev1.Pod, surplus []*corev1.Pod) {
	for _, pod := range b.pods {
		switch {
		case !podstate.Active(pod):
		case pod.Labels[revisionLabel] == v.hash && present == nil:
			present = pod
		case pod.Labels[revisionLabel] != v.hash && outdated == nil:
			outdated = pod
		default:
			surplus = append(surplus, pod)
		}
	}
	return present, outdated, surplus
}

func (v *daemonView) available(pod *corev1.Pod, plan *daemonPlan) bool {
	wait := podstate.AvailableIn(pod, time.Duration(v.set.Spec.MinReadySeconds)*time.Second, v.now)
	plan.again(wait)
	return wait == 0
}

// margins returns by how many nodes an update may be ahead, and how many may be without a
// pod that serves.
func (v *daemonView) margins(desired int32) (surge, unavailable int32, ok bool) {
	u := v.set.Spec.UpdateStrategy
	if u.Type != appsv1.RollingUpdateDaemonSetStrategyType || u.RollingUpdate == nil {
		return 0, 0, false
	}
	surge, unavailable = rolling.Share(u.RollingUpdate.MaxSurge, desired, true), rolling.Share(u.RollingUpdate.MaxUnavailable, desired, true)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable, true
}

// plan decides about the next step.
func (v *daemonView) plan() (plan daemonPlan) {
	if v.set.DeletionTimestamp != nil {
		return plan
	}
	berths, lost := v.berths()
	for _, pod := range lost {
		// Pods on the node are deleted with it.
		if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
			plan.remove = append(plan.remove, pod)
		}
	}
	desired := int32(0)
	for _, b := range berths {
		if b.run {
			desired++
		}
	}
	surge, unavailable, ok := v.margins(desired)
	for _, b := range berths {
		v.keep(b, surge > 0, &plan)
	}
	switch {
	case !ok:
	case surge > 0:
		v.overtake(berths, surge, &plan)
	default:
		v.replace(berths, unavailable, &plan)
	}
	return plan
}

// keep brings a node to one pod, or none, apart from updates. With surge an outdated pod
// stays beside the present one until that serves.
func (v *daemonView) keep(b *berth, surge bool, plan *daemonPlan) {
	for _, pod := range b.pods {
		switch {
		case pod.DeletionTimestamp != nil:
		case !b.goOn:
			plan.remove = append(plan.remove, pod)
		case podstate.Finished(pod):
			plan.failed = append(plan.failed, pod)
		}
	}
	if !b.goOn {
		return
	}
	present, outdated, surplus := v.living(b)
	plan.remove = append(plan.remove, surplus...)
	switch {
	case len(b.pods) == 0 && b.run:
		v.create(b, plan)
	case present != nil && outdated != nil && !surge:
		last := outdated
		if slices.Index(b.pods, present) > slices.Index(b.pods, outdated) {
			last = present
		}
		plan.remove = append(plan.remove, last)
	}
}

func (v *daemonView) create(b *berth, plan *daemonPlan) {
	if v.pause != nil {
		if pause := v.pause(b.node.Name); pause > 0 {
			plan.again(pause)
			return
		}
	}
	plan.create = append(plan.create, b.node.Name)
}

// replace deletes outdated pods: all that are not available, and as many of the others as may be unavailable at a time.
func (v *daemonView) replace(berths []*berth, room int32, plan *daemonPlan) {
	var serving []*corev1.Pod
	for _, b := range berths {
		if !b.run {
			continue
		}
		present, outdated, _ := v.living(b)
		switch {
		case (present == nil) == (outdated == nil):
			room-- // there is none, or one is about to go
		case present != nil:
			if !v.available(present, plan) {
				room--
			}
		case v.available(outdated, plan):
			serving = append(serving, outdated)
		default:
			room--
			if !podstate.Ready(outdated) {
				plan.remove = append(plan.remove, outdated)
			}
		}
	}
	plan.remove = append(plan.remove, serving[:min(max(0, int(room)), len(serving))]...)
}

// overtake makes present pods beside outdated ones, and removes these when those serve.
func (v *daemonView) overtake(berths []*berth, room int32, plan *daemonPlan) {
	var serving []*berth
	for _, b := range berths {
		if !b.goOn {
			continue
		}
		present, outdated, _ := v.living(b)
		switch {
		case outdated == nil:
		case present != nil && v.available(present, plan):
			plan.remove = append(plan.remove, outdated)
		case present != nil:
			room--
		case !b.run:
		case podstate.Ready(outdated):
			serving = append(serving, b)
		default:
			v.create(b, plan) // no pod becomes unavailable by that
		}
	}
	for _, b := range serving[:min(max(0, int(room)), len(serving))] {
		v.create(b, plan)
	}
}

// daemonFrom returns a new pod of a DaemonSet for a node.
func daemonFrom(set *appsv1.DaemonSet, hash, node string) *corev1.Pod {
	pod := dependents.PodFrom(set, &set.Spec.Template)
	pod.Labels = dependents.With(pod.Labels, revisionLabel, hash)
	if generation := set.Annotations[appsv1.DeprecatedTemplateGeneration]; generation != "" {
		pod.Labels["pod-template-generation"] = generation
	}
	pod.Spec.Tolerations = daemonTolerations(&pod.Spec)
	bindTo(pod, node)
	return pod
}

// status returns the wanted status of the set, and when it may change by the
// passing of time alone (0: never).
func (v *daemonView) status() (s appsv1.DaemonSetStatus, after time.Duration) {
	before := &v.set.Status
	s = appsv1.DaemonSetStatus{
		ObservedGeneration: v.set.Generation, CollisionCount: before.CollisionCount, Conditions: slices.Clone(before.Conditions),
	}
	var plan daemonPlan // for its clock alone
	berths, _ := v.berths()
	old := 0 // pods that another is to overtake
	for _, b := range berths {
		if !b.run {
			if len(b.pods) > 0 {
				s.NumberMisscheduled++
			}
			continue
		}
		s.DesiredNumberScheduled++
		if len(b.pods) == 0 {
			continue
		}
		s.CurrentNumberScheduled++
		present, outdated, _ := v.living(b)
		if present != nil {
			s.UpdatedNumberScheduled++
		}
		if outdated != nil {
			old++
		}
		ready, available := false, false
		for _, pod := range []*corev1.Pod{present, outdated} {
			if pod != nil && podstate.Ready(pod) {
				ready = true
				available = v.available(pod, &plan) || available
			}
		}
		if ready {
			s.NumberReady++
		}
		if available {
			s.NumberAvailable++
		}
	}
	s.NumberUnavailable = s.DesiredNumberScheduled - s.NumberAvailable
	plan.again(deadlineAfter(v.set, v.now, &advance{
		progressed: s.ObservedGeneration > before.ObservedGeneration || s.UpdatedNumberScheduled > before.UpdatedNumberScheduled ||
			s.NumberReady > before.NumberReady || s.NumberAvailable > before.NumberAvailable,
		complete: s.NumberAvailable == s.DesiredNumberScheduled && old == 0,
		what:     "DaemonSet", revision: v.hash,
	}, daemonConditions(&s)))
	return s, plan.after
}

// daemonConditions are those of a status.
func daemonConditions(s *appsv1.DaemonSetStatus) dependents.Conditions[appsv1.DaemonSetCondition] {
	return dependents.Conditions[appsv1.DaemonSetCondition]{
		List: &s.Conditions,
		Pack: func(c metav1.Condition) appsv1.DaemonSetCondition {
			return appsv1.DaemonSetCondition{
				Type: appsv1.DaemonSetConditionType(c.Type), Status: corev1.ConditionStatus(c.Status),
				Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime,
			}
		},
		Unpack: func(c appsv1.DaemonSetCondition) metav1.Condition {
			return metav1.Condition{
				Type: string(c.Type), Status: metav1.ConditionStatus(c.Status),
				Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime,
			}
		},
	}
}
