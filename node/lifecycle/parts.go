package lifecycle

import corev1 "k8s.io/api/core/v1"

// EachResizable calls f for each container of a pod whose resources can change while it runs.
func EachResizable(pod *corev1.Pod, f func(*corev1.Container)) {
	for i := range pod.Spec.InitContainers {
		f(&pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		f(&pod.Spec.Containers[i])
	}
}

// ClassOf returns the quality of service class in the pod's status, or the one that its specification has.
func ClassOf(pod *corev1.Pod) corev1.PodQOSClass {
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass
	}
	return QOS(pod)
}

// A RejectionError is the error of a pod that was admitted, and that its node turned out to be unable to run.
type RejectionError struct{ Rejection }

func (r *RejectionError) Error() string { return r.Message }

// Observed is the state of a pod when its worker last read it.
type Observed struct {
	Pod        *corev1.Pod // with the status that the worker computed
	Sandboxes  []Sandbox
	Containers []Container
	Mounted    bool // the pod has volumes on the node, or may have
	Over       bool // the worker has ended
}
