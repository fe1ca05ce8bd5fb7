package runtime

import (
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestAppArmorProfilesAreEnforcedOrRefused(t *testing.T) {
	kind := func(t cri.SecurityProfile_ProfileType) *cri.SecurityProfile {
		return &cri.SecurityProfile{ProfileType: t, LocalhostRef: "p"}
	}
	for _, tt := range []struct {
		name                string
		profile             *cri.SecurityProfile
		privileged          bool
		enforced, otherwise bool // whether it is refused where the kernel enforces AppArmor, and elsewhere
	}{
		{"none", nil, false, false, false},
		{"unconfined", kind(cri.SecurityProfile_Unconfined), false, false, false},
		{"default", kind(cri.SecurityProfile_RuntimeDefault), false, false, false},
		{"default, privileged", kind(cri.SecurityProfile_RuntimeDefault), true, false, false},
		{"loaded", kind(cri.SecurityProfile_Localhost), false, false, true},
	} {
		sc := &cri.LinuxContainerSecurityContext{Apparmor: tt.profile, Privileged: tt.privileged}
		if with, without := appArmorFault(sc, true) != "", appArmorFault(sc, false) != ""; with != tt.enforced || without != tt.otherwise {
			t.Errorf("%s: refused %t and %t, want %t and %t", tt.name, with, without, tt.enforced, tt.otherwise)
		}
		names := map[string]string{"default": "sampan-default", "loaded": "p"}
		if with, without := appArmorProfile(sc, true), appArmorProfile(sc, false); with != names[tt.name] || without != "" && tt.name == "default" {
			t.Errorf("%s: profiles %q and %q, want %q", tt.name, with, without, names[tt.name])
		}
	}
}
