package crispec

import (
	"errors"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Seccomp is how a node handles seccomp profiles. The zero value has no profiles in files, and lets a container without a
// profile make all system calls, as kubelet does by default.
type Seccomp struct {
	// Root is the directory of the profiles of type Localhost.
	Root string
	// Default gives containers without a profile that of the runtime, like kubelet's seccompDefault.
	Default bool
}

// profile returns a profile for the runtime; p may be nil.
func (s Seccomp) profile(p *corev1.SeccompProfile) (*cri.SecurityProfile, error) {
	switch {
	case p == nil && s.Default, p != nil && p.Type == corev1.SeccompProfileTypeRuntimeDefault:
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}, nil
	case p == nil || p.Type != corev1.SeccompProfileTypeLocalhost:
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}, nil
	case p.LocalhostProfile == nil || *p.LocalhostProfile == "":
		return nil, errors.New("localhostProfile must be set if seccompProfile type is Localhost.") //nolint:staticcheck // kubelet's words
	case s.Root == "":
		return nil, errors.New("seccomp profiles of type Localhost need a directory for them, and this node has none")
	case !filepath.IsLocal(*p.LocalhostProfile):
		return nil, errors.New("localhostProfile must be a path below the directory of the profiles")
	}
	return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: filepath.Join(s.Root, *p.LocalhostProfile)}, nil
}
