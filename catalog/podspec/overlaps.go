package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A filled path is a path in a volume, and the source of its content: nothing if that is the volume.
type filled struct {
	path   string
	source origin
}

func (f filled) String() string {
	if f.source == (origin{}) {
		return fmt.Sprintf("%q", f.path)
	}
	return fmt.Sprintf("%q (%s)", f.path, f.source)
}

// An origin is an object, or something that has no name.
type origin struct {
	kind string
	name *string
}

func (o origin) String() string {
	if o.name == nil {
		return o.kind
	}
	return fmt.Sprintf("%s %q", o.kind, *o.name)
}

// overlaps warns of paths in volumes of which one is, or contains, another one.
func overlaps(volumes []corev1.Volume) (all []string) {
	var paths []filled
	for i := range volumes {
		v := &volumes[i]
		check := func(kind origin) {
			for _, pair := range overlapping(paths) {
				all = append(all, fmt.Sprintf("volume %q (%s): overlapping paths: %s with %s", v.Name, kind, pair[0], pair[1]))
			}
			paths = paths[:0]
		}
		if s := v.ConfigMap; s != nil {
			paths = appendKeys(paths, s.Items, origin{})
			check(origin{"ConfigMap", &s.Name})
		}
		if s := v.Secret; s != nil {
			paths = appendKeys(paths, s.Items, origin{})
			check(origin{"Secret", &s.SecretName})
		}
		if s := v.DownwardAPI; s != nil {
			paths = appendFiles(paths, s.Items, origin{})
			check(origin{kind: "DownwardAPI"})
		}
		if v.Projected == nil {
			continue
		}
		for i := range v.Projected.Sources {
			s := &v.Projected.Sources[i]
			if *s == (corev1.VolumeProjection{}) {
				all = append(all, fmt.Sprintf("volume %q (Projected) has no sources provided", v.Name))
				continue
			}
			paths = appendProjected(paths, s)
		}
		check(origin{kind: "Projected"})
	}
	return all
}

// overlapping returns the paths that overlap with earlier ones, with these, up to mostWarnings. It cuts slashes off the ends of paths.
// More than mostCompared paths are not compared.
func overlapping(paths []filled) (pairs [][2]filled) {
	if len(paths) > mostCompared {
		return nil
	}
	for i := range paths {
		p := &paths[i]
		p.path = strings.TrimRight(p.path, "/")
		for j := range paths[:i] {
			if s := &paths[j]; within(p.path, s.path) || within(s.path, p.path) {
				if pairs = append(pairs, [2]filled{*p, *s}); len(pairs) == mostWarnings {
					return pairs
				}
			}
		}
	}
	return pairs
}

// within reports whether a path is another one, or below it.
func within(path, other string) bool {
	return other != "" && strings.HasPrefix(path, other) && (len(path) == len(other) || path[len(other)] == '/')
}

func appendKeys(paths []filled, items []corev1.KeyToPath, source origin) []filled {
	for _, i := range items {
		paths = append(paths, filled{i.Path, source})
	}
	return paths
}

func appendFiles(paths []filled, items []corev1.DownwardAPIVolumeFile, source origin) []filled {
	for _, i := range items {
		paths = append(paths, filled{i.Path, source})
	}
	return paths
}

func appendProjected(paths []filled, s *corev1.VolumeProjection) []filled {
	switch {
	case s.ConfigMap != nil:
		return appendKeys(paths, s.ConfigMap.Items, origin{"ConfigMap", &s.ConfigMap.Name})
	case s.Secret != nil:
		return appendKeys(paths, s.Secret.Items, origin{"Secret", &s.Secret.Name})
	case s.DownwardAPI != nil:
		return appendFiles(paths, s.DownwardAPI.Items, origin{kind: "DownwardAPI"})
	case s.ServiceAccountToken != nil:
		return append(paths, filled{s.ServiceAccountToken.Path, origin{kind: "ServiceAccountToken"}})
	case s.ClusterTrustBundle != nil:
		name := s.ClusterTrustBundle.Name
		if name == nil {
			name = s.ClusterTrustBundle.SignerName
		}
		if name == nil {
			return paths
		}
		return append(paths, filled{s.ClusterTrustBundle.Path, origin{"ClusterTrustBundle", name}})
	case s.PodCertificate != nil:
		return append(paths,
			filled{s.PodCertificate.CertificateChainPath, origin{kind: "PodCertificate chain"}},
			filled{s.PodCertificate.KeyPath, origin{kind: "PodCertificate key"}},
			filled{s.PodCertificate.CredentialBundlePath, origin{kind: "PodCertificate credential bundle"}},
		)
	}
	return paths
}
