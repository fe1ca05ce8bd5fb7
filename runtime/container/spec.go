package container

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/moby/sys/devices"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runc/libcontainer/specconv"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sampan-io/sampan/internal/sorting"
)

// A Spec describes a container. It is immutable, apart from Resources, which
// [Supervisor.Update] replaces.
type Spec struct {
	Rootfs         string // absolute path of the mounted root file system
	ReadOnlyRootfs bool

	Args []string // what to execute; at least one
	Env  []string // NAME=VALUE; later ones win
	Cwd  string   // "" means "/"; created if missing
	User User

	// Paths of pinned namespaces. An empty path means that the container shares
	// this namespace with the host.
	NetNS, IPCNS, UTSNS string
	HostPID             bool   // share the host's process ids instead of having its own
	UserNS              string // the namespaces above belong to it; "" means the users of the host
	Users               IDMap  // of UserNS
	PIDNS               string // path of the PID namespace that it shares with its pod; "" means one of its own, or the host's
	PIDsOf              string `json:",omitempty"` // id of a running container whose PID namespace it shares; overrides the two before

	Devices []Device
	Edits   *Edits  `json:",omitempty"`
	Mounts  []Mount // over the default ones; one with the same destination replaces a default

	Privileged      bool // every capability and device, no seccomp, nothing masked
	NoNewPrivileges bool
	AddCaps         []string // as in Kubernetes: without CAP_, "ALL" means all
	DropCaps        []string
	AmbientCaps     []string
	Unconfined      bool                // no seccomp profile
	Seccomp         *specs.LinuxSeccomp `json:",omitempty"` // replaces the default profile
	AppArmor        string              // name of a loaded profile; "" means none
	Compat32        bool                // its 32-bit programs may make system calls; see [Runs32Bit]
	MaskedPaths     []string            // nil means the default ones
	ReadOnlyPaths   []string            // nil means the default ones

	Cgroup    string // path below the mount points of the cgroup controllers
	Resources Resources

	Stdin      bool // keep standard input open
	StdinOnce  bool // standard input ends when the first client that was attached to it leaves; not with Terminal
	Terminal   bool // the process gets a terminal; its output is that of standard output
	StopSignal string
}

// User is the user and groups of a container's process, in numbers.
type User struct {
	UID, GID uint32
	Groups   []uint32 // supplementary ones
}

// A Device is a device of the host that a container may use.
type Device struct {
	Source, Destination string // paths of its file on the host and in the container
	Access              string // of r, w and m (make the file)
}

// find returns the device with the file's owner and mode.
func (d *Device) find() (specs.LinuxDevice, specs.LinuxDeviceCgroup, error) {
	found, err := devices.DeviceFromPath(d.Source, d.Access)
	if err != nil {
		return specs.LinuxDevice{}, specs.LinuxDeviceCgroup{}, fmt.Errorf("device %s: %w", d.Source, err)
	}
	mode := found.FileMode
	device := specs.LinuxDevice{
		Path: d.Destination, Type: string(found.Type), Major: found.Major, Minor: found.Minor, FileMode: &mode, UID: &found.Uid, GID: &found.Gid,
	}
	access := specs.LinuxDeviceCgroup{Allow: true, Type: string(found.Type), Major: &found.Major, Minor: &found.Minor, Access: d.Access}
	return device, access, nil
}

// A Mount binds a file or directory of the host into a container.
type Mount struct {
	Source, Destination string
	ReadOnly            bool
	NoExec              bool   // no program in it can be executed
	RecursiveReadOnly   bool   // also every mount below it
	Mapped              bool   // owners of files are users of Spec.UserNS, as if those were the host's
	Propagation         string // "" means private; otherwise rslave or rshared
}

// Resources limit a container. A zero value means no limit. A limit that the machine
// can't enforce is left out; see [Supervisor.Unenforced].
type Resources struct {
	CPUShares   uint64
	CPUQuota    int64 // microseconds per period; negative means none
	CPUPeriod   uint64
	Cpuset      string // CPUs
	CpusetMems  string
	MemoryLimit int64 // bytes
	SwapLimit   int64 // bytes of memory and swap together; ignored without swap accounting
	PidsLimit   int64
	OOMScoreAdj int // a value below what this process may set is raised to it
	Hugepages   map[string]uint64
	Unified     map[string]string // cgroup v2 files; ignored on v1
}

// defaultMasked returns paths that show too much about the host or allow to change it.
func defaultMasked() []string {
	return []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
		"/sys/devices/virtual/powercap", "/sys/firmware",
	}
}

func defaultReadOnly() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}

// defaultMounts are the file systems that every container has. The pod's
// /dev/shm, /etc/hosts, /etc/hostname and /etc/resolv.conf come as [Mount].
func defaultMounts(privileged bool) []specs.Mount {
	mode := "ro"
	if privileged {
		mode = "rw"
	}
	return []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", mode}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", mode}},
	}
}

