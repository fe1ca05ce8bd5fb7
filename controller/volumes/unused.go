package volumes

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/volumefit"
)

// planUnused returns new conditions of a claim, which say since when no pod uses it (KEP-5541), if they differ from its
// present ones. Only a bound claim has that condition.
func planUnused(c *corev1.PersistentVolumeClaim, used bool, now time.Time) (conditions []corev1.PersistentVolumeClaimCondition, differ bool) {
	want := corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
		Reason: "NoPodsUsingPVC", Message: "No pods are currently referencing this PVC",
	}
	if used {
		want.Status, want.Reason, want.Message = corev1.ConditionFalse, "PodUsingPVC", "A pod is currently referencing this PVC"
	}
	at := slices.IndexFunc(c.Status.Conditions, func(o corev1.PersistentVolumeClaimCondition) bool { return o.Type == want.Type })
	switch {
	case c.DeletionTimestamp != nil || c.Status.Phase != corev1.ClaimBound, at >= 0 && c.Status.Conditions[at].Status == want.Status:
		return nil, false
	case at < 0:
		return append(slices.Clip(c.Status.Conditions), want), true
	}
	conditions = slices.Clone(c.Status.Conditions)
	conditions[at] = want
	return conditions, true
}

// names reports whether a pod that has not ended names a claim, if it has a node or not.
func names(pod *corev1.Pod, c *corev1.PersistentVolumeClaim) bool {
	return !podstate.Finished(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		name, ephemeral := volumefit.Named(pod, &v)
		return name == c.Name && (!ephemeral || volumefit.Owned(pod, c) == nil)
	})
}

// named reports whether a pod in the cache names a claim. A pod that the cache does not have yet changes that when it comes.
func (p *protector) named(c *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(p.pods.ByIndex(byClaim, c.Namespace+"/"+c.Name), func(pod *corev1.Pod) bool { return names(pod, c) })
}

// reportUnused writes the condition of a claim, if it has changed, and returns the claim; nil if it is gone.
func (p *protector) reportUnused(ctx context.Context, c *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	conditions, differ := planUnused(c, p.named(c), time.Now())
	if !differ {
		return c, nil
	}
	next := c.DeepCopy()
	next.Status.Conditions = conditions
	return p.updateClaim(ctx, next, "status")
}
