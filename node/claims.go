package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fieldselector "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/podstate"
)

// failedPrepare is the reason of events about resource claims.
const failedPrepare = "FailedPrepareDynamicResources"

// resourceClaim reads a claim.
func (n *Node) resourceClaim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	return client.ResourceClaims.Get(ctx, n.opts.Client, namespace, name)
}

// wipeSlices deletes the node's ResourceSlices of a driver; "" means of all drivers.
func (n *Node) wipeSlices(ctx context.Context, driver string) error {
	selector := fieldselector.Set{resourcev1.ResourceSliceSelectorNodeName: n.opts.Name}
	if driver != "" {
		selector[resourcev1.ResourceSliceSelectorDriver] = driver
	}
	list, _, err := client.ResourceSlices.List(ctx, n.opts.Client, "", metav1.ListOptions{FieldSelector: selector.String()})
	if apierrors.IsNotFound(err) {
		return nil // the API server has no such kind
	}
	if err != nil {
		return err
	}
	for _, s := range list {
		err := client.ResourceSlices.Delete(ctx, n.opts.Client, "", s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// nudge makes the workers of pods look again.
func (n *Node) nudge(pods []types.UID) {
	n.workers.mu.Lock()
	defer n.workers.mu.Unlock()
	for _, uid := range pods {
		if w := n.workers.all[uid]; w != nil {
			w.nudge()
		}
	}
}

// unprepared handles the result of unpreparing the pod's claims.
func (w *worker) unprepared(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		w.log.Warn("resource claims of the pod not unprepared, will try again", "err", err)
		w.postpone("unprepare")
	}
}

// claimsChanged ends the pause before the next attempt to set up the pod if its claims have got their names.
func (w *worker) claimsChanged(pod *corev1.Pod) {
	if m := &w.view.Memory; m.Setup.Reason == failedPrepare && (len(pod.Status.ResourceClaimStatuses) != len(w.view.Pod.Status.ResourceClaimStatuses) ||
		!equality.Semantic.DeepEqual(pod.Status.ExtendedResourceClaimStatus, w.view.Pod.Status.ExtendedResourceClaimStatus)) {
		m.Setup.Retry = time.Time{}
	}
}

// reportable returns the status for the API server. The end of a pod is held back until its claims are unprepared, as in kubelet:
// devices of a pod that has ended are free for others.
func (w *worker) reportable() corev1.PodStatus {
	s, sent := w.view.Last, &w.rep.sent
	if w.view.Memory.Prepared && podstate.FinishedIn(&s) && !podstate.FinishedIn(sent) {
		s.Phase, s.Reason, s.Message = sent.Phase, sent.Reason, sent.Message
	}
	return s
}

// describeDevices adds the health of devices to the statuses of containers, and returns when that changes.
func (w *worker) describeDevices(s *corev1.PodStatus, now time.Time) time.Time {
	var next time.Time
	for i := range min(len(s.ContainerStatuses), len(w.view.Pod.Spec.Containers)) {
		c := &w.view.Pod.Spec.Containers[i]
		var all []corev1.ResourceStatus
		if w.n.plugins.devices != nil {
			all = w.n.plugins.devices.Status(w.uid, c.Name)
		}
		if w.n.plugins.claims != nil && len(c.Resources.Claims) > 0 {
			claimed, changes := w.n.plugins.claims.Status(w.view.Pod, c, now)
			all = append(all, claimed...)
			next = earliest(next, changes)
		}
		if status := &s.ContainerStatuses[i]; len(all) > 0 && status.Name == c.Name {
			status.AllocatedResourcesStatus = all
		}
	}
	return next
}
