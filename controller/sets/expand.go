package sets

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Expand returns the pods that a DaemonSet has on the given nodes, with unique names: one for each eligible node. The set has
// its defaults and a UID, and is shared with the pods.
func Expand(set *appsv1.DaemonSet, nodes []*corev1.Node) (pods []*corev1.Pod) {
	for _, node := range nodes {
		if run, _ := eligible(&set.Spec.Template, node); run {
			pod := daemonFrom(set, "", node.Name)
			delete(pod.Labels, revisionLabel)
			pod.Name = set.Name + "-" + node.Name
			pods = append(pods, pod)
		}
	}
	return pods
}
