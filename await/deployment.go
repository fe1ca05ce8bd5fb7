package await

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/internal/names"
)

// judgeDeployment judges by the numbers in its status: its conditions alone would
// not do, since it is Available while it is still replacing pods.
//
// That its progress deadline has passed is a certain failure: the deadline is what
// its author said to be too long. It is one even if pods come to be ready later;
// whoever expects that sets a longer deadline, or waits with FailNever.
//
// A Deployment that asks to be rolled back by itself is given the time for that: its
// failures are likely ones, until what was waited for has been taken back.
//
// The trouble of pods of older revisions does not matter: they are on their way
// out, and are often the reason for the change.
func judgeDeployment(d Degree, o *appsv1.Deployment, v *view) (Verdict, error) {
	var back struct {
		Generation int64
		Message    string
	}
	_ = json.Unmarshal([]byte(o.Annotations[rolledBack]), &back) // a note that cannot be read is none
	if v.awaited > 0 && back.Generation >= v.awaited {
		return Verdict{State: Failed, Certainty: Certain, Cause: events.Line(back.Message), RolledBack: true}, nil
	}
	certainty := Certain
	if o.Annotations[autoRollback] == "true" && o.Annotations[lastGood] != "" {
		certainty = Likely
	}
	r := replicas{
		labels: o.Spec.Template.Labels,
		exist:  o.Status.Replicas, updated: o.Status.UpdatedReplicas, ready: o.Status.ReadyReplicas, word: "ready",
		seen: o.Status.ObservedGeneration >= o.Generation, ending: o.DeletionTimestamp != nil, paused: o.Spec.Paused,
		revisions: true, revision: o.Annotations[deploymentRevision],
	}
	r.asked(o.Spec.Replicas, o.Spec.MinReadySeconds, o.Status.AvailableReplicas)
	r.enough = r.want
	r.keep = r.latest()
	verdict, err := r.judge(d, "Deployment", v)
	if verdict.State == Failed {
		verdict.Certainty = min(verdict.Certainty, certainty)
	}
	if err != nil || verdict.State == Done || !r.seen || r.ending {
		return verdict, err
	}
	for _, c := range o.Status.Conditions {
		switch {
		case c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse:
			return failed(certainty, "%s", events.Reason(c.Reason, c.Message)).because(verdict.Cause), nil
		case c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue && r.ready < r.want:
			return replicaFailure(v, r, c.Reason, c.Message), nil
		}
	}
	return verdict, nil
}

// The annotations of Deployments that are rolled back by themselves.
const (
	autoRollback = names.AutoRollback // "true": the wish
	lastGood     = names.LastGood     // there is something to go back to
	rolledBack   = names.RolledBack   // JSON: what was taken back, and why
)
