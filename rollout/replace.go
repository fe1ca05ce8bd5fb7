package rollout

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/internal/plural"
)

// maxOlds is the maximum length of the list of pods to replace. All annotations of an object together may have 256 KiB.
const maxOlds = 200 << 10

// nextReplacement returns the next action to replace the pods of a controller by others of the same kind. The names of
// the pods are written on the controller before the first one is deleted, so that a run can be resumed without comparing
// clocks.
func nextReplacement(g goal, v view) (action, error) {
	switch {
	case underWay(v.old):
		return action{}, fmt.Errorf("an update of replicationcontroller %q is under way, which replaces its pods: finish it or roll it back first", v.old.Name)
	case !replacing(v.old) && (g.back || len(v.oldLive) == 0):
		return action{kind: finished}, nil
	case !replacing(v.old):
		return action{kind: listOlds}, nil
	}
	if n, found := marked(v.old, markWritten); found && n != replicas(v.old) {
		return action{kind: acceptOld, replicas: replicas(v.old)}, nil
	}
	desired, known := marked(v.old, markOriginal)
	if !known {
		return action{}, fmt.Errorf("replicationcontroller %q does not say how many replicas it had (annotation %s)", v.old.Name, markOriginal)
	}
	limits, err := LimitsOf(desired, g.surge, g.unavailable)
	if err != nil {
		return action{}, err
	}
	step, victim := PlanReplacement(Replacement{
		Desired: desired, Limits: limits, Want: replicas(v.old), Pods: v.olds(), Stop: g.back,
	})
	switch step.Kind {
	case SetTo:
		return action{kind: scaleOld, replicas: step.Replicas}, nil
	case SetFrom:
		return action{kind: deletePod, pod: v.oldLive[victim]}, nil
	case Wait:
		return action{kind: wait, why: step.Why}, nil
	case Finished:
	}
	return action{kind: forgetOld}, nil
}

// A Replacement is the input of [PlanReplacement].
type Replacement struct {
	Desired int32 // pods in the end
	Limits
	Want int32    // replicas in the controller's spec
	Pods []OnePod // pods that exist, have not ended and are not being deleted
	Stop bool     // replace no more pods, and go back to Desired
}

// OnePod is a pod of a [Replacement].
type OnePod struct {
	Old   bool // it has to be replaced
	Ready bool // as [Side.Ready] counts
}

// PlanReplacement returns the next step of a replacement. SetTo means to set the replicas; SetFrom means to delete the
// pod with the returned index, which the controller then replaces. R1 to R3 hold.
func PlanReplacement(s Replacement) (step Step, victim int) {
	var olds, ready, fresh, freshReady int32
	broken, good := -1, -1
	for i, p := range s.Pods {
		switch {
		case p.Ready:
			ready++
		case p.Old && broken < 0:
			broken = i
		}
		switch {
		case !p.Old && p.Ready:
			fresh, freshReady = fresh+1, freshReady+1
		case !p.Old:
			fresh++
		default:
			olds++
			if p.Ready && good < 0 {
				good = i
			}
		}
	}
	pods := int32(len(s.Pods))
	if s.Stop || olds == 0 {
		switch {
		case s.Want != s.Desired:
			return Step{Kind: SetTo, Replicas: s.Desired}, -1
		case !s.Stop && ready < s.Desired:
			return Step{Kind: Wait, Why: fmt.Sprintf("%d of %d new pods ready", ready, s.Desired)}, -1
		case pods != s.Desired:
			return Step{Kind: Wait, Why: fmt.Sprintf("%s, want %d", plural.Count(pods, "pod"), s.Desired)}, -1
		}
		return Step{Kind: Finished}, -1
	}
	switch {
	case s.Want != s.Max:
		return Step{Kind: SetTo, Replicas: s.Max}, -1
	case broken >= 0 && pods >= s.Want && freshReady == fresh:
		// It costs no capacity. Replace one at a time, because the new pod may be broken, too.
		return Step{Kind: SetFrom}, broken
	case good >= 0 && ready > s.Min:
		return Step{Kind: SetFrom}, good
	case pods < s.Want:
		return Step{Kind: Wait, Why: fmt.Sprintf("%d of %d pods are there", pods, s.Want)}, -1
	}
	return Step{Kind: Wait, Why: fmt.Sprintf("%d of %d new pods ready, %s to go", freshReady, fresh, plural.Count(olds, "old one"))}, -1
}

// olds returns the live pods of the old controller as [PlanReplacement] sees them.
func (v view) olds() []OnePod {
	listed := map[string]bool{}
	for name := range strings.FieldsSeq(v.old.Annotations[markOlds]) {
		listed[name] = true
	}
	pods := make([]OnePod, len(v.oldLive))
	for i, p := range v.oldLive {
		pods[i] = OnePod{Old: listed[p.Name], Ready: v.available[p.UID]}
	}
	return pods
}

// listNames returns the names of the pods to replace as the value of an annotation.
func listNames(pods []*corev1.Pod) (string, error) {
	names := make([]string, len(pods))
	for i, p := range pods {
		names[i] = p.Name
	}
	text := strings.Join(names, " ")
	if len(text) > maxOlds {
		return "", fmt.Errorf("the names of %d pods do not fit into an annotation of their controller; an update with a new name can replace any number of pods", len(pods))
	}
	return text, nil
}
