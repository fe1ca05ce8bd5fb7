package workload

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of a Deployment's conditions, as kubectl and others know them.
const (
	reasonAvailable   = "MinimumReplicasAvailable"
	reasonUnavailable = "MinimumReplicasUnavailable"
	reasonCreated     = "NewReplicaSetCreated"
	reasonFound       = "FoundNewReplicaSet"
	reasonNotCreated  = "ReplicaSetCreateError"
	reasonUpdated     = "ReplicaSetUpdated"
	reasonComplete    = "NewReplicaSetAvailable"
	reasonTimedOut    = "ProgressDeadlineExceeded"
	reasonPaused      = "DeploymentPaused"
	reasonResumed     = "DeploymentResumed"
)

func deploymentCondition(conditions []appsv1.DeploymentCondition, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

// setCondition puts a condition in. One that says the same already stays, and its
// transition is that of its status.
func (r *rollout) setCondition(s *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, format string, args ...any) {
	before := deploymentCondition(s.Conditions, kind)
	if before != nil && before.Status == status && before.Reason == reason {
		return
	}
	r.renewCondition(s, kind, status, reason, format, args...)
}

// renewCondition is setCondition that always counts as an update.
func (r *rollout) renewCondition(s *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, format string, args ...any) {
	at := metav1.NewTime(r.now.Truncate(time.Second))
	c := appsv1.DeploymentCondition{
		Type: kind, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...),
		LastUpdateTime: at, LastTransitionTime: at,
	}
	if before := deploymentCondition(s.Conditions, kind); before != nil && before.Status == status {
		c.LastTransitionTime = before.LastTransitionTime
	}
	dropCondition(s, kind)
	s.Conditions = append(s.Conditions, c)
}

func dropCondition(s *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) {
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == kind })
}

// deadline returns how long a Deployment may go without progress, if there is a limit.
func deadline(d *appsv1.Deployment) (time.Duration, bool) {
	p := d.Spec.ProgressDeadlineSeconds
	if p == nil || *p == math.MaxInt32 {
		return 0, false
	}
	return time.Duration(*p) * time.Second, true
}

// complete says that all pods are of the present template, there are as many as wanted,
// and they are available.
func (r *rollout) complete(s *appsv1.DeploymentStatus) bool {
	want := r.want()
	return s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want && s.ObservedGeneration >= r.d.Generation
}

// counts returns the numbers of the status, from those of the sets.
func (r *rollout) counts() appsv1.DeploymentStatus {
	s := *r.d.Status.DeepCopy()
	s.ObservedGeneration = r.d.Generation
	s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas = 0, 0, 0, 0
	terminating, known := int32(0), true
	for _, p := range r.parts() {
		if p.made {
			continue
		}
		t := &p.set.Status
		s.Replicas += t.Replicas
		s.ReadyReplicas += t.ReadyReplicas
		s.AvailableReplicas += t.AvailableReplicas
		if t.TerminatingReplicas != nil {
			terminating += *t.TerminatingReplicas
		} else {
			known = false
		}
	}
	if r.current != nil && !r.current.made {
		s.UpdatedReplicas = r.current.set.Status.Replicas
	}
	s.UnavailableReplicas = max(0, total(r.parts())-s.AvailableReplicas)
	s.TerminatingReplicas = nil
	if known {
		s.TerminatingReplicas = &terminating
	}
	return s
}

// An attempt is how the creation of a ReplicaSet went.
type attempt struct {
	name    string // of the set; empty if none was to be made
	failure error
}

// status returns the wanted status of the Deployment, after made, and when it
// may change by the passing of time alone (0: never).
func (r *rollout) status(made attempt) (s appsv1.DeploymentStatus, after time.Duration) {
	d := r.d
	s = r.counts()
	if d.DeletionTimestamp == nil {
		r.judgeProgress(&s, made)
	}
	if s.AvailableReplicas >= r.limits().Min {
		r.setCondition(&s, appsv1.DeploymentAvailable, corev1.ConditionTrue, reasonAvailable, "Deployment has minimum availability.")
	} else {
		r.setCondition(&s, appsv1.DeploymentAvailable, corev1.ConditionFalse, reasonUnavailable, "Deployment does not have minimum availability.")
	}
	if f := r.replicaFailure(); f != nil {
		r.setCondition(&s, appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, f.Reason, "%s", f.Message)
	} else {
		dropCondition(&s, appsv1.DeploymentReplicaFailure)
	}
	r.tellHeld(&s)
	r.tellRetreat(&s)
	return s, r.patience(&s)
}

