package rollout

import corev1 "k8s.io/api/core/v1"

// HolderOf returns who is at the update of a controller.
func HolderOf(rc *corev1.ReplicationController) Holder {
	h, _ := holderOf(rc)
	return h
}
