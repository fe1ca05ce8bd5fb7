package workload

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
)

// Expand returns the pods that an object stands for once its controllers have done their
// work on a cluster of the given nodes: a pod itself, the replicas of what has
// replicas, the pods of a Job that run at the same time, one pod of a DaemonSet for each
// node that it is for. They have names that tell them apart. Of an object of another kind
// there are none, and known is false. The object has its defaults and a UID, and is
// shared with the pods.
func Expand(obj client.Object, nodes []*corev1.Node) (pods []*corev1.Pod, known bool) {
	replicas := func(n *int32, template *corev1.PodTemplateSpec) []*corev1.Pod {
		for i := range *n {
			pod := podFrom(obj, template)
			pod.Name = fmt.Sprintf("%s-%d", obj.GetName(), i)
			pods = append(pods, pod)
		}
		return pods
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		return []*corev1.Pod{o}, true
	case *corev1.ReplicationController:
		return replicas(o.Spec.Replicas, o.Spec.Template), true
	case *appsv1.ReplicaSet:
		return replicas(o.Spec.Replicas, &o.Spec.Template), true
	case *appsv1.Deployment:
		return replicas(o.Spec.Replicas, &o.Spec.Template), true
	case *appsv1.StatefulSet:
		return replicas(o.Spec.Replicas, &o.Spec.Template), true
	case *batchv1.Job:
		n := *o.Spec.Parallelism
		if o.Spec.Completions != nil {
			n = min(n, *o.Spec.Completions)
		}
		if o.Spec.Suspend != nil && *o.Spec.Suspend {
			n = 0
		}
		return replicas(&n, &o.Spec.Template), true
	case *appsv1.DaemonSet:
		for _, node := range nodes {
			if run, _ := eligible(&o.Spec.Template, node); run {
				pod := daemonFrom(o, "", node.Name)
				delete(pod.Labels, revisionLabel)
				pod.Name = o.Name + "-" + node.Name
				pods = append(pods, pod)
			}
		}
		return pods, true
	}
	return nil, false
}
