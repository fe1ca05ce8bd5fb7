package workload

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/controller/dependents"
	"github.com/sampan-io/sampan/internal/names"
	"github.com/sampan-io/sampan/internal/podstate"
)

// Annotations of a Deployment by which its user asks for more than a plain Deployment
// does; see the package comment.
const (
	autoRollbackAnnotation = names.AutoRollback
	canariesAnnotation     = names.Canaries
	promoteAnnotation      = names.Promote
	abortAnnotation        = names.Abort
)

// Annotations that the controller keeps on such a Deployment.
const (
	lastGoodAnnotation   = names.LastGood   // hash of the template that last completed a rollout
	rolledBackAnnotation = names.RolledBack // the last retreat, a [retreatNote]
	failedAnnotation     = names.Failed     // hashes of templates that were rolled back, oldest first
)

// completedAnnotation is on the ReplicaSets of such a Deployment whose template has completed a rollout. Its value is the
// revision that they had then. `kubectl rollout undo` replaces the annotations of the Deployment, and so drops
// lastGoodAnnotation, by those of the ReplicaSet.
const completedAnnotation = names.Completed

// maxFailed bounds failedAnnotation: older failures are forgotten.
const maxFailed = 10

// conditionRolledBack is true while a Deployment has the template to which the
// controller has taken it back.
const conditionRolledBack appsv1.DeploymentConditionType = "RolledBack"

// conditionCanariesHeld is true while canaries are available and wait for a decision. kubectl waits for the status True of a
// condition, which the condition Progressing does not have then.
const conditionCanariesHeld appsv1.DeploymentConditionType = "CanariesHeld"

// Reasons of that condition, beside reasonTimedOut.
const (
	reasonPodsFail = "PodsFail"
	reasonAborted  = "CanariesAborted"
)

// Reasons of the condition Progressing while canaries are tried out, and afterwards.
const (
	reasonHeld     = "CanariesHeld"
	reasonPromoted = "CanariesPromoted"
)

// A retreatNote is the content of the annotation rolled-back. A client that waits for Generation, or an earlier one, waits
// in vain.
type retreatNote struct {
	Generation int64  `json:"generation"` // of the Deployment that was taken back
	Revision   int64  `json:"revision"`   // that was taken back
	Template   string `json:"template"`   // its hash
	To         string `json:"to"`         // hash of the template that is the present one again
	Reason     string `json:"reason"`
	Message    string `json:"message"`
}

// A retreat takes a Deployment back to a set that worked.
type retreat struct {
	note retreatNote
	to   *appsv1.ReplicaSet
}

// watched says that a Deployment asked for one of the annotations' services.
func watched(d *appsv1.Deployment) bool {
	return d.Annotations[autoRollbackAnnotation] == "true" || d.Annotations[canariesAnnotation] != ""
}

func noteOf(d *appsv1.Deployment) (note retreatNote, ok bool) {
	text, ok := d.Annotations[rolledBackAnnotation]
	return note, ok && json.Unmarshal([]byte(text), &note) == nil
}

// completed reports whether a status is that of a completed rollout.
func completed(s *appsv1.DeploymentStatus) bool {
	c := deploymentCondition(s.Conditions, appsv1.DeploymentProgressing)
	return c != nil && c.Reason == reasonComplete
}

// lastGood returns the hash of the template that last completed a rollout, or "" if it is not known or not needed. The stored
// status belongs to the revision that was stored with it, whatever the present template is.
func (r *rollout) lastGood() string {
	if !watched(r.d) {
		return ""
	}
	if completed(&r.d.Status) {
		for _, p := range r.parts() {
			if n := revisionOf(r.d.Annotations); n > 0 && revisionOf(p.set.Annotations) == n {
				return hashOf(p.set)
			}
		}
	}
	good, last := r.d.Annotations[lastGoodAnnotation], int64(0)
	if good != "" {
		return good
	}
	for _, p := range r.parts() {
		if n := completedRevision(p.set); n > last {
			good, last = hashOf(p.set), n
		}
	}
	return good
}

