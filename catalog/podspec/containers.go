package podspec

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Containers returns the names and the images of the containers of a template,
// separated by commas, as tables print them.
func Containers(t *corev1.PodTemplateSpec) (names, images string) {
	if t == nil {
		return "", ""
	}
	var n, i []string
	for _, c := range t.Spec.Containers {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}

func (c *checker) checkContainers(at where) {
	s := c.spec
	names := map[string]bool{}
	main := at.child("containers")
	if len(s.Containers) == 0 {
		c.required(main)
	}
	for i := range s.Containers {
		c.checkContainer(&s.Containers[i], main.index(i), names)
		c.checkProbes(&s.Containers[i], main.index(i))
		c.checkLifecycle(s.Containers[i].Lifecycle, main.index(i).child("lifecycle"))
	}
	for i := range s.InitContainers {
		ctr, at := &s.InitContainers[i], at.child("initContainers").index(i)
		c.checkContainer(ctr, at, names)
		if RunsBeside(ctr) {
			c.checkProbes(ctr, at)
			c.checkLifecycle(ctr.Lifecycle, at.child("lifecycle"))
			continue
		}
		for j, p := range ctr.ResizePolicy {
			if p.RestartPolicy == corev1.RestartContainer {
				c.invalid(at.child("resizePolicy").index(j).child("restartPolicy"), p.RestartPolicy, "must not be set to 'RestartContainer' for non-sidecar initContainers")
			}
		}
		for name, set := range map[string]bool{
			"lifecycle":      ctr.Lifecycle != nil,
			"livenessProbe":  ctr.LivenessProbe != nil,
			"readinessProbe": ctr.ReadinessProbe != nil,
			"startupProbe":   ctr.StartupProbe != nil,
		} {
			if set {
				c.forbidden(at.child(name), "may not be set for init containers without restartPolicy=Always")
			}
		}
	}
	c.checkHostPorts(main)
	c.checkEphemeralContainers(at.child("ephemeralContainers"), names)
}

// checkContainer checks the fields that all containers share. names are those seen so far.
func (c *checker) checkContainer(ctr *corev1.Container, at where, names map[string]bool) {
	c.name(at.child("name"), ctr.Name, validation.IsDNS1123Label)
	if names[ctr.Name] {
		c.add(field.Duplicate(at.child("name").path, ctr.Name))
	}
	names[ctr.Name] = true
	c.checkImage(ctr.Image, at.child("image"))
	requiredOf(&c.report, at.child("imagePullPolicy"), ctr.ImagePullPolicy,
		corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
	requiredOf(&c.report, at.child("terminationMessagePolicy"), ctr.TerminationMessagePolicy,
		corev1.TerminationMessageFallbackToLogsOnError, corev1.TerminationMessageReadFile)
	c.checkPorts(ctr.Ports, at.child("ports"))
	c.checkEnv(ctr, at)
	c.checkMounts(ctr, at)
	c.checkResources(&ctr.Resources, at.child("resources"))
	c.checkResizePolicy(ctr, at.child("resizePolicy"))
	c.checkSecurity(ctr.SecurityContext, at.child("securityContext"))
	c.checkRestartRules(ctr, at)
}

func (c *checker) checkImage(image string, at where) {
	switch {
	case image == "":
		c.required(at)
	case c.isPod && strings.TrimSpace(image) != image: // templates have always been allowed to
		c.invalid(at, image, "must not have leading or trailing whitespace")
	}
}

func (c *checker) checkPorts(ports []corev1.ContainerPort, at where) {
	names := map[string]bool{}
	for i, p := range ports {
		at := at.index(i)
		if p.Name != "" {
			if bad := validation.IsValidPortName(p.Name); len(bad) > 0 {
				c.each(at.child("name"), p.Name, bad)
			} else if names[p.Name] {
				c.add(field.Duplicate(at.child("name").path, p.Name))
			}
			names[p.Name] = true
		}
		if p.ContainerPort == 0 {
			c.required(at.child("containerPort"))
		} else {
			c.each(at.child("containerPort"), p.ContainerPort, validation.IsValidPortNum(int(p.ContainerPort)))
		}
		if p.HostPort != 0 {
			c.each(at.child("hostPort"), p.HostPort, validation.IsValidPortNum(int(p.HostPort)))
		}
		if p.HostPort != 0 && p.HostIP != "" && !c.spec.HostNetwork { // else it has no effect, and there is a warning
			c.add(validation.IsValidIP(at.child("hostIP").path, p.HostIP)...)
		}
		requiredOf(&c.report, at.child("protocol"), p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
	}
}

// checkHostPorts checks that no port of the node is taken twice, and that a pod
// in the node's network says so.
func (c *checker) checkHostPorts(at where) {
	taken := map[string]bool{}
	for i := range c.spec.Containers {
		for j, p := range c.spec.Containers[i].Ports {
			at := at.index(i).child("ports").index(j)
			if c.spec.HostNetwork && p.HostPort != p.ContainerPort && (c.isPod || p.HostPort != 0) {
				c.invalid(at.child("containerPort"), p.ContainerPort, "must match `hostPort` when `hostNetwork` is true")
			}
			if p.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			if taken[key] {
				c.add(field.Duplicate(at.child("hostPort").path, key))
			}
			taken[key] = true
		}
	}
}

func (c *checker) checkMounts(ctr *corev1.Container, at where) {
	paths, devices := map[string]bool{}, map[string]bool{}
	for _, d := range ctr.VolumeDevices {
		devices[d.DevicePath] = true
	}
	privileged := ctr.SecurityContext != nil && ctr.SecurityContext.Privileged != nil && *ctr.SecurityContext.Privileged
	for i, m := range ctr.VolumeMounts {
		at := at.child("volumeMounts").index(i)
		c.checkVolumeName(m.Name, at.child("name"))
		switch {
		case m.MountPath == "":
			c.required(at.child("mountPath"))
		case paths[m.MountPath]:
			c.invalid(at.child("mountPath"), m.MountPath, "must be unique")
		case devices[m.MountPath]:
			c.invalid(at.child("mountPath"), m.MountPath, "must not already exist as a path in volumeDevices")
		}
		paths[m.MountPath] = true
		if m.SubPath != "" {
			c.checkDescending(m.SubPath, at.child("subPath"))
		}
		if m.SubPathExpr != "" {
			if m.SubPath != "" {
				c.invalid(at.child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
			}
			c.checkDescending(m.SubPathExpr, at.child("subPathExpr"))
		}
		if p := m.MountPropagation; p != nil {
			requiredOf(&c.report, at.child("mountPropagation"), *p,
				corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
			if *p == corev1.MountPropagationBidirectional && !privileged {
				c.forbidden(at.child("mountPropagation"), "Bidirectional mount propagation is available only to privileged containers")
			}
		}
		c.checkRecursive(&m, at.child("recursiveReadOnly"))
	}
	c.checkDevices(ctr, paths, at.child("volumeDevices"))
}

func (c *checker) checkRecursive(m *corev1.VolumeMount, at where) {
	if m.RecursiveReadOnly == nil {
		return
	}
	mode := *m.RecursiveReadOnly
	switch mode {
	case corev1.RecursiveReadOnlyDisabled:
		return
	case corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible:
	default:
		requiredOf(&c.report, at, mode, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible, corev1.RecursiveReadOnlyEnabled)
		return
	}
	if !m.ReadOnly {
		c.forbidden(at, "may only be specified when readOnly is true")
	}
	if m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone {
		c.forbidden(at, "may only be specified when mountPropagation is None or not specified")
	}
}

func (c *checker) checkDevices(ctr *corev1.Container, mounts map[string]bool, at where) {
	seen := map[string]bool{}
	for i, d := range ctr.VolumeDevices {
		at := at.index(i)
		c.checkVolumeName(d.Name, at.child("name"))
		if v := c.volumes[d.Name]; v != nil && v.PersistentVolumeClaim == nil && v.Ephemeral == nil {
			c.invalid(at.child("name"), d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		switch {
		case d.DevicePath == "":
			c.required(at.child("devicePath"))
			continue
		case seen[d.DevicePath]:
			c.invalid(at.child("devicePath"), d.DevicePath, "must be unique")
		case mounts[d.DevicePath]:
			c.invalid(at.child("devicePath"), d.DevicePath, "must not already exist as a path in volumeMounts")
		}
		if d.DevicePath != "" && hasBackstep(d.DevicePath) {
			c.invalid(at.child("devicePath"), d.DevicePath, "can not contain backsteps ('..')")
		}
		seen[d.DevicePath] = true
	}
}

func (c *checker) checkVolumeName(name string, at where) {
	if name == "" {
		c.required(at)
	} else if c.volumes[name] == nil {
		c.add(field.NotFound(at.path, name))
	}
}

// checkDescending checks a path that must lead down from where it starts.
func (c *checker) checkDescending(p string, at where) {
	if path.IsAbs(p) {
		c.invalid(at, p, "must be a relative path")
	}
	if hasBackstep(p) {
		c.invalid(at, p, "must not contain '..'")
	}
}

func hasBackstep(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return true
		}
	}
	return false
}

// Limits of the rules by which a container is restarted.
const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

func (c *checker) checkRestartRules(ctr *corev1.Container, at where) {
	if ctr.RestartPolicy != nil {
		requiredOf(&c.report, at.child("restartPolicy"), *ctr.RestartPolicy,
			corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)
	}
	rules := ctr.RestartPolicyRules
	if len(rules) == 0 {
		return
	}
	if ctr.RestartPolicy == nil {
		c.add(field.Required(at.child("restartPolicy").path, "must specify restartPolicy when restart rules are used"))
	}
	at = at.child("restartPolicyRules")
	if len(rules) > maxRestartRules {
		c.add(field.TooMany(at.path, len(rules), maxRestartRules))
	}
	for i, rule := range rules {
		at := at.index(i)
		requiredOf(&c.report, at.child("action"), rule.Action,
			corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)
		if rule.ExitCodes == nil {
			c.add(field.Required(at.child("exitCodes").path, "must be specified"))
			continue
		}
		requiredOf(&c.report, at.child("exitCodes", "operator"), rule.ExitCodes.Operator,
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)
		if n := len(rule.ExitCodes.Values); n == 0 {
			c.add(field.Required(at.child("exitCodes", "values").path, "must specify exit code values"))
		} else if n > maxExitCodes {
			c.add(field.TooMany(at.child("exitCodes", "values").path, n, maxExitCodes))
		}
	}
}
