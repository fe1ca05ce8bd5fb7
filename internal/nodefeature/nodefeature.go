// Package nodefeature names the features that Sampan's node agent declares in the status of its node (KEP-5328), and finds the
// features that a pod, or an update of a pod, needs from its node.
//
// The rules are upstream's, from module k8s.io/component-helpers, so that pods are treated alike on nodes with another kubelet.
package nodefeature

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures/features"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/extendwebsocketstokubelet"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/inplacepodresize"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/restartallcontainers"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
)

// Declared returns the features that Sampan's node agent declares, sorted: those of upstream's kubelet with its default gates.
// webSockets says that its runtime serves the newest protocols of WebSockets, as Sampan's does. For others the API server ends these
// (decision 0048).
func Declared(webSockets bool) []string {
	declared := []string{
		inplacepodresize.IPPRPodLevelResourcesFeatureGate,
		inplacepodresize.IPPRInitContainersFeatureGate,
		restartallcontainers.RestartAllContainersOnContainerExits,
	}
	if webSockets {
		declared = slices.Insert(declared, 0, extendwebsocketstokubelet.ExtendWebSocketsToKubeletFeatureGate)
	}
	return declared
}

// Required returns the features that a node needs to run a pod, sorted; nil if it needs none. It allocates nothing for most pods.
func Required(spec *corev1.PodSpec) []string {
	if ordinary(spec) {
		return nil
	}
	pod := &types.PodInfo{Spec: spec}
	return those(func(f types.Feature) bool { return f.InferForScheduling(pod) })
}

// ordinary reports whether a pod has none of the fields by which pods need features. The rules of the library would be called with a
// copy on the heap, for each pod that is scheduled.
func ordinary(spec *corev1.PodSpec) bool {
	if spec.HostNetwork && spec.HostUsers != nil && !*spec.HostUsers || len(spec.EphemeralContainers) > 0 {
		return false
	}
	for _, list := range [...][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if len(list[i].RestartPolicyRules) > 0 {
				return false
			}
			for j := range list[i].VolumeMounts {
				if len(list[i].VolumeMounts[j].BindMountOptions) > 0 {
					return false
				}
			}
		}
	}
	return true
}

// RequiredByUpdate returns the features that a node needs for the change of a pod from old to pod, sorted; nil if it needs none.
// The pods must have the same containers and volumes in the same order, as valid updates do.
func RequiredByUpdate(old, pod *corev1.Pod) []string {
	if len(old.Spec.InitContainers) != len(pod.Spec.InitContainers) {
		return nil
	}
	spec := pod.Spec
	spec.InitContainers = settled(old.Spec.InitContainers, spec.InitContainers)
	before, after := &types.PodInfo{Spec: &old.Spec, Status: &old.Status}, &types.PodInfo{Spec: &spec, Status: &pod.Status}
	return those(func(f types.Feature) bool { return f.InferForUpdate(before, after) })
}

// settled returns the containers of list with the resources of old where these are equal. Upstream compares those of init
// containers by their representation, in which equal quantities can differ.
func settled(old, list []corev1.Container) []corev1.Container {
	if len(list) == 0 {
		return nil
	}
	list = slices.Clone(list)
	for i := range list {
		if equality.Semantic.DeepEqual(list[i].Resources, old[i].Resources) {
			list[i].Resources = old[i].Resources
		}
	}
	return list
}

// those returns the names of the features that are needed. A feature has a last version in which nodes without it are expected,
// if upstream has set one.
func those(needed func(types.Feature) bool) []string {
	var names []string
	for _, f := range features.AllFeatures {
		if needed(f) && (f.MaxVersion() == nil || !version.MajorMinor(1, 37).GreaterThan(f.MaxVersion())) {
			names = append(names, f.Name())
		}
	}
	slices.Sort(names)
	return names
}

// Missing returns the required features that are not declared, in the order of required; nil if there are none.
func Missing(required, declared []string) []string {
	var missing []string
	for _, name := range required {
		if !slices.Contains(declared, name) {
			missing = append(missing, name)
		}
	}
	return missing
}