// completedRevision returns the revision with which the template of a set completed its last rollout; 0 if it did not or
// that is not known.
func completedRevision(set *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(set.Annotations[completedAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// markCompleted plans the annotation of the set whose template last completed a rollout.
func (r *rollout) markCompleted() {
	good := r.lastGood()
	now := completed(&r.d.Status)
	for _, p := range r.parts() {
		n := revisionOf(p.set.Annotations)
		if good == "" || p.made || n == 0 || hashOf(p.set) != good || !now && completedRevision(p.set) > 0 {
			continue
		}
		p.annotations = dependents.With(p.annotations, completedAnnotation, strconv.FormatInt(n, 10))
	}
}

// remember returns the annotations of the Deployment with the values that are written together with the status.
func (r *rollout) remember(s *appsv1.DeploymentStatus) map[string]string {
	annotations := maps.Clone(r.d.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, completedAnnotation) // copied by kubectl rollout undo
	hash := hashOf(r.current.set)
	if note, ok := noteOf(r.d); ok && note.To != hash {
		delete(annotations, rolledBackAnnotation) // there is a new template since
	}
	good := r.lastGood()
	if watched(r.d) && completed(s) {
		good = hash
		if failed := slices.DeleteFunc(failedTemplates(r.d), func(f string) bool { return f == hash }); len(failed) > 0 {
			annotations[failedAnnotation] = strings.Join(failed, ",")
		} else {
			delete(annotations, failedAnnotation)
		}
	}
	if good != "" {
		annotations[lastGoodAnnotation] = good
	}
	return annotations
}

// retreating says that the present template is one to which the controller has gone back.
func (r *rollout) retreating() bool {
	note, ok := noteOf(r.d)
	return ok && r.current != nil && note.To == hashOf(r.current.set)
}

// canaries returns how many pods of the present template there are to be while it is tried out; 0 if it is not.
func (r *rollout) canaries() int32 {
	n, err := strconv.ParseInt(r.d.Annotations[canariesAnnotation], 10, 32)
	if err != nil || n <= 0 || int32(n) >= r.want() || r.current == nil || total(r.old) == 0 ||
		r.d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return 0
	}
	if completedRevision(r.current.set) > 0 || hashOf(r.current.set) == r.lastGood() || r.retreating() {
		return 0 // it has been tried out before
	}
	if r.asked(promoteAnnotation) {
		return 0
	}
	return int32(n)
}

// asked says that an annotation names the present revision.
func (r *rollout) asked(annotation string) bool {
	n, err := strconv.ParseInt(strings.TrimSpace(r.d.Annotations[annotation]), 10, 64)
	return err == nil && r.current != nil && n == revisionOf(r.current.annotations)
}

// tellCanaries sets the condition Progressing of a Deployment whose canaries are available and wait for a decision. For
// other Deployments it does nothing and returns false.
func (r *rollout) tellCanaries(s *appsv1.DeploymentStatus) bool {
	const kind = appsv1.DeploymentProgressing
	n := r.canaries()
	if n > 0 && s.UpdatedReplicas >= n && r.current.available() >= n && total(r.old) <= r.want()-n {
		revision := revisionOf(r.current.annotations)
		r.setCondition(s, kind, corev1.ConditionUnknown, reasonHeld,
			"%d of %d pods run revision %d; annotate %s=%d or %s=%d", s.UpdatedReplicas, r.want(), revision, promoteAnnotation, revision, abortAnnotation, revision)
		return true
	}
	if now := deploymentCondition(s.Conditions, kind); now != nil && now.Reason == reasonHeld {
		r.setCondition(s, kind, corev1.ConditionUnknown, reasonPromoted, "The canaries are promoted")
	}
	return false
}

// tellHeld sets the condition CanariesHeld while the condition Progressing has that reason.
func (r *rollout) tellHeld(s *appsv1.DeploymentStatus) {
	held := deploymentCondition(s.Conditions, appsv1.DeploymentProgressing)
	if held == nil || held.Reason != reasonHeld {
		dropCondition(s, conditionCanariesHeld)
		return
	}
	r.setCondition(s, conditionCanariesHeld, corev1.ConditionTrue, reasonHeld, "%s", held.Message)
}

// tellRetreat sets the condition RolledBack while it holds.
func (r *rollout) tellRetreat(s *appsv1.DeploymentStatus) {
	note, ok := noteOf(r.d)
	if !ok || !r.retreating() {
		dropCondition(s, conditionRolledBack)
		return
	}
	r.setCondition(s, conditionRolledBack, corev1.ConditionTrue, note.Reason, "%s", note.Message)
}

// retreat returns the rollback that is due if the status would be s without it, or nil. A template is rolled back only once, so
// that a client that applies it again does not start a loop, and a template that was the target of a rollback never is.
func (r *rollout) retreat(s *appsv1.DeploymentStatus) *retreat {
	if r.current == nil || r.current.made || r.d.Spec.Paused || r.d.DeletionTimestamp != nil || r.retreating() || r.complete(s) {
		return nil
	}
	hash := hashOf(r.current.set)
	good := r.lastGood()
	i := slices.IndexFunc(r.old, func(p *part) bool { return good != "" && hashOf(p.set) == good })
	if i < 0 || good == hash {
		return nil
	}
	reason, cause := "", ""
	automatic := r.d.Annotations[autoRollbackAnnotation] == "true" && !slices.Contains(failedTemplates(r.d), hash)
	timedOut := deploymentCondition(s.Conditions, appsv1.DeploymentProgressing)
	switch {
	case r.canaries() > 0 && r.asked(abortAnnotation):
		reason, cause = reasonAborted, "its canaries were aborted"
	case !automatic:
		return nil
	case timedOut != nil && timedOut.Reason == reasonTimedOut:
		reason, cause = reasonTimedOut, "it made no progress in time"
	default:
		if cause = r.certainFailure(); cause == "" {
			return nil
		}
		reason = reasonPodsFail
	}
	to := r.old[i].set
	revision := revisionOf(r.current.annotations)
	return &retreat{to: to, note: retreatNote{
		Generation: r.d.Generation, Revision: revision, Template: hash, To: good, Reason: reason,
		Message: fmt.Sprintf("Revision %d was rolled back to revision %d: %s", revision, revisionOf(to.Annotations), cause),
	}}
}

// certainFailure says why a pod of the present template will never work, or "".
func (r *rollout) certainFailure() string {
	for _, pod := range r.pods(r.current.set) {
		if !podstate.Active(pod) {
			continue
		}
		v, err := await.Judge(await.Ready, await.View{Object: pod})
		if err == nil && v.State == await.Failed && v.Certainty == await.Certain {
			return fmt.Sprintf("pod %s: %s", pod.Name, v.Cause)
		}
	}
	return ""
}

func failedTemplates(d *appsv1.Deployment) []string {
	return strings.FieldsFunc(d.Annotations[failedAnnotation], func(r rune) bool { return r == ',' })
}

// apply returns the Deployment as it is after the retreat. One update changes the
// template and the memory of it, so that nothing is half done.
func (t *retreat) apply(d *appsv1.Deployment) (*appsv1.Deployment, error) {
	note, err := json.Marshal(t.note)
	if err != nil {
		return nil, fmt.Errorf("write annotation sampan.dev/rolled-back: %w", err)
	}
	back := d.DeepCopy()
	back.Spec.Template = *bareTemplate(&t.to.Spec.Template)
	back.Annotations = maps.Clone(d.Annotations)
	back.Annotations[rolledBackAnnotation] = string(note)
	back.Annotations[lastGoodAnnotation] = t.note.To
	if t.note.Reason != reasonAborted { // the user who aborts may want to try again
		failed := append(failedTemplates(d), t.note.Template)
		back.Annotations[failedAnnotation] = strings.Join(failed[max(0, len(failed)-maxFailed):], ",")
	}
	return back, nil
}
