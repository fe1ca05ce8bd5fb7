package rollout

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/client"
)

// A goal is what an update wants; it never changes while one runs.
type goal struct {
	old, new string // names; of a rename, new is the one it has on the way
	rename   bool   // in the end the old name has the new pods
	back     bool   // undo instead
	key      string // label that tells old pods from new
	hash     string // of the new pods: value of that label

	spec               corev1.ReplicationControllerSpec // of the new controller, without that label
	surge, unavailable intstr.IntOrString
}

// A view is what the cluster looks like.
type view struct {
	old, new         *corev1.ReplicationController // nil where there is none
	oldPods, newPods Side                          // Want is not used
	held             int32                         // pods that the new controller still controls, of any kind
	took             bool                          // the old controller has seen its latest spec
}

// An action is one API call, or none.
type action struct {
	kind     actionKind
	replicas int32
	why      string // of waiting
}

type actionKind int

const (
	wait           actionKind = iota
	finished                  // nothing is left to do
	announce                  // write on the old controller that an update begins, and label its template
	labelPods                 // label the old controller's pods, and then its selector
	createNew                 // create the new controller, empty
	acceptOld                 // somebody scaled the old controller: that is now what is desired
	acceptNew                 // the same with the new one
	scaleOld                  // set the old controller's replicas
	scaleNew                  // set the new controller's replicas
	release                   // have the new controller let go of its pods
	takeOver                  // make the old controller what the new one was
	deleteNew                 // delete the empty new controller
	deleteOld                 // delete the empty old controller
	forgetOld                 // remove the marks from the old controller
	forgetNew                 // remove the marks from the new controller
	replaceForeign            // what is under way is another update: undo it first
)

// next says what to do. It is a pure function of the cluster: that is why a killed
// update can be resumed after any call.
func next(g goal, v view) (action, error) {
	switch {
	case v.old == nil:
		return afterOld(g, v)
	case v.old.DeletionTimestamp != nil:
		return action{kind: wait, why: v.old.Name + " is being deleted"}, nil
	case v.new != nil && v.new.DeletionTimestamp != nil:
		return action{kind: wait, why: v.new.Name + " is being deleted"}, nil
	case v.new != nil && v.new.Annotations[markSource] != sourceID(v.old):
		return action{}, fmt.Errorf("replicationcontroller %q exists and is not part of an update of %q: choose another name or delete it", v.new.Name, v.old.Name)
	}
	taken := v.old.Annotations[markTaken]
	switch {
	case taken != "" && taken == v.old.Annotations[markNext]:
		return afterTake(g, v)
	case g.back:
		return backwards(g, v)
	case v.new == nil && !underWay(v.old) && g.rename && samePods(v.old.Spec, g.spec, g.key):
		return action{kind: finished}, nil
	case !underWay(v.old):
		return action{kind: announce}, nil
	case v.new != nil && released(v.new):
		// Whatever update it was, it has succeeded; its pods must not be left alone.
		if v.held > 0 {
			return action{kind: wait, why: fmt.Sprintf("%s still holds %d pods", v.new.Name, v.held)}, nil
		}
		return action{kind: takeOver}, nil
	case v.old.Annotations[markNext] != g.new, v.new != nil && !g.made(v.new):
		return action{kind: replaceForeign}, nil
	case v.old.Spec.Selector[g.key] == "":
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
	step := Plan(State{Desired: desired, Limits: limits, From: v.side(v.old, v.oldPods), To: v.side(v.new, v.newPods)})
	switch step.Kind {
	case SetTo:
		return action{kind: scaleNew, replicas: step.Replicas}, nil
	case SetFrom:
		return action{kind: scaleOld, replicas: step.Replicas}, nil
	case Wait:
		return action{kind: wait, why: step.Why}, nil
	case Finished:
	}
	if g.rename {
		return action{kind: release}, nil
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

// afterTake tidies up when the old controller has taken the pods.
func afterTake(g goal, v view) (action, error) {
	switch {
	case v.new != nil:
		return action{kind: deleteNew}, nil
	case !v.took, v.oldPods.Pods < replicas(v.old):
		return action{kind: wait, why: v.old.Name + " is taking its pods over"}, nil
	}
	return action{kind: forgetOld}, nil
}

// afterOld tidies up when the old controller has been deleted in the end.
func afterOld(g goal, v view) (action, error) {
	if v.new != nil && !g.rename && !g.back && strings.HasPrefix(v.new.Annotations[markSource], g.old+":") {
		return action{kind: forgetNew}, nil
	}
	return action{}, apierrors.NewNotFound(client.ReplicationControllers.GroupResource(), g.old)
}

// made reports whether the new controller is of an update to this goal.
func (g goal) made(rc *corev1.ReplicationController) bool {
	if h, found := rc.Annotations[markHash]; found {
		return h == g.hash
	}
	return samePods(rc.Spec, g.spec, g.key)
}

// side completes what a controller has by what it is asked for.
func (v view) side(rc *corev1.ReplicationController, pods Side) Side {
	pods.Want = replicas(rc)
	return pods
}
