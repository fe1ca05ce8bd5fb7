package volumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/node/credentials"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/volume"
)

// payload collects the content of a volume.
func (f *Files) payload(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, facts crispec.Facts, p volume.Payload) (time.Time, error) {
	mode := func(m *int32) int32 {
		if m != nil {
			return *m
		}
		return 0o644
	}
	switch {
	case v.ConfigMap != nil:
		return time.Time{}, addConfigMap(p, pod, facts, v.ConfigMap.LocalObjectReference, v.ConfigMap.Items, mode(v.ConfigMap.DefaultMode), v.ConfigMap.Optional)
	case v.Secret != nil:
		return time.Time{}, addSecret(p, pod, facts, v.Secret.SecretName, v.Secret.Items, mode(v.Secret.DefaultMode), v.Secret.Optional)
	case v.DownwardAPI != nil:
		return time.Time{}, p.AddFields(v.DownwardAPI.Items, pod, facts, mode(v.DownwardAPI.DefaultMode))
	}
	var next time.Time
	for i, s := range v.Projected.Sources {
		m := mode(v.Projected.DefaultMode)
		var err error
		switch {
		case s.ConfigMap != nil:
			err = addConfigMap(p, pod, facts, s.ConfigMap.LocalObjectReference, s.ConfigMap.Items, m, s.ConfigMap.Optional)
		case s.Secret != nil:
			err = addSecret(p, pod, facts, s.Secret.Name, s.Secret.Items, m, s.Secret.Optional)
		case s.DownwardAPI != nil:
			err = p.AddFields(s.DownwardAPI.Items, pod, facts, m)
		case s.ClusterTrustBundle != nil:
			var b []byte
			b, err = f.node.References.At(ctx).TrustAnchors(s.ClusterTrustBundle)
			p[s.ClusterTrustBundle.Path] = volume.File{Data: b, Mode: m}
		case s.ServiceAccountToken != nil:
			var refresh time.Time
			refresh, err = f.token(ctx, pod, filepath.Join(f.Path(pod, v), s.ServiceAccountToken.Path), s.ServiceAccountToken, m, p)
			next = sooner(next, refresh)
		case s.PodCertificate != nil:
			var refresh time.Time
			refresh, err = f.certificate(ctx, pod, v, i, m, p)
			next = sooner(next, refresh)
		case s == (corev1.VolumeProjection{}): // valid, and has no files
		default:
			err = errors.New("unsupported source of a projected volume")
		}
		if err != nil {
			return next, err
		}
	}
	return next, nil
}

func addConfigMap(p volume.Payload, pod *corev1.Pod, facts crispec.Facts, ref corev1.LocalObjectReference, items []corev1.KeyToPath, mode int32, optional *bool) error {
	may := optional != nil && *optional
	m, err := facts.Objects.ConfigMap(pod.Namespace, ref.Name)
	switch {
	case err != nil && may:
		return nil
	case err != nil:
		return err
	}
	return p.Add("configmap", volume.OfConfigMap(m), items, mode, may)
}

func addSecret(p volume.Payload, pod *corev1.Pod, facts crispec.Facts, name string, items []corev1.KeyToPath, mode int32, optional *bool) error {
	may := optional != nil && *optional
	s, err := facts.Objects.Secret(pod.Namespace, name)
	switch {
	case err != nil && may:
		return nil
	case err != nil:
		return err
	}
	return p.Add("secret", s.Data, items, mode, may)
}

// private returns a file with a token or a key in it. As in kubelet it is for its owner alone if all containers run as one user,
// whose it is then, or if the pod has an fsGroup, whose members may read it.
func private(pod *corev1.Pod, data []byte, mode int32) volume.File {
	f := volume.File{Data: data, Mode: mode, User: onlyUser(&pod.Spec)}
	if sc := pod.Spec.SecurityContext; f.User != nil || sc != nil && sc.FSGroup != nil {
		f.Mode = 0o600
	}
	return f
}

// onlyUser returns the user as whom all containers run, as far as the specification says; nil if one says nothing, or there are more.
func onlyUser(spec *corev1.PodSpec) (user *int64) {
	of := func(own *corev1.SecurityContext) bool {
		var uid *int64
		if spec.SecurityContext != nil {
			uid = spec.SecurityContext.RunAsUser
		}
		if own != nil && own.RunAsUser != nil {
			uid = own.RunAsUser
		}
		if uid == nil || user != nil && *user != *uid {
			return false
		}
		user = uid
		return true
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if !of(list[i].SecurityContext) {
				return nil
			}
		}
	}
	for i := range spec.EphemeralContainers {
		if !of(spec.EphemeralContainers[i].SecurityContext) {
			return nil
		}
	}
	return user
}

// token puts a service account token into p: the one that is in the volume until
// it is time for a new one.
func (f *Files) token(ctx context.Context, pod *corev1.Pod, file string, s *corev1.ServiceAccountTokenProjection, mode int32, p volume.Payload) (time.Time, error) {
	if f.root == "" {
		return time.Time{}, nil // no process would read it
	}
	if b, err := os.ReadFile(file); err == nil {
		if refresh := volume.Refresh(string(b)); time.Now().Before(refresh) {
			p[s.Path] = private(pod, b, mode)
			return refresh, nil
		}
	}
	of := credentials.Of(pod)
	of.ServiceAccount = cmp.Or(of.ServiceAccount, "default")
	granted, err := requestToken(ctx, f.node.Client, of, s.Audience, s.ExpirationSeconds, "")
	if err != nil {
		return time.Time{}, fmt.Errorf("failed to fetch token: %w", err) // Kubernetes' words
	}
	p[s.Path] = private(pod, []byte(granted.Token), mode)
	return nextToken(granted), nil
}
