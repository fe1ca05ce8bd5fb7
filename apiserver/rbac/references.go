package rbac

import corev1 "k8s.io/api/core/v1"

// secrets calls found with the name of every secret in its own namespace that
// the pod names; a name may come more than once, or be empty.
func secrets(pod *corev1.Pod, found func(name string)) {
	for _, ref := range pod.Spec.ImagePullSecrets {
		found(ref.Name)
	}
	local := func(ref *corev1.LocalObjectReference) {
		if ref != nil {
			found(ref.Name)
		}
	}
	environment(pod, func(from corev1.EnvFromSource) {
		if from.SecretRef != nil {
			found(from.SecretRef.Name)
		}
	}, func(from *corev1.EnvVarSource) {
		if from.SecretKeyRef != nil {
			found(from.SecretKeyRef.Name)
		}
	})
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i].VolumeSource; {
		case v.Secret != nil:
			found(v.Secret.SecretName)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.Secret != nil {
					found(s.Secret.Name)
				}
			}
		case v.CSI != nil:
			local(v.CSI.NodePublishSecretRef)
		case v.ISCSI != nil:
			local(v.ISCSI.SecretRef)
		case v.FlexVolume != nil:
			local(v.FlexVolume.SecretRef)
		case v.CephFS != nil:
			local(v.CephFS.SecretRef)
		case v.RBD != nil:
			local(v.RBD.SecretRef)
		case v.Cinder != nil:
			local(v.Cinder.SecretRef)
		case v.ScaleIO != nil:
			local(v.ScaleIO.SecretRef)
		case v.StorageOS != nil:
			local(v.StorageOS.SecretRef)
		case v.AzureFile != nil:
			found(v.AzureFile.SecretName)
		}
	}
}

// configMaps does the same for config maps.
func configMaps(pod *corev1.Pod, found func(name string)) {
	environment(pod, func(from corev1.EnvFromSource) {
		if from.ConfigMapRef != nil {
			found(from.ConfigMapRef.Name)
		}
	}, func(from *corev1.EnvVarSource) {
		if from.ConfigMapKeyRef != nil {
			found(from.ConfigMapKeyRef.Name)
		}
	})
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i].VolumeSource; {
		case v.ConfigMap != nil:
			found(v.ConfigMap.Name)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					found(s.ConfigMap.Name)
				}
			}
		}
	}
}

// environment calls whole and one for the sources of the environments of all containers.
func environment(pod *corev1.Pod, whole func(corev1.EnvFromSource), one func(*corev1.EnvVarSource)) {
	visit := func(envFrom []corev1.EnvFromSource, env []corev1.EnvVar) {
		for _, from := range envFrom {
			whole(from)
		}
		for i := range env {
			if env[i].ValueFrom != nil {
				one(env[i].ValueFrom)
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		visit(pod.Spec.InitContainers[i].EnvFrom, pod.Spec.InitContainers[i].Env)
	}
	for i := range pod.Spec.Containers {
		visit(pod.Spec.Containers[i].EnvFrom, pod.Spec.Containers[i].Env)
	}
	for i := range pod.Spec.EphemeralContainers {
		visit(pod.Spec.EphemeralContainers[i].EnvFrom, pod.Spec.EphemeralContainers[i].Env)
	}
}
