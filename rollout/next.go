package rollout

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/plural"
)

// A goal is what an update wants. While one runs, only back may change.
type goal struct {
	old, new string  // names; of a rename, new is the one it has on the way
	cleanup  Cleanup // what becomes of the old controller
	back     bool    // undo instead
	promote  bool    // go on with whatever is under way
	replace  bool    // only replace the pods
	alone    bool    // the old controller was gone when the run began: finish or delete what its update left
	canaries int32   // stop after so many new pods; 0: don't
	key      string  // label that tells old pods from new; empty where selectors do that anyway
	hash     string  // of what the new pods are like
	value    string  // of the label, on the new pods

	spec               corev1.ReplicationControllerSpec // of the new controller, without that label
	surge, unavailable intstr.IntOrString
}

func (g goal) rename() bool { return g.cleanup == CleanupRename }

// A view is what the cluster looks like.
type view struct {
	old, new         *corev1.ReplicationController // nil where there is none
	oldPods, newPods Side                          // Want is not used
	oldLive          []*corev1.Pod                 // by name
	available        map[types.UID]bool            // pods that count as ready
	held             int32                         // pods that the new controller still controls, of any kind
	took, newTook    bool                          // the controller has seen its latest spec
}

// An action is one API call, or none.
type action struct {
	kind     actionKind
	replicas int32
	pod      *corev1.Pod
	why      string // of waiting
}

type actionKind int

const (
	wait           actionKind = iota
	finished                  // nothing is left to do
	paused                    // the canaries are ready
	announce                  // write on the old controller that an update begins, and label its template
	labelPods                 // label the old controller's pods, and then its selector
	createNew                 // create the new controller, empty
	acceptOld                 // somebody scaled the old controller: that is now what is desired
	acceptNew                 // the same with the new one
	scaleOld                  // set the old controller's replicas
	scaleNew                  // set the new controller's replicas
	release                   // have the new controller let go of its pods
	closeOld                  // write on the old controller, which is preserved, that it is done with
	takeOver                  // make the old controller what the new one was
	deleteNew                 // delete the empty new controller
	deleteOld                 // delete the empty old controller
	forgetOld                 // remove the marks from the old controller
	forgetNew                 // remove the marks from the new controller
	replaceForeign            // what is under way is another update: undo it first
	listOlds                  // write on the controller which pods are to be replaced
	deletePod                 // delete one of them
	takeBack                  // have the new controller take the pods that it has let go of
)

// next says what to do. It is a pure function of the cluster: that is why a killed
// update can be resumed after any call.
func next(g goal, v view) (action, error) {
	switch {
	case v.old == nil:
		return afterOld(g, v)
	case v.old.DeletionTimestamp != nil:
		return action{kind: wait, why: v.old.Name + " is being deleted"}, nil
	case g.replace, g.back && replacing(v.old) && !underWay(v.old):
		return nextReplacement(g, v)
	case v.new != nil && v.new.DeletionTimestamp != nil:
		return action{kind: wait, why: v.new.Name + " is being deleted"}, nil
	case closing(v.old):
		return afterTake(v)
	case v.new != nil && !ours(v):
		if g.preserved(v) {
			return action{kind: finished}, nil
		}
		return action{}, fmt.Errorf("replicationcontroller %q exists and is not part of an update of %q: choose another name or delete it", v.new.Name, v.old.Name)
	}
	switch {
	case g.back:
		return backwards(g, v)
	case !underWay(v.old) && v.new == nil && g.rename() && samePods(v.old.Spec, g.spec, g.key):
		return action{kind: finished}, nil
	case !underWay(v.old) && g.promote:
		return action{kind: finished}, nil
	case !underWay(v.old):
		return action{kind: announce}, nil
	case v.new != nil && released(v.new):
		// Whatever update it was, it has succeeded; its pods must not be left alone.
		return beforeTake(v), nil
	case v.old.Annotations[markNext] != g.new, v.new != nil && !g.made(v.new):
		return action{kind: replaceForeign}, nil
	case g.key != "" && v.old.Spec.Selector[g.key] == "":
		if v.old.Spec.Template == nil || v.old.Spec.Template.Labels[g.key] == "" {
			return action{kind: announce}, nil
		}
		if !v.took {
			return action{kind: wait, why: v.old.Name + " has not seen its new label yet"}, nil
		}
		return action{kind: labelPods}, nil
	}
	if n, found := marked(v.old, markWritten); found && n != replicas(v.old) {
		return action{kind: acceptOld, replicas: replicas(v.old)}, nil
	}
	if v.new == nil {
		if g.promote {
			return action{}, fmt.Errorf("the update of %q has not made any pod yet: run it again with what it is to update to", v.old.Name)
		}
		return action{kind: createNew}, nil
	}
	return forwards(g, v)
}

