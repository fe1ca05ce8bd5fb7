package podspec

import corev1 "k8s.io/api/core/v1"

// DropClosed takes the fields out of spec whose gate is closed by default in
// v1.37, as if they had not been written.
func DropClosed(spec *corev1.PodSpec) {
	DropClosedShared(spec)
	for i := range spec.EphemeralContainers {
		dropClosedMounts(spec.EphemeralContainers[i].VolumeMounts)
		dropStopSignal(spec, &spec.EphemeralContainers[i].Lifecycle)
	}
	for c := range containers(spec) {
		dropClosedMounts(c.VolumeMounts)
		dropStopSignal(spec, &c.Lifecycle)
		for _, h := range handlers(c) {
			if h.http != nil {
				h.http.Protocol = nil
			}
			if h.grpc != nil {
				h.grpc.Mode = nil
			}
		}
	}
	for i := range spec.Volumes {
		dropClosedVolume(&spec.Volumes[i].VolumeSource)
	}
}

// DropClosedShared is [DropClosed] for a copy of a spec that shares its containers and volumes with another one, which
// has no closed fields.
func DropClosedShared(spec *corev1.PodSpec) {
	spec.SchedulingGroup = nil
	spec.EvictionResponders = nil
}

// dropStopSignal drops the signal by which a container of spec is stopped, if the spec does not name its operating
// system. Upstream's gate ContainerStopSignals is closed in v1.37, so that upstream drops all of them. Here the signals
// work; but where they are kept, the API requires spec.os.
func dropStopSignal(spec *corev1.PodSpec, l **corev1.Lifecycle) {
	if spec.OS != nil || *l == nil || (*l).StopSignal == nil {
		return
	}
	(*l).StopSignal = nil
	if **l == (corev1.Lifecycle{}) {
		*l = nil
	}
}

func dropClosedMounts(mounts []corev1.VolumeMount) {
	for i := range mounts {
		mounts[i].BindMountOptions = nil
	}
}

func dropClosedVolume(s *corev1.VolumeSource) {
	if s.EmptyDir != nil {
		s.EmptyDir.Mode = nil
	}
	if s.Secret != nil {
		s.Secret.DefaultUser = nil
		dropKeyUsers(s.Secret.Items)
	}
	if s.ConfigMap != nil {
		s.ConfigMap.DefaultUser = nil
		dropKeyUsers(s.ConfigMap.Items)
	}
	if s.DownwardAPI != nil {
		s.DownwardAPI.DefaultUser = nil
		dropFileUsers(s.DownwardAPI.Items)
	}
	if s.Projected == nil {
		return
	}
	s.Projected.DefaultUser = nil
	for _, p := range s.Projected.Sources {
		switch {
		case p.Secret != nil:
			dropKeyUsers(p.Secret.Items)
		case p.ConfigMap != nil:
			dropKeyUsers(p.ConfigMap.Items)
		case p.DownwardAPI != nil:
			dropFileUsers(p.DownwardAPI.Items)
		case p.ServiceAccountToken != nil:
			p.ServiceAccountToken.User = nil
		case p.ClusterTrustBundle != nil:
			p.ClusterTrustBundle.User = nil
		case p.PodCertificate != nil:
			p.PodCertificate.User = nil
		}
	}
}

func dropKeyUsers(items []corev1.KeyToPath) {
	for i := range items {
		items[i].User = nil
	}
}

func dropFileUsers(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		items[i].User = nil
	}
}

// A handler is the action of a probe or a hook.
type handler struct {
	http *corev1.HTTPGetAction
	grpc *corev1.GRPCAction
}

func handlers(c *corev1.Container) []handler {
	var all []handler
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p != nil {
			all = append(all, handler{p.HTTPGet, p.GRPC})
		}
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				all = append(all, handler{http: h.HTTPGet})
			}
		}
	}
	return all
}
