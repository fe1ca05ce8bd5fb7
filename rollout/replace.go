package rollout

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/controller/rolling"
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
	want := replicas(v.old)
	switch step := rolling.PlanReplacement(rolling.Replacement{
		Desired: desired, Limits: g.limits(desired), Want: want, Pods: v.olds(), Stop: g.back,
	}); {
	case step.Want != want:
		return action{kind: scaleOld, replicas: step.Want}, nil
	case step.Delete >= 0:
		return action{kind: deletePod, pod: v.oldLive[step.Delete]}, nil
	case step.Why != "":
		return action{kind: wait, why: step.Why}, nil
	}
	return action{kind: forgetOld}, nil
}

// olds returns the live pods of the old controller as [rolling.PlanReplacement] sees them.
func (v view) olds() []rolling.OnePod {
	listed := map[string]bool{}
	for name := range strings.FieldsSeq(v.old.Annotations[markOlds]) {
		listed[name] = true
	}
	pods := make([]rolling.OnePod, len(v.oldLive))
	for i, p := range v.oldLive {
		pods[i] = rolling.OnePod{Old: listed[p.Name], Ready: v.available[p.UID]}
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
