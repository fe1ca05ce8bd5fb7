package await

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/names"
)

var replicationControllerRules = rulesFor(corev1.SchemeGroupVersion.WithKind("ReplicationController"), rules[*corev1.ReplicationController]{
	judge: judgeReplicationController,
	place: func(f *forest, n *node, rc *corev1.ReplicationController) { f.follows(n, replacedBy(rc)) },
	slim: func(rc *corev1.ReplicationController) client.Object {
		c := *rc
		c.ManagedFields = nil
		if rc.Spec.Template != nil {
			template := labelsOf(*rc.Spec.Template)
			c.Spec.Template = &template
		}
		return &c
	},
	explain: func(x *explainer, rc *corev1.ReplicationController) {
		x.followParts(client.Pods.GroupVersionResource, labels.SelectorFromSet(rc.Spec.Selector).String())
	},
	served: true,
})

// The annotations of a ReplicationController that name the one whose pods it replaces, as NAME:UID: kubectl's during the
// update, Sampan's after it.
const (
	updateSource = "kubectl.kubernetes.io/update-source-id"
	replaced     = names.RolloutReplaced
)

// replacedBy returns the UID of the controller whose pods rc replaces, or "".
func replacedBy(rc *corev1.ReplicationController) types.UID {
	for _, key := range []string{updateSource, replaced} {
		if _, uid, found := strings.Cut(rc.Annotations[key], ":"); found && uid != "" {
			return types.UID(uid)
		}
	}
	return ""
}

// judgeReplicationController judges a ReplicationController by the numbers in its status. Its old pods are its
// terminating pods and the pods of the controller that a rolling update replaced by it.
func judgeReplicationController(d Degree, rc *corev1.ReplicationController, v *view) (Verdict, error) {
	r := replicas{
		exist: rc.Status.Replicas, ready: rc.Status.ReadyReplicas, word: "ready",
		seen: rc.Status.ObservedGeneration >= rc.Generation, ending: rc.DeletionTimestamp != nil,
	}
	r.asked(rc.Spec.Replicas, rc.Spec.MinReadySeconds, rc.Status.AvailableReplicas)
	if rc.Spec.Template != nil {
		r.labels = rc.Spec.Template.Labels
	}
	if v.node.before != nil {
		r.before = v.of(v.node.before).allPods()
	}
	verdict, err := r.judge(d, "ReplicationController", v)
	if err != nil || verdict.State == Done || !r.seen || r.ending || r.ready >= r.want {
		return verdict, err
	}
	for _, c := range rc.Status.Conditions {
		if c.Type == corev1.ReplicationControllerReplicaFailure && c.Status == corev1.ConditionTrue {
			return replicaFailure(v, r, c.Reason, c.Message), nil
		}
	}
	return verdict, nil
}