// forwards scales the new controller up and the old one down.
func forwards(g goal, v view) (action, error) {
	desired, known := marked(v.new, markDesired)
	if n, found := marked(v.new, markWritten); found && n != replicas(v.new) {
		return action{kind: acceptNew, replicas: replicas(v.new)}, nil
	}
	if !known {
		return action{}, fmt.Errorf("replicationcontroller %q does not say how many replicas it shall have (annotation %s)", v.new.Name, markDesired)
	}
	limits, err := LimitsOf(desired, g.surge, g.unavailable)
	if err != nil {
		return action{}, err
	}
	s := State{Desired: desired, Limits: limits, From: v.side(v.old, v.oldPods), To: v.side(v.new, v.newPods)}
	if g.canaries > 0 { // those that are there already stay
		s.Desired = min(desired, max(g.canaries, s.To.Want))
		s.Rest = desired - s.Desired
	}
	step := Plan(s)
	switch step.Kind {
	case SetTo:
		return action{kind: scaleNew, replicas: step.Replicas}, nil
	case SetFrom:
		return action{kind: scaleOld, replicas: step.Replicas}, nil
	case Wait:
		return action{kind: wait, why: step.Why}, nil
	case Finished:
	}
	switch {
	case g.canaries > 0:
		return action{kind: paused}, nil
	case g.rename():
		return action{kind: release}, nil
	case g.cleanup == CleanupPreserve:
		return action{kind: closeOld}, nil
	}
	return action{kind: deleteOld}, nil
}

