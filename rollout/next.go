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
	"github.com/sampan-io/sampan/controller/rolling"
	"github.com/sampan-io/sampan/internal/plural"
)

// A goal is the wanted result of an update. While a run is under way, only back may change.
type goal struct {
	old, new string  // names of the controllers; in a rename, new is the temporary name
	cleanup  Cleanup // of the old controller
	back     bool    // undo the update
	promote  bool    // continue the update that is under way
	replace  bool    // only replace the pods
	orphaned bool    // the old controller did not exist when the run began: finish its update, or delete the new one
	canaries int32   // stop at this number of new pods; 0 for none
	key      string  // label that distinguishes old pods from new ones; empty if the selectors do
	hash     string  // of the new controller's template
	value    string  // of the label on the new pods

	spec               corev1.ReplicationControllerSpec // of the new controller, without the label
	surge, unavailable *intstr.IntOrString
}

func (g goal) rename() bool { return g.cleanup == CleanupRename }

func (g goal) limits(desired int32) rolling.Limits {
	return rolling.LimitsOf(desired, g.surge, g.unavailable)
}

// A view is the observed state of the cluster.
type view struct {
	old, new         *corev1.ReplicationController // nil if it does not exist
	oldPods, newPods rolling.Side                  // Want is not used
	oldLive          []*corev1.Pod                 // by name
	available        map[types.UID]bool            // pods that count as ready
	held             int32                         // all pods that the new controller still controls
	took, newTook    bool                          // the old, the new controller has observed its latest spec
}

// An action is one API call, or none.
type action struct {
	kind     actionKind
	replicas int32
	pod      *corev1.Pod
	why      string // why to wait
}

type actionKind int

const (
	wait           actionKind = iota
	finished                  // nothing is left to do
	paused                    // the canaries are ready
	announce                  // write the annotations of the update on the old controller, and label its template
	labelPods                 // label the old controller's pods, and then its selector
	createNew                 // create the new controller, empty
	acceptOld                 // another client scaled the old controller: its replicas are now the desired number
	acceptNew                 // the same for the new one
	scaleOld                  // set the old controller's replicas
	scaleNew                  // set the new controller's replicas
	release                   // make the new controller release its pods
	closeOld                  // write on the old controller, which is preserved, that the update has ended
	takeOver                  // give the old controller the spec of the new one
	deleteNew                 // delete the empty new controller
	deleteOld                 // delete the empty old controller
	forgetOld                 // remove the annotations from the old controller
	forgetNew                 // remove the annotations from the new controller
	replaceForeign            // another update is under way: undo it first
	listOlds                  // write the names of the pods to replace on their controller
	deletePod                 // delete one of them
	takeBack                  // make the new controller adopt the pods that it has released
)

