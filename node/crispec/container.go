package crispec

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// An Attempt is one attempt at a container: the inputs of its configuration in addition to
// the pod.
type Attempt struct {
	Facts
	Container *corev1.Container
	Attempt   int32
	Hash      string
	QOS       corev1.PodQOSClass
	Node      Capacity
	Image     *cri.Image // from the runtime
	Mounts    []*cri.Mount
	// Seccomp is where profiles of the type Localhost are, and what a container without a profile gets.
	Seccomp Seccomp
	// Users are the pod's own users; nil means that it has those of the node.
	Users *cri.UserNamespace
	// Unified are files of the container's cgroup in cgroup v2, in addition to those for its limits.
	Unified map[string]string
	// TerminationFile is the host's end of the container's termination message;
	// empty if there is none.
	TerminationFile string
}

// Config returns the configuration of the container. Its errors are those of the
// pod's author.
func (m Attempt) Config() (*cri.ContainerConfig, error) {
	c, pod := m.Container, m.Pod
	security, err := m.security()
	if err != nil {
		return nil, err
	}
	envs, known, err := m.Environment(c)
	if err != nil {
		return nil, err
	}
	lookup := func(name string) (string, bool) { v, ok := known[name]; return v, ok }
	labels := map[string]string{ContainerName: c.Name, PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: string(pod.UID)}
	annotations := map[string]string{
		ContainerHash:   m.Hash,
		RestartCount:    strconv.Itoa(int(m.Attempt)),
		TerminationPath: c.TerminationMessagePath,
		TerminationUse:  string(c.TerminationMessagePolicy),
	}
	if slices.ContainsFunc(pod.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.Name }) && !sidecar(pod, c) {
		annotations[InitContainer] = "true"
	}
	if m.Node.Exclusive {
		annotations[ExclusiveCPUs] = m.Node.CPUs
	}
	mounts := m.Mounts
	if m.TerminationFile != "" {
		annotations[TerminationFile] = m.TerminationFile
		mounts = append(slices.Clip(mounts), &cri.Mount{ContainerPath: c.TerminationMessagePath, HostPath: m.TerminationFile})
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		annotations[TerminationGrace] = strconv.FormatInt(*g, 10)
	}
	command, err := ExpandAll(c.Command, lookup)
	if err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	args, err := ExpandAll(c.Args, lookup)
	if err != nil {
		return nil, fmt.Errorf("args: %w", err)
	}
	return &cri.ContainerConfig{
		Metadata:    &cri.ContainerMetadata{Name: c.Name, Attempt: uint32(m.Attempt)},
		Image:       &cri.ImageSpec{Image: m.Image.GetId(), UserSpecifiedImage: c.Image},
		Command:     command,
		Args:        args,
		WorkingDir:  c.WorkingDir,
		Envs:        envs,
		Mounts:      mounts,
		Labels:      labels,
		Annotations: annotations,
		LogPath:     filepath.ToSlash(LogPath(c.Name, m.Attempt)),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  stopSignal(c),
		Linux: &cri.LinuxContainerConfig{
			Resources:       m.resources(),
			SecurityContext: security,
		},
	}, nil
}

// ExpandAll expands each of a list of arguments: see [Expand].
func ExpandAll(list []string, lookup func(string) (string, bool)) ([]string, error) {
	out, total := make([]string, len(list)), 0
	for i, s := range list {
		var err error
		if out[i], err = Expand(s, lookup); err != nil {
			return nil, fmt.Errorf("argument %d %w", i+1, err)
		}
		if total += len(out[i]); total > maxTotal {
			return nil, fmt.Errorf("the arguments are longer than %d bytes", maxTotal)
		}
	}
	return out, nil
}

func stopSignal(c *corev1.Container) cri.Signal {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return cri.Signal_SIGNAL_RUNTIME_DEFAULT
	}
	name := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(*c.Lifecycle.StopSignal))
	return cri.Signal(cri.Signal_value["SIGNAL_"+name])
}

