package podspec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxSysctlName = 253
	sysctlPattern = `^([a-z0-9][-_a-z0-9]*[a-z0-9]|[a-z0-9])([./][a-z0-9][-_a-z0-9]*[a-z0-9]|[./][a-z0-9])*$`

	// A host's users are of no use to a pod that has users of its own.
	withOwnUsers = "when `hostUsers` is false"
)

// Names of kernel parameters, which /proc/sys spells with slashes and most
// people with dots.
var sysctlName = regexp.MustCompile(sysctlPattern)

func (c *checker) checkPodSecurity(at where) {
	s := c.spec
	if s.ShareProcessNamespace != nil && *s.ShareProcessNamespace && s.HostPID {
		c.invalid(at.child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled")
	}
	if s.HostUsers != nil && !*s.HostUsers {
		for _, f := range []struct {
			name string
			set  bool
		}{{"hostNetwork", s.HostNetwork}, {"hostPID", s.HostPID}, {"hostIPC", s.HostIPC}} {
			if f.set {
				c.forbidden(at.child(f.name), withOwnUsers)
			}
		}
	}
	sc := s.SecurityContext
	if sc == nil {
		return
	}
	at = at.child("securityContext")
	c.checkIDs(sc.RunAsUser, sc.RunAsGroup, at)
	if sc.FSGroup != nil {
		c.each(at.child("fsGroup"), *sc.FSGroup, validation.IsValidGroupID(*sc.FSGroup))
	}
	for i, g := range sc.SupplementalGroups {
		c.each(at.child("supplementalGroups").index(i), g, validation.IsValidGroupID(g))
	}
	if p := sc.SupplementalGroupsPolicy; p != nil {
		supported(&c.report, at.child("supplementalGroupsPolicy"), *p, corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	}
	if p := sc.FSGroupChangePolicy; p != nil {
		requiredOf(&c.report, at.child("fsGroupChangePolicy"), *p, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)
	}
	if p := sc.SELinuxChangePolicy; p != nil {
		requiredOf(&c.report, at.child("seLinuxChangePolicy"), *p, corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)
	}
	c.checkSysctls(sc.Sysctls, at.child("sysctls"))
	c.checkSeccomp(sc.SeccompProfile, at.child("seccompProfile"))
	c.checkAppArmor(sc.AppArmorProfile, at.child("appArmorProfile"))
	c.checkWindows(sc.WindowsOptions, at.child("windowsOptions"))
}

func (c *checker) checkIDs(user, group *int64, at where) {
	if user != nil {
		c.each(at.child("runAsUser"), *user, validation.IsValidUserID(*user))
	}
	if group != nil {
		c.each(at.child("runAsGroup"), *group, validation.IsValidGroupID(*group))
	}
}

func (c *checker) checkSysctls(sysctls []corev1.Sysctl, at where) {
	seen := map[string]bool{}
	for i, s := range sysctls {
		at := at.index(i).child("name")
		switch {
		case s.Name == "":
			c.required(at)
		case len(s.Name) > maxSysctlName || !sysctlName.MatchString(s.Name):
			c.invalid(at, s.Name, fmt.Sprintf("must have at most %d characters and match regex %s", maxSysctlName, sysctlPattern))
		case seen[s.Name]:
			c.add(field.Duplicate(at.path, s.Name))
		}
		seen[s.Name] = true
		name := strings.ReplaceAll(s.Name, "/", ".")
		if c.spec.HostNetwork && strings.HasPrefix(name, "net.") {
			c.invalid(at, s.Name, "may not be specified when 'hostNetwork' is true")
		}
		if c.spec.HostIPC && (strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") || name == "kernel.sem" || strings.HasPrefix(name, "fs.mqueue.")) {
			c.invalid(at, s.Name, "may not be specified when 'hostIPC' is true")
		}
	}
}

func (c *checker) checkSeccomp(p *corev1.SeccompProfile, at where) {
	if p == nil {
		return
	}
	requiredOf(&c.report, at.child("type"), p.Type,
		corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	local := at.child("localhostProfile")
	switch {
	case p.Type == corev1.SeccompProfileTypeLocalhost && p.LocalhostProfile == nil:
		c.add(field.Required(local.path, "must be set when seccomp type is Localhost"))
	case p.Type == corev1.SeccompProfileTypeLocalhost:
		c.checkDescending(*p.LocalhostProfile, local)
	case p.LocalhostProfile != nil:
		c.invalid(local, *p.LocalhostProfile, "can only be set when seccomp type is Localhost")
	}
}

func (c *checker) checkAppArmor(p *corev1.AppArmorProfile, at where) {
	const maxProfile = 4095 // the longest path that the kernel takes
	if p == nil {
		return
	}
	requiredOf(&c.report, at.child("type"), p.Type,
		corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
	local := at.child("localhostProfile")
	switch {
	case p.Type != corev1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile != nil {
			c.invalid(local, *p.LocalhostProfile, "can only be set when AppArmor type is Localhost")
		}
	case p.LocalhostProfile == nil || strings.TrimSpace(*p.LocalhostProfile) == "":
		c.add(field.Required(local.path, "must be set when AppArmor type is Localhost"))
	case strings.TrimSpace(*p.LocalhostProfile) != *p.LocalhostProfile:
		c.invalid(local, *p.LocalhostProfile, "must not be padded with whitespace")
	case len(*p.LocalhostProfile) > maxProfile:
		c.add(field.TooLong(local.path, *p.LocalhostProfile, maxProfile))
	}
}

func (c *checker) checkWindows(o *corev1.WindowsSecurityContextOptions, at where) {
	if o == nil {
		return
	}
	if c.spec.OS != nil && c.spec.OS.Name == corev1.Linux {
		c.forbidden(at, "windows options cannot be set for a linux pod")
	}
	if o.GMSACredentialSpecName != nil {
		c.each(at.child("gmsaCredentialSpecName"), *o.GMSACredentialSpecName, validation.IsDNS1123Subdomain(*o.GMSACredentialSpecName))
	}
	if o.RunAsUserName != nil && *o.RunAsUserName == "" {
		c.invalid(at.child("runAsUserName"), "", "runAsUserName cannot be an empty string")
	}
	if o.HostProcess != nil && *o.HostProcess && !c.spec.HostNetwork {
		c.invalid(at.child("hostProcess"), true, "hostNetwork must be true if pod contains any hostProcess containers")
	}
}

func (c *checker) checkSecurity(sc *corev1.SecurityContext, at where) {
	if sc == nil {
		return
	}
	c.checkIDs(sc.RunAsUser, sc.RunAsGroup, at)
	if sc.ProcMount != nil {
		requiredOf(&c.report, at.child("procMount"), *sc.ProcMount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
		if *sc.ProcMount == corev1.UnmaskedProcMount && (c.spec.HostUsers == nil || *c.spec.HostUsers) {
			c.invalid(at.child("procMount"), *sc.ProcMount, "`hostUsers` must be false to use `Unmasked`")
		}
	}
	c.checkSeccomp(sc.SeccompProfile, at.child("seccompProfile"))
	c.checkAppArmor(sc.AppArmorProfile, at.child("appArmorProfile"))
	c.checkWindows(sc.WindowsOptions, at.child("windowsOptions"))
	if sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation {
		return
	}
	if sc.Privileged != nil && *sc.Privileged {
		c.invalid(at, sc, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
	}
	if sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") {
		c.invalid(at, sc, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN")
	}
}
