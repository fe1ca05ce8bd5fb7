package workload

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller/dependents"
)

// Expand returns the pods that an object results in, with unique names: a pod itself, the replicas of a workload, or the pods
// of a Job that run at the same time. It returns none for other kinds. The object has its defaults and a UID, and is shared
// with the pods.
func Expand(obj client.Object) (pods []*corev1.Pod) {
	replicas := func(n *int32, template *corev1.PodTemplateSpec) []*corev1.Pod {
		for i := range *n {
			pod := dependents.PodFrom(obj, template)
			pod.Name = fmt.Sprintf("%s-%d", obj.GetName(), i)
			pods = append(pods, pod)
		}
		return pods
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		return []*corev1.Pod{o}
	case *corev1.ReplicationController:
		return replicas(o.Spec.Replicas, o.Spec.Template)
	case *appsv1.ReplicaSet:
		return replicas(o.Spec.Replicas, &o.Spec.Template)
	case *appsv1.Deployment:
		return replicas(o.Spec.Replicas, &o.Spec.Template)
	case *appsv1.StatefulSet:
		return replicas(o.Spec.Replicas, &o.Spec.Template)
	case *batchv1.Job:
		n := *o.Spec.Parallelism
		if o.Spec.Completions != nil {
			n = min(n, *o.Spec.Completions)
		}
		if o.Spec.Suspend != nil && *o.Spec.Suspend {
			n = 0
		}
		return replicas(&n, &o.Spec.Template)
	}
	return nil
}