// next returns the next action. It is a pure function of the goal and the cluster, so a killed update can be resumed
// after any call.
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
		return action{}, notPart(v.new, v.old)
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
		// Its update has succeeded, whatever its goal was. Its pods must not stay without a controller.
		return beforeTake(v), nil
	case v.old.Annotations[markNext] != g.new, v.new != nil && !g.made(v.new):
		return action{kind: replaceForeign}, nil
	case !g.promote && v.old.Annotations[markCleanup] != string(g.cleanup): // resumed with another end
		return action{kind: announce}, nil
	case g.key != "" && v.old.Spec.Selector[g.key] == "":
		if v.old.Spec.Template == nil || v.old.Spec.Template.Labels[g.key] == "" {
			return action{kind: announce}, nil
		}
		if !v.took {
			return action{kind: wait, why: v.old.Name + " has not observed its new label yet"}, nil
		}
		return action{kind: labelPods}, nil
	}
	if n, found := marked(v.old, markWritten); found && n != replicas(v.old) {
		return action{kind: acceptOld, replicas: replicas(v.old)}, nil
	}
	if v.new == nil {
		if g.promote {
			return action{}, fmt.Errorf("the update of %q has not created any pod yet: run it again with the image or the file of the update", v.old.Name)
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
	act := g.shift(rolling.State{Desired: desired, Canaries: g.canaries, From: v.side(v.old, v.oldPods), To: v.side(v.new, v.newPods)}, scaleOld, scaleNew)
	if act.kind != finished {
		return act, nil
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
	act := g.shift(rolling.State{Desired: desired, From: v.side(v.new, v.newPods), To: v.side(v.old, v.oldPods)}, scaleNew, scaleOld)
	if act.kind != finished {
		return act, nil
	}
	return action{kind: deleteNew}, nil
}

// shift returns the next action to scale one controller down and the other one up, or finished. from and to scale them.
func (g goal) shift(s rolling.State, from, to actionKind) action {
	s.Limits = g.limits(s.Desired)
	switch step := rolling.Plan(s); {
	case step.To != s.To.Want:
		return action{kind: to, replicas: step.To}
	case step.From != s.From.Want:
		return action{kind: from, replicas: step.From}
	case step.Why != "":
		return action{kind: wait, why: step.Why}
	}
	return action{kind: finished}
}

// beforeTake empties the old controller, so that it can adopt the pods that the new one has released.
func beforeTake(v view) action {
	switch n, found := marked(v.old, markWritten); {
	case found && n != replicas(v.old): // another client scaled it
		return action{kind: acceptOld, replicas: replicas(v.old)}
	case replicas(v.old) > 0:
		return action{kind: scaleOld}
	case v.oldPods.Pods > 0, !v.took, v.old.Status.Replicas > 0: // they would stay without a controller
		return action{kind: wait, why: "old pods are not deleted yet"}
	case v.held > 0:
		return action{kind: wait, why: fmt.Sprintf("%s still holds %s", v.new.Name, plural.Count(v.held, "pod"))}
	case !v.newTook:
		return action{kind: wait, why: v.new.Name + " has not observed its new selector yet"}
	}
	return action{kind: takeOver}
}

// closing reports whether only annotations of the update are left to remove: the old controller has adopted the pods, or
// is kept without pods.
func closing(old *corev1.ReplicationController) bool {
	taken := old.Annotations[markTaken]
	return taken != "" && taken == old.Annotations[markNext]
}

// ours reports whether the new controller is part of an update of the old one.
func ours(v view) bool { return v.new.Annotations[markSource] == sourceID(v.old) }

// afterTake cleans up when the old controller has adopted the pods, or is preserved.
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
		return action{kind: wait, why: v.old.Name + " is adopting its pods"}, nil
	}
	return action{kind: forgetOld}, nil
}

// afterOld returns the next action when the old controller does not exist. If the update deleted it at its end, only the
// annotations of the new one are left to remove. If another client deleted it during the update, the run stops with an
// [OrphanedError]; the next run finishes the update under the name of the new controller, or deletes that.
func afterOld(g goal, v view) (action, error) {
	switch {
	case v.new == nil && g.orphaned && g.back:
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
	case !g.orphaned && filled && !g.rename() && !g.back:
		return action{kind: forgetNew}, nil
	case !g.orphaned:
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

// made reports whether the new controller was created for this goal.
func (g goal) made(rc *corev1.ReplicationController) bool {
	if g.promote {
		return true
	}
	if h, found := rc.Annotations[markHash]; found {
		return h == g.hash
	}
	// The server has set defaults for fields that the goal leaves empty.
	_, is := bare(rc.Spec, g.key)
	_, want := bare(g.spec, g.key)
	return apiequality.Semantic.DeepDerivative(want, is)
}

// preserved reports whether an update that keeps the old controller is complete, and its annotations are removed.
func (g goal) preserved(v view) bool {
	return g.cleanup == CleanupPreserve && !g.back && !underWay(v.old) && replicas(v.old) == 0 &&
		v.new.Annotations[markSource] == "" && g.made(v.new)
}

// side returns pods with the replicas of the controller's spec.
func (v view) side(rc *corev1.ReplicationController, pods rolling.Side) rolling.Side {
	pods.Want = replicas(rc)
	return pods
}

// apart reports whether no pod can match both selectors.
func apart(a, b map[string]string) bool {
	for key, value := range a {
		if other, found := b[key]; found && other != value {
			return true
		}
	}
	return false
}

// otherThan returns value, with the suffix if it is taken.
func otherThan(value, taken, suffix string) string {
	if value == taken {
		return strings.TrimSuffix(value, suffix) + suffix
	}
	return value
}
