package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/runtime/container"
)

// seccompProfile reads the seccomp profile of type Localhost; nil means that the container has none. Privileged containers
// have no profile at all.
func seccompProfile(sc *cri.LinuxContainerSecurityContext) (*specs.LinuxSeccomp, error) {
	p := sc.GetSeccomp()
	if p.GetProfileType() != cri.SecurityProfile_Localhost || sc.GetPrivileged() {
		return nil, nil // none
	}
	f, err := os.Open(p.GetLocalhostRef())
	if err != nil {
		return nil, fmt.Errorf("cannot load seccomp profile %q: %w", p.GetLocalhostRef(), err)
	}
	defer f.Close()
	const limit = 1 << 20 // the largest in use have 30 KB
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && len(b) > limit {
		err = fmt.Errorf("it is larger than %d bytes", limit)
	}
	profile := &specs.LinuxSeccomp{}
	if err == nil {
		err = json.Unmarshal(b, profile)
	}
	if err == nil {
		err = container.CheckSeccomp(profile)
	}
	if err != nil {
		return nil, fmt.Errorf("decoding seccomp profile %q failed: %w", p.GetLocalhostRef(), err)
	}
	return profile, nil
}

// appArmorProfile returns the name of the profile that the container runs under; "" means none.
func appArmorProfile(sc *cri.LinuxContainerSecurityContext, enforced bool) string {
	p := sc.GetApparmor()
	switch {
	case p == nil || sc.GetPrivileged():
	case p.GetProfileType() == cri.SecurityProfile_Localhost:
		return p.GetLocalhostRef()
	case p.GetProfileType() == cri.SecurityProfile_RuntimeDefault && enforced:
		return container.DefaultAppArmor
	}
	return ""
}

// appArmorFault says why a container can't have the AppArmor profile that it asks for, or nothing. Without AppArmor in the kernel the
// default profile is none.
func appArmorFault(sc *cri.LinuxContainerSecurityContext, enforced bool) string {
	if p := sc.GetApparmor(); p != nil && p.GetProfileType() == cri.SecurityProfile_Localhost && !enforced {
		return fmt.Sprintf("the AppArmor profile %q: the kernel does not enforce AppArmor", p.GetLocalhostRef())
	}
	return ""
}

// loadAppArmor loads the profile of a container if it is the default one.
func (s *Server) loadAppArmor(ctx context.Context, profile string) error {
	if profile != container.DefaultAppArmor {
		return nil
	}
	if err := s.supervisor.Spawning(func() error { return container.LoadAppArmor(ctx) }); err != nil {
		return fmt.Errorf("the AppArmor profile RuntimeDefault can't be loaded: %w", err)
	}
	return nil
}

// hiddenPaths returns the paths that a container can't read, or can't write. A request for none is one for the default ones
// unless the pod has users of its own: over the wire, no list and an empty one are the same, and only such a pod can be without.
func hiddenPaths(r *podRecord, paths []string) []string {
	if len(paths) == 0 && r.Users != nil {
		return []string{}
	}
	return paths
}

// maps reports whether the files of a mount belong to the pod's users. An error means that the request names others.
func (p *pod) maps(m *cri.Mount) (bool, error) {
	if len(m.GetUidMappings())+len(m.GetGidMappings()) == 0 {
		return false, nil
	}
	u := p.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	if p.record.Users == nil || !sameIDs(m.GetUidMappings(), u.GetUids()) || !sameIDs(m.GetGidMappings(), u.GetGids()) {
		return false, fmt.Errorf("mount %s: ids can only be mapped to those of the pod's own users", m.GetContainerPath())
	}
	return true, nil
}

func sameIDs(a, b []*cri.IDMapping) bool {
	return len(a) == 1 && len(b) == 1 && proto.Equal(a[0], b[0])
}