func (m Attempt) resources() *cri.LinuxContainerResources {
	r := Resources(m.Pod, m.QOS, m.Container, m.Node)
	if r.Unified == nil {
		r.Unified = map[string]string{}
	}
	maps.Copy(r.Unified, m.Unified)
	return r
}

// masked returns the parts of /proc and /sys that show too much about the host or allow
// to change it, like the default proc mount of Kubernetes.
func masked() []string {
	return []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
}

func readOnly() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// security merges what pod and container say; the container wins.
func (m Attempt) security() (*cri.LinuxContainerSecurityContext, error) {
	own, pod := m.Container.SecurityContext, m.Pod.Spec.SecurityContext
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	if pod == nil {
		pod = &corev1.PodSecurityContext{}
	}
	s := &cri.LinuxContainerSecurityContext{
		NamespaceOptions: namespaces(m.Pod, m.Users),
		Privileged:       deref(own.Privileged),
		ReadonlyRootfs:   deref(own.ReadOnlyRootFilesystem),
		NoNewPrivs:       own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation,
		SelinuxOptions:   selinux(either(own.SELinuxOptions, pod.SELinuxOptions)),
		Apparmor:         apparmor(either(own.AppArmorProfile, pod.AppArmorProfile)),
		MaskedPaths:      masked(),
		ReadonlyPaths:    readOnly(),
	}
	if own.ProcMount != nil && *own.ProcMount == corev1.UnmaskedProcMount {
		s.MaskedPaths, s.ReadonlyPaths = []string{}, []string{}
	}
	var err error
	if s.Seccomp, err = m.Seccomp.profile(either(own.SeccompProfile, pod.SeccompProfile)); err != nil {
		return nil, err
	}
	s.SupplementalGroups, s.SupplementalGroupsPolicy = groups(pod)
	if own.Capabilities != nil {
		s.Capabilities = &cri.Capability{AddCapabilities: capabilities(own.Capabilities.Add), DropCapabilities: capabilities(own.Capabilities.Drop)}
	}
	user, group := either(own.RunAsUser, pod.RunAsUser), either(own.RunAsGroup, pod.RunAsGroup)
	switch {
	case user != nil:
		s.RunAsUser = &cri.Int64Value{Value: *user}
	case m.Image.GetUid() != nil:
		s.RunAsUser = &cri.Int64Value{Value: m.Image.GetUid().GetValue()}
	default:
		s.RunAsUsername = m.Image.GetUsername()
	}
	if group != nil {
		if s.RunAsUser == nil && s.RunAsUsername == "" {
			s.RunAsUser = &cri.Int64Value{} // an image without a user runs as root
		}
		s.RunAsGroup = &cri.Int64Value{Value: *group}
	}
	return s, m.nonRoot(either(own.RunAsNonRoot, pod.RunAsNonRoot), user)
}

// nonRoot checks what runAsNonRoot promises, in Kubernetes' words.
func (m Attempt) nonRoot(must *bool, user *int64) error {
	who := fmt.Sprintf("(pod: %q, container: %s)", fmt.Sprintf("%s_%s(%s)", m.Pod.Name, m.Pod.Namespace, m.Pod.UID), m.Container.Name)
	switch {
	case !deref(must):
	case user != nil && *user == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy %s", who)
	case user != nil:
	case m.Image.GetUid() != nil && m.Image.GetUid().GetValue() != 0:
	case m.Image.GetUid() == nil && m.Image.GetUsername() != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", m.Image.GetUsername(), who)
	default:
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", who)
	}
	return nil
}

func capabilities(list []corev1.Capability) []string {
	out := make([]string, len(list))
	for i, c := range list {
		out[i] = string(c)
	}
	return out
}

func apparmor(p *corev1.AppArmorProfile) *cri.SecurityProfile {
	switch {
	case p == nil:
		return nil
	case p.Type == corev1.AppArmorProfileTypeUnconfined:
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}
	case p.Type == corev1.AppArmorProfileTypeLocalhost && p.LocalhostProfile != nil:
		return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile}
	}
	return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
}

func either[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

func deref(p *bool) bool { return p != nil && *p }
