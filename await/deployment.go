package await

import (
	"encoding/json"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/names"
)

var deploymentRules = rulesFor(appsv1.SchemeGroupVersion.WithKind("Deployment"), rules[*appsv1.Deployment]{
	judge: judgeDeployment,
	place: func(f *forest, n *node, o *appsv1.Deployment) {
		f.deployments[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = n
	},
	slim: func(o *appsv1.Deployment) client.Object {
		c := *o
		c.ManagedFields, c.Spec.Template = nil, labelsOf(o.Spec.Template)
		return &c
	},
	parts: func(d Degree, o *appsv1.Deployment, troubled []*node) []*node {
		revision := o.Annotations[deploymentRevision]
		if d != Ready || revision == "" {
			return troubled
		}
		return slices.DeleteFunc(slices.Clone(troubled), func(t *node) bool { return t.revision != revision })
	},
	explain: func(x *explainer, o *appsv1.Deployment) {
		x.followParts(replicaSets, text(o.Spec.Selector))
		x.followParts(client.Pods.GroupVersionResource, text(o.Spec.Selector))
	},
	revision: func(part client.Object) string { return part.GetAnnotations()[deploymentRevision] },
	served:   true,
})

// deploymentRevision is the annotation of a Deployment and its replica sets with their revision.
const deploymentRevision = "deployment.kubernetes.io/revision"

// judgeDeployment judges a Deployment by the numbers in its status. Its conditions are not enough, because it is
// Available while it is still replacing pods.
//
// An exceeded progress deadline is a certain failure, even if pods become ready later. Users who expect that set a
// longer deadline, or wait with FailNever.
//
// The failures of a Deployment with the auto-rollback annotation are likely ones until it has been rolled back, so that
// the wait does not end before.
//
// Problems of pods of older revisions are ignored: these pods are about to be deleted, and are often the reason for
// the change.
func judgeDeployment(d Degree, o *appsv1.Deployment, v *view) (Verdict, error) {
	var back struct {
		Generation int64
		Message    string
	}
	_ = json.Unmarshal([]byte(o.Annotations[rolledBack]), &back) // an annotation that cannot be parsed is ignored
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
		case c.Type == appsv1.DeploymentProgressing && c.Reason == canariesHeld && verdict.State == Waiting && (d == Ready || d == OldGone || d == Serving):
			return waiting("%s", events.Reason(c.Reason, c.Message)), nil
		case c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse:
			return failed(certainty, "%s", events.Reason(c.Reason, c.Message)).because(verdict.Cause), nil
		case c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue && r.ready < r.want:
			return replicaFailure(v, r, c.Reason, c.Message), nil
		}
	}
	return verdict, nil
}

// The annotations of Deployments with automatic rollback.
const (
	autoRollback = names.AutoRollback // "true" asks for it
	lastGood     = names.LastGood     // the revision to go back to; without it there is no rollback
	rolledBack   = names.RolledBack   // JSON: the generation that was rolled back, and the reason
)

// canariesHeld is the reason of the condition Progressing while canaries wait to be promoted or aborted.
const canariesHeld = "CanariesHeld"