// Validate reports everything that is wrong with s, at once.
func (s *Spec) Validate() error {
	var errs []error
	if len(s.Args) == 0 {
		errs = append(errs, errors.New("no command specified: neither the image nor the pod has one"))
	}
	if s.Cwd != "" && !path.IsAbs(s.Cwd) {
		errs = append(errs, fmt.Errorf("working directory %q is not absolute", s.Cwd))
	}
	for _, m := range s.Mounts {
		if !path.IsAbs(m.Destination) {
			errs = append(errs, fmt.Errorf("mount path %q is not absolute", m.Destination))
		}
		switch m.Propagation {
		case "", "rprivate", "rslave", "rshared":
		default:
			errs = append(errs, fmt.Errorf("mount propagation %q of %s is not known", m.Propagation, m.Destination))
		}
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		if !path.IsAbs(d.Destination) {
			errs = append(errs, fmt.Errorf("device path %q is not absolute", d.Destination))
		}
		if d.Access == "" || strings.Trim(d.Access, "rwm") != "" {
			errs = append(errs, fmt.Errorf("permissions of device %s are %q, want some of r, w and m", d.Destination, d.Access))
		}
		if _, _, err := d.find(); err != nil {
			errs = append(errs, err)
		}
	}
	if _, err := capabilities(s); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// config translates s for libcontainer.
// dir is the directory of the container's record.
func (s *Spec) config(profile *Profile, dir string) (*configs.Config, error) {
	caps, err := capabilities(s)
	if err != nil {
		return nil, err
	}
	adj := s.Resources.OOMScoreAdj
	oci := &specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: s.Rootfs, Readonly: s.ReadOnlyRootfs},
		Process: &specs.Process{
			Cwd:             cmp.Or(s.Cwd, "/"),
			Args:            s.Args,
			User:            specs.User{UID: s.User.UID, GID: s.User.GID},
			NoNewPrivileges: s.NoNewPrivileges,
			OOMScoreAdj:     &adj,
			Capabilities:    caps,
			ApparmorProfile: s.AppArmor,
		},
		Mounts: s.mounts(),
		Linux: &specs.Linux{
			CgroupsPath:       s.Cgroup,
			Namespaces:        s.namespaces(),
			Resources:         s.Resources.oci(),
			RootfsPropagation: s.propagation(),
		},
	}
	if s.Privileged {
		oci.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
		host, err := devices.HostDevices()
		if err != nil {
			return nil, fmt.Errorf("listing the host's devices: %w", err)
		}
		for _, d := range host {
			if d.Path == "/dev/ptmx" || d.Path == "/dev/console" {
				continue // the container has its own
			}
			mode := d.FileMode
			oci.Linux.Devices = append(oci.Linux.Devices, specs.LinuxDevice{
				Path: d.Path, Type: string(d.Type), Major: d.Major, Minor: d.Minor,
				FileMode: &mode, UID: &d.Uid, GID: &d.Gid,
			})
		}
	} else {
		oci.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}
		oci.Linux.MaskedPaths, oci.Linux.ReadonlyPaths = s.MaskedPaths, s.ReadOnlyPaths
		if s.MaskedPaths == nil {
			oci.Linux.MaskedPaths = defaultMasked()
		}
		if s.ReadOnlyPaths == nil {
			oci.Linux.ReadonlyPaths = defaultReadOnly()
		}
		switch {
		case s.Unconfined:
		case s.Seccomp != nil:
			oci.Linux.Seccomp = s.Seccomp
		case profile != nil:
			oci.Linux.Seccomp = profile.seccomp(caps.Bounding, s.Compat32)
		}
	}
	for i := range s.Devices {
		device, rule, err := s.Devices[i].find()
		if err != nil {
			return nil, err
		}
		oci.Linux.Resources.Devices = append(oci.Linux.Resources.Devices, rule)
		if !strings.HasPrefix(path.Clean(device.Path), "/dev/") {
			// The kernel opens no devices in the root file system (MS_NODEV).
			oci.Mounts = append(oci.Mounts, specs.Mount{
				Source: s.Devices[i].Source, Destination: device.Path, Type: "bind", Options: []string{"bind", "rprivate"},
			})
			continue
		}
		oci.Linux.Devices = append(slices.DeleteFunc(oci.Linux.Devices, func(o specs.LinuxDevice) bool { return o.Path == device.Path }), device)
	}
	s.Edits.apply(oci)
	c, err := specconv.CreateLibcontainerConfig(&specconv.CreateOpts{Spec: oci, NoNewKeyring: true})
	if err != nil {
		return nil, fmt.Errorf("container configuration: %w", err)
	}
	return c, s.Edits.bundle(dir, oci, c)
}