// replicaFailure returns the condition ReplicaFailure of the present set, or else of another one.
func (r *rollout) replicaFailure() (found *appsv1.ReplicaSetCondition) {
	for _, p := range r.parts() {
		for i := range p.set.Status.Conditions {
			if c := &p.set.Status.Conditions[i]; c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
				found = c
			}
		}
	}
	return found
}

// judgeProgress sets the condition Progressing.
func (r *rollout) judgeProgress(s *appsv1.DeploymentStatus, made attempt) {
	const kind = appsv1.DeploymentProgressing
	limit, limited := deadline(r.d)
	if !limited {
		dropCondition(s, kind)
		return
	}
	set := func(status corev1.ConditionStatus, reason, format string, args ...any) {
		r.setCondition(s, kind, status, reason, format, args...)
	}
	name, what := r.d.Name, "Deployment"
	if r.current != nil {
		name, what = r.current.set.Name, "ReplicaSet"
	}
	before := deploymentCondition(s.Conditions, kind)
	reason := ""
	if before != nil {
		reason = before.Reason
	}
	switch {
	case r.d.Spec.Paused:
		if reason != reasonTimedOut {
			set(corev1.ConditionUnknown, reasonPaused, "Deployment is paused")
		}
		return
	case reason == reasonPaused:
		set(corev1.ConditionUnknown, reasonResumed, "Deployment is resumed")
	case made.failure != nil:
		set(corev1.ConditionFalse, reasonNotCreated, "Failed to create new replica set %q: %v", made.name, made.failure)
		return
	case made.name != "":
		r.renewCondition(s, kind, corev1.ConditionTrue, reasonCreated, "Created new replica set %q", made.name)
	case r.current != nil && (before == nil || r.turned()):
		r.renewCondition(s, kind, corev1.ConditionTrue, reasonFound, "Found new replica set %q", name)
	}
	if r.tellCanaries(s) {
		return
	}
	if reason == reasonComplete && s.Replicas == s.UpdatedReplicas && !r.turned() {
		return // pods of a completed rollout that come and go are no rollout
	}
	switch now := deploymentCondition(s.Conditions, kind); {
	case r.complete(s):
		set(corev1.ConditionTrue, reasonComplete, "%s %q has successfully progressed.", what, name)
	case progressed(&r.d.Status, s):
		r.renewCondition(s, kind, corev1.ConditionTrue, reasonUpdated, "%s %q is progressing.", what, name)
	case now != nil && now.Reason != reasonComplete && !r.now.Before(now.LastUpdateTime.Add(limit)):
		set(corev1.ConditionFalse, reasonTimedOut, "%s %q has timed out progressing.", what, name)
	}
}

// turned says that the present set is one that was there before and has become the
// present one again.
func (r *rollout) turned() bool {
	return r.current != nil && !r.current.made &&
		revisionOf(r.d.Annotations) != 0 && revisionOf(r.d.Annotations) != revisionOf(r.current.annotations)
}

// progressed says that there are more new pods, fewer old ones, or more that serve.
func progressed(before, now *appsv1.DeploymentStatus) bool {
	return now.UpdatedReplicas > before.UpdatedReplicas ||
		now.Replicas-now.UpdatedReplicas < before.Replicas-before.UpdatedReplicas ||
		now.ReadyReplicas > before.ReadyReplicas ||
		now.AvailableReplicas > before.AvailableReplicas
}

// patience returns how long it is until the deadline; 0 means that none runs.
func (r *rollout) patience(s *appsv1.DeploymentStatus) time.Duration {
	limit, limited := deadline(r.d)
	c := deploymentCondition(s.Conditions, appsv1.DeploymentProgressing)
	if !limited || c == nil || r.d.DeletionTimestamp != nil {
		return 0
	}
	switch c.Reason {
	case reasonComplete, reasonTimedOut, reasonPaused, reasonHeld:
		return 0
	}
	return max(c.LastUpdateTime.Add(limit).Sub(r.now), time.Millisecond)
}

// withStatus returns the Deployment with that status and with the annotations that belong to it, or d as it is if nothing differs.
func (r *rollout) withStatus(s appsv1.DeploymentStatus) *appsv1.Deployment {
	if len(s.Conditions) == 0 {
		s.Conditions = nil
	}
	annotations := r.d.Annotations
	if r.d.DeletionTimestamp == nil && r.current != nil {
		annotations = r.remember(&s)
		if n := revisionOf(r.current.annotations); n > 0 {
			annotations[revisionAnnotation] = strconv.FormatInt(n, 10)
		}
	}
	if equality.Semantic.DeepEqual(s, r.d.Status) && maps.Equal(annotations, r.d.Annotations) {
		return r.d
	}
	updated := r.d.DeepCopy()
	updated.Status, updated.Annotations = s, annotations
	return updated
}
