package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A filled path is a path in a volume, and the source of its content.
type filled struct{ path, source string }

func (f filled) String() string {
	if f.source == "" {
		return fmt.Sprintf("%q", f.path)
	}
	return fmt.Sprintf("%q (%s)", f.path, f.source)
}

// overlaps warns of paths in volumes of which one is, or contains, another one.
func overlaps(volumes []corev1.Volume) (all []string) {
	for i := range volumes {
		v := &volumes[i]
		check := func(kind string, paths []filled) {
			for _, pair := range overlapping(paths) {
				all = append(all, fmt.Sprintf("volume %q (%s): overlapping paths: %s with %s", v.Name, kind, pair[0], pair[1]))
			}
		}
		if s := v.ConfigMap; s != nil {
			check(fmt.Sprintf("ConfigMap %q", s.Name), keyPaths(s.Items, ""))
		}
		if s := v.Secret; s != nil {
			check(fmt.Sprintf("Secret %q", s.SecretName), keyPaths(s.Items, ""))
		}
		if s := v.DownwardAPI; s != nil {
			check("DownwardAPI", filePaths(s.Items, ""))
		}
		if v.Projected == nil {
			continue
		}
		var paths []filled
		for _, s := range v.Projected.Sources {
			if s == (corev1.VolumeProjection{}) {
				all = append(all, fmt.Sprintf("volume %q (Projected) has no sources provided", v.Name))
				continue
			}
			paths = append(paths, projectedPaths(&s)...)
		}
		check("Projected", paths)
	}
	return all
}

// overlapping returns the paths that overlap with earlier ones, with these.
func overlapping(paths []filled) (pairs [][2]filled) {
	var seen []filled
	for _, p := range paths {
		p.path = strings.TrimRight(p.path, "/")
		for _, s := range seen {
			if p.path != "" && s.path != "" && (strings.HasPrefix(s.path+"/", p.path+"/") || strings.HasPrefix(p.path+"/", s.path+"/")) {
				pairs = append(pairs, [2]filled{p, s})
			}
		}
		seen = append(seen, p)
	}
	return pairs
}

func keyPaths(items []corev1.KeyToPath, source string) (paths []filled) {
	for _, i := range items {
		paths = append(paths, filled{i.Path, source})
	}
	return paths
}

func filePaths(items []corev1.DownwardAPIVolumeFile, source string) (paths []filled) {
	for _, i := range items {
		paths = append(paths, filled{i.Path, source})
	}
	return paths
}

func projectedPaths(s *corev1.VolumeProjection) []filled {
	switch {
	case s.ConfigMap != nil:
		return keyPaths(s.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", s.ConfigMap.Name))
	case s.Secret != nil:
		return keyPaths(s.Secret.Items, fmt.Sprintf("Secret %q", s.Secret.Name))
	case s.DownwardAPI != nil:
		return filePaths(s.DownwardAPI.Items, "DownwardAPI")
	case s.ServiceAccountToken != nil:
		return []filled{{s.ServiceAccountToken.Path, "ServiceAccountToken"}}
	case s.ClusterTrustBundle != nil:
		name := s.ClusterTrustBundle.Name
		if name == nil {
			name = s.ClusterTrustBundle.SignerName
		}
		if name == nil {
			return nil
		}
		return []filled{{s.ClusterTrustBundle.Path, fmt.Sprintf("ClusterTrustBundle %q", *name)}}
	case s.PodCertificate != nil:
		return []filled{
			{s.PodCertificate.CertificateChainPath, "PodCertificate chain"},
			{s.PodCertificate.KeyPath, "PodCertificate key"},
			{s.PodCertificate.CredentialBundlePath, "PodCertificate credential bundle"},
		}
	}
	return nil
}