// backwards undoes an update: the old controller is filled again.
func backwards(g goal, v view) (action, error) {
	switch {
	case !underWay(v.old):
		return action{kind: finished}, nil
	case v.new == nil:
		return action{kind: forgetOld}, nil
	case released(v.new):
		return action{}, fmt.Errorf("the update of %q has succeeded and only the renaming is left: run it again without --rollback to finish it, then update to the former image", v.old.Name)
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
	step := Plan(State{Desired: desired, Limits: limits, From: v.side(v.new, v.newPods), To: v.side(v.old, v.oldPods)})
	switch step.Kind {
	case SetTo:
		return action{kind: scaleOld, replicas: step.Replicas}, nil
	case SetFrom:
		return action{kind: scaleNew, replicas: step.Replicas}, nil
	case Wait:
		return action{kind: wait, why: step.Why}, nil
	case Finished:
	}
	return action{kind: deleteNew}, nil
}

// beforeTake makes way for the old controller to take the pods that the new one
// has let go of.
func beforeTake(v view) action {
	switch n, found := marked(v.old, markWritten); {
	case found && n != replicas(v.old): // somebody scaled what had been emptied
		return action{kind: acceptOld, replicas: replicas(v.old)}
	case replicas(v.old) > 0:
		return action{kind: scaleOld}
	case v.oldPods.Pods > 0, !v.took, v.old.Status.Replicas > 0: // they would be left behind
		return action{kind: wait, why: "old pods are still to go"}
	case v.held > 0:
		return action{kind: wait, why: fmt.Sprintf("%s still holds %s", v.new.Name, plural.Count(v.held, "pod"))}
	case !v.newTook:
		return action{kind: wait, why: v.new.Name + " has not seen yet that it is to let go of its pods"}
	}
	return action{kind: takeOver}
}

// closing reports whether only traces of the update are left: the old controller
// has the pods, or is to be kept without any.
func closing(old *corev1.ReplicationController) bool {
	taken := old.Annotations[markTaken]
	return taken != "" && taken == old.Annotations[markNext]
}

// ours reports whether the new controller is part of an update of the old one.
func ours(v view) bool { return v.new.Annotations[markSource] == sourceID(v.old) }

// afterTake tidies up when the old controller has taken the pods, or is preserved.
func afterTake(v view) (action, error) {
	preserve := Cleanup(v.old.Annotations[markCleanup]) == CleanupPreserve
	switch {
	case v.new != nil && ours(v) && preserve:
		return action{kind: forgetNew}, nil
	case v.new != nil && ours(v):
		return action{kind: deleteNew}, nil
	case preserve:
		return action{kind: forgetOld}, nil
	case !v.took, v.oldPods.Pods < replicas(v.old):
		return action{kind: wait, why: v.old.Name + " is taking its pods over"}, nil
	}
	return action{kind: forgetOld}, nil
}

// afterOld goes on when the old controller has been deleted: at the end of the update, which
// leaves marks to remove, or by another client during the update. Then the run stops, and the next one
// finishes the update under the name of the new controller, or deletes that.
func afterOld(g goal, v view) (action, error) {
	switch {
	case v.new == nil && g.alone && g.back:
		return action{kind: finished}, nil
	case v.new == nil, g.replace, sourceName(v.new) != g.old:
		return action{}, apierrors.NewNotFound(client.ReplicationControllers.GroupResource(), g.old)
	case v.new.DeletionTimestamp != nil:
		return action{kind: wait, why: v.new.Name + " is being deleted"}, nil
	}
	desired, known := marked(v.new, markDesired)
	if !known {
		desired = replicas(v.new)
	}
	if n, found := marked(v.new, markWritten); found && n != replicas(v.new) && !released(v.new) {
		desired = replicas(v.new) // another client scaled it
	}
	filled := replicas(v.new) >= desired && !released(v.new)
	switch {
	case !g.alone && filled && !g.rename() && !g.back:
		return action{kind: forgetNew}, nil
	case !g.alone:
		return action{}, &OrphanedError{Old: g.old, New: v.new.Name, Pods: v.newPods.Pods, Desired: desired}
	case g.back:
		return action{kind: deleteNew}, nil
	case released(v.new):
		return action{kind: takeBack, replicas: desired}, nil
	case !filled:
		return action{kind: scaleNew, replicas: desired}, nil
	case !v.newTook, v.newPods.Ready < replicas(v.new):
		return action{kind: wait, why: fmt.Sprintf("%d of %d new pods ready", v.newPods.Ready, replicas(v.new))}, nil
	}
	return action{kind: forgetNew}, nil
}

// made reports whether the new controller is of an update to this goal.
func (g goal) made(rc *corev1.ReplicationController) bool {
	if g.promote {
		return true
	}
	if h, found := rc.Annotations[markHash]; found {
		return h == g.hash
	}
	// The server has filled in what a file leaves open.
	_, is := bare(rc.Spec, g.key)
	_, want := bare(g.spec, g.key)
	return apiequality.Semantic.DeepDerivative(want, is)
}

// preserved reports whether an update that keeps the old controller is complete,
// and forgotten.
func (g goal) preserved(v view) bool {
	return g.cleanup == CleanupPreserve && !g.back && !underWay(v.old) && replicas(v.old) == 0 &&
		v.new.Annotations[markSource] == "" && g.made(v.new)
}

// side completes what a controller has by what it is asked for.
func (v view) side(rc *corev1.ReplicationController, pods Side) Side {
	pods.Want = replicas(rc)
	return pods
}

// apart reports whether two selectors can't fit the same pod.
func apart(a, b map[string]string) bool {
	for key, value := range a {
		if other, found := b[key]; found && other != value {
			return true
		}
	}
	return false
}

// otherThan returns a value for a label that is not taken.
func otherThan(value, taken, suffix string) string {
	if value == taken {
		return strings.TrimSuffix(value, suffix) + suffix
	}
	return value
}