// propagation is that of the root mount, and bounds that of the others: mounts of the
// host reach a container, and its mounts the host, only where it asked for that.
func (s *Spec) propagation() string {
	out := "rprivate"
	for _, m := range s.Mounts {
		switch m.Propagation {
		case "rshared":
			return "rshared"
		case "rslave":
			out = "rslave"
		}
	}
	return out
}

// sharesPIDs reports whether the end of the container's first process leaves the
// others alive: it is not process 1 of a PID namespace.
func (s *Spec) sharesPIDs() bool { return s.HostPID || s.PIDNS != "" || s.PIDsOf != "" }

func (s *Spec) namespaces() []specs.LinuxNamespace {
	ns := []specs.LinuxNamespace{{Type: specs.MountNamespace}}
	if !s.HostPID || s.PIDNS != "" {
		ns = append(ns, specs.LinuxNamespace{Type: specs.PIDNamespace, Path: s.PIDNS})
	}
	if unified() && !s.Privileged {
		// The container sees its own cgroup at /sys/fs/cgroup, where programs read their limits. With cgroup v1 the mounts
		// alone do that.
		ns = append(ns, specs.LinuxNamespace{Type: specs.CgroupNamespace})
	}
	for _, shared := range []specs.LinuxNamespace{
		{Type: specs.UserNamespace, Path: s.UserNS},
		{Type: specs.NetworkNamespace, Path: s.NetNS},
		{Type: specs.IPCNamespace, Path: s.IPCNS},
		{Type: specs.UTSNamespace, Path: s.UTSNS},
	} {
		if shared.Path != "" {
			ns = append(ns, shared)
		}
	}
	return ns
}

// mounts puts the defaults and the container's own into the order in which they can be made, as containerd does: first the defaults, so
// that a mount of the container hides those in it, then the container's own, a parent before what lies in it. A container with a
// /dev of its own has no default mounts in it.
func (s *Spec) mounts() []specs.Mount {
	own := map[string]bool{}
	for _, m := range s.Mounts {
		own[path.Clean(m.Destination)] = true
	}
	mounts := slices.DeleteFunc(defaultMounts(s.Privileged), func(m specs.Mount) bool {
		return own[m.Destination] || own["/dev"] && strings.HasPrefix(m.Destination, "/dev/")
	})
	defaults := len(mounts)
	for _, m := range s.Mounts {
		options := []string{"rbind", cmp.Or(m.Propagation, "rprivate")}
		if m.Mapped && s.UserNS != "" {
			options = append(options, "idmap")
		}
		switch {
		case m.RecursiveReadOnly:
			options = append(options, "rro")
		case m.ReadOnly:
			options = append(options, "ro")
		}
		if m.NoExec {
			options = append(options, "noexec", "nosuid", "nodev")
		}
		mounts = append(mounts, specs.Mount{Destination: path.Clean(m.Destination), Type: "bind", Source: m.Source, Options: options})
	}
	sortMounts(mounts[defaults:])
	return mounts
}

// sortMounts puts a parent before what lies in it.
func sortMounts(mounts []specs.Mount) {
	sorting.Stable(mounts, func(a, b specs.Mount) int {
		return cmp.Compare(depth(a.Destination), depth(b.Destination))
	})
}

func depth(p string) int {
	if p == "/" {
		return 0
	}
	return strings.Count(p, "/")
}

func (r *Resources) oci() *specs.LinuxResources {
	out := &specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: r.Cpuset, Mems: r.CpusetMems}, Memory: &specs.LinuxMemory{}}
	if r.CPUShares != 0 {
		out.CPU.Shares = &r.CPUShares
	}
	if r.CPUQuota != 0 {
		out.CPU.Quota = &r.CPUQuota
	}
	if r.CPUPeriod != 0 {
		out.CPU.Period = &r.CPUPeriod
	}
	if r.MemoryLimit != 0 {
		out.Memory.Limit = &r.MemoryLimit
	}
	if r.SwapLimit != 0 {
		out.Memory.Swap = &r.SwapLimit
	}
	if r.PidsLimit != 0 {
		out.Pids = &specs.LinuxPids{Limit: &r.PidsLimit}
	}
	for size, limit := range r.Hugepages {
		out.HugepageLimits = append(out.HugepageLimits, specs.LinuxHugepageLimit{Pagesize: size, Limit: limit})
	}
	sorting.Slice(out.HugepageLimits, func(a, b specs.LinuxHugepageLimit) int { return cmp.Compare(a.Pagesize, b.Pagesize) })
	if len(r.Unified) > 0 && unified() {
		out.Unified = maps.Clone(r.Unified)
	}
	return out
}
