package runtime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/mounts"
	"github.com/sampan-io/sampan/internal/removal"
	"github.com/sampan-io/sampan/runtime/container"
	"github.com/sampan-io/sampan/runtime/image"
)

// containerConfig is the configuration of a container in CRI. It is immutable.
type containerConfig struct {
	config   *cri.ContainerConfig
	imageID  string
	imageRef string
	user     *cri.ContainerUser
}

// about is how containerConfig lies in a container's record.
type about struct {
	Config   []byte
	ImageID  string
	ImageRef string
}

func (s *Server) rootfsDir(id string) string { return filepath.Join(s.opts.State, "rootfs", id) }

// CreateContainer implements CRI.
func (s *Server) CreateContainer(ctx context.Context, req *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	p, err := s.findPod(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	config := req.GetConfig()
	if err := checkContainer(config); err != nil {
		return nil, err
	}
	store, err := s.store(ctx)
	if err != nil {
		return nil, err
	}
	img, err := findImage(store, config.GetImage())
	if err != nil {
		return nil, err
	}
	p.busy.Lock()
	defer p.busy.Unlock()
	if r := p.snapshot(); !r.Ready {
		return nil, status.Errorf(codes.FailedPrecondition, "pod sandbox %s is stopped: no container can be created in it", r.ID)
	}
	id := newID()
	cc := &containerConfig{config: config, imageID: img.ID, imageRef: img.ID}
	if digests := img.Digests(); len(digests) > 0 {
		cc.imageRef = digests[0]
	}
	if err := s.enterContainer(p, id, cc); err != nil {
		return nil, err
	}
	if err := s.makeContainer(ctx, p, id, cc, store, &img); err != nil {
		s.mu.Lock()
		delete(s.containers, id)
		s.mu.Unlock()
		return nil, errors.Join(err, store.Unmount(id, s.rootfsDir(id)))
	}
	return &cri.CreateContainerResponse{ContainerId: id}, nil
}

// enterContainer puts a new container into the table, unless the pod has one of
// this name and attempt.
func (s *Server) enterContainer(p *pod, id string, cc *containerConfig) error {
	for _, r := range s.supervisor.List() {
		if r.Pod != p.record.ID {
			continue
		}
		if other := s.containerConfig(r.ID); other != nil && proto.Equal(other.config.GetMetadata(), cc.config.GetMetadata()) {
			return status.Errorf(codes.AlreadyExists, "container %q, attempt %d, of pod sandbox %s exists already: %s",
				cc.config.GetMetadata().GetName(), cc.config.GetMetadata().GetAttempt(), p.record.ID, r.ID)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers[id] = cc
	return nil
}

func (s *Server) containerConfig(id string) *containerConfig {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.containers[id]
}

func (s *Server) makeContainer(ctx context.Context, p *pod, id string, cc *containerConfig, store *image.Store, img *image.Image) error {
	rootfs, err := s.mountRoot(p, id, store, img)
	if err != nil {
		return err
	}
	spec, err := s.containerSpec(p, id, cc.config, img, rootfs)
	if err != nil {
		return err
	}
	if err := s.loadAppArmor(ctx, spec.AppArmor); err != nil {
		return err
	}
	if err := s.addImages(spec, id, cc.config, store); err != nil {
		return err
	}
	if err := addVolumes(spec, id, store, img); err != nil {
		return err
	}
	if err := s.injectDevices(spec, cc.config); err != nil {
		return err
	}
	cc.user = criUser(spec.User)
	data, err := proto.Marshal(cc.config)
	if err != nil {
		return err
	}
	note, err := json.Marshal(about{Config: data, ImageID: cc.imageID, ImageRef: cc.imageRef})
	if err != nil {
		return err
	}
	r := container.Record{ID: id, Pod: p.record.ID, Spec: *spec, About: note, LogPath: logPath(p.config, cc.config)}
	if err := s.supervisor.Create(r); err != nil {
		return invalid("container %q: %v", cc.config.GetMetadata().GetName(), err)
	}
	return nil
}

// mountRoot makes the root file system of a container.
func (s *Server) mountRoot(p *pod, id string, store *image.Store, img *image.Image) (string, error) {
	r := p.snapshot()
	if r.Users == nil {
		return store.Mount(id, img.ID, s.rootfsDir(id))
	}
	namespace, err := os.Open(r.Pins.User)
	if err != nil {
		return "", err
	}
	defer namespace.Close()
	return store.MountFor(id, img.ID, s.rootfsDir(id), &image.Users{Namespace: namespace, Root: r.Users.Host})
}

func criUser(u container.User) *cri.ContainerUser {
	linux := &cri.LinuxContainerUser{Uid: int64(u.UID), Gid: int64(u.GID)}
	for _, g := range u.Groups {
		linux.SupplementalGroups = append(linux.SupplementalGroups, int64(g))
	}
	return &cri.ContainerUser{Linux: linux}
}

func logPath(p *cri.PodSandboxConfig, c *cri.ContainerConfig) string {
	if p.GetLogDirectory() == "" || c.GetLogPath() == "" {
		return ""
	}
	return filepath.Join(p.GetLogDirectory(), c.GetLogPath())
}

func findImage(store *image.Store, spec *cri.ImageSpec) (image.Image, error) {
	ref := cmp.Or(spec.GetImage(), spec.GetUserSpecifiedImage())
	img, err := store.Get(ref)
	if errors.Is(err, image.ErrNotFound) {
		return img, status.Errorf(codes.NotFound, "image %q is not on this node", ref)
	}
	if err != nil {
		return img, invalid("%v", err)
	}
	return img, nil
}

// checkContainer reports everything in a request that can't be done.
func checkContainer(c *cri.ContainerConfig) error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if c.GetMetadata().GetName() == "" {
		fault("metadata needs a name")
	}
	if c.GetImage().GetImage() == "" {
		fault("image is empty")
	}
	for _, e := range c.GetEnvs() {
		if e.GetKey() == "" || strings.ContainsAny(e.GetKey(), "=\x00") || strings.Contains(string(e.GetValue()), "\x00") {
			fault("environment variable %q is not possible: a name is not empty and has no =, and neither it nor the value has a zero byte", e.GetKey())
		}
	}
	for _, m := range c.GetMounts() {
		if m.GetImage().GetImage() == "" && !filepath.IsAbs(m.GetHostPath()) {
			fault("mount %s: the path on the host, %q, is not absolute", m.GetContainerPath(), m.GetHostPath())
		}
		switch {
		case !m.GetRecursiveReadOnly():
		case !m.GetReadonly():
			fault("mount %s: recursive_read_only needs readonly", m.GetContainerPath())
		case m.GetPropagation() != cri.MountPropagation_PROPAGATION_PRIVATE:
			fault("mount %s: recursive_read_only needs PROPAGATION_PRIVATE, got %s", m.GetContainerPath(), m.GetPropagation())
		}
	}
	sc := c.GetLinux().GetSecurityContext()
	if sc.GetRunAsGroup() != nil && sc.GetRunAsUser() == nil && sc.GetRunAsUsername() == "" {
		fault("run_as_group needs run_as_user or run_as_username")
	}
	if ns := sc.GetNamespaceOptions(); ns.GetPid() == cri.NamespaceMode_TARGET && ns.GetTargetId() == "" {
		fault("process namespace TARGET needs a target_id")
	}
	if fault := appArmorFault(sc, container.AppArmor()); fault != "" {
		faults = append(faults, fault)
	}
	if len(faults) > 0 {
		return invalid("container %q: %s", c.GetMetadata().GetName(), strings.Join(faults, "; "))
	}
	return nil
}

// containerSpec puts together what the image says, what CRI says, and what the pod
// has.
func (s *Server) containerSpec(p *pod, id string, c *cri.ContainerConfig, img *image.Image, rootfs string) (*container.Spec, error) {
	sc := c.GetLinux().GetSecurityContext()
	r := p.snapshot()
	user, err := container.ResolveUser(rootfs, userSpec(sc, img.Config.Config.User))
	if err != nil {
		return nil, invalid("container %q: %v", c.GetMetadata().GetName(), err)
	}
	mounts, err := s.containerMounts(p, c)
	if err != nil {
		return nil, err
	}
	target, err := s.pidTarget(&r, sc.GetNamespaceOptions())
	if err != nil {
		return nil, err
	}
	profile, err := seccompProfile(sc)
	if err != nil {
		return nil, invalid("container %q: %v", c.GetMetadata().GetName(), err)
	}
	spec := &container.Spec{
		Rootfs:          rootfs,
		ReadOnlyRootfs:  sc.GetReadonlyRootfs(),
		Args:            command(c, img),
		Env:             environment(p, c, img),
		Cwd:             cmp.Or(c.GetWorkingDir(), img.Config.Config.WorkingDir, "/"),
		User:            user,
		NetNS:           r.Pins.Net,
		IPCNS:           r.Pins.IPC,
		UTSNS:           r.Pins.UTS,
		UserNS:          r.Pins.User,
		Users:           deref(r.Users),
		HostPID:         r.HostPID,
		PIDNS:           s.pidNamespace(&r, sc.GetNamespaceOptions()),
		PIDsOf:          target,
		Devices:         hostDevices(c),
		Mounts:          mounts,
		Privileged:      sc.GetPrivileged(),
		NoNewPrivileges: sc.GetNoNewPrivs(),
		AddCaps:         sc.GetCapabilities().GetAddCapabilities(),
		DropCaps:        sc.GetCapabilities().GetDropCapabilities(),
		AmbientCaps:     sc.GetCapabilities().GetAddAmbientCapabilities(),
		Unconfined:      sc.GetSeccomp() == nil || sc.GetSeccomp().GetProfileType() == cri.SecurityProfile_Unconfined,
		Seccomp:         profile,
		AppArmor:        appArmorProfile(sc, container.AppArmor()),
		MaskedPaths:     hiddenPaths(&r, sc.GetMaskedPaths()),
		ReadOnlyPaths:   hiddenPaths(&r, sc.GetReadonlyPaths()),
		Cgroup:          filepath.Join(r.Cgroup, id),
		Resources:       resources(c.GetLinux().GetResources()),
		Stdin:           c.GetStdin(),
		StdinOnce:       c.GetStdinOnce(),
		Terminal:        c.GetTty(),
		StopSignal:      img.Config.Config.StopSignal,
	}
	if len(spec.Args) > 0 {
		spec.Compat32 = container.Runs32Bit(rootfs, spec.Args[0])
	}
	if c.GetStopSignal() != cri.Signal_SIGNAL_RUNTIME_DEFAULT {
		name := strings.TrimPrefix(c.GetStopSignal().String(), "SIGNAL_")
		spec.StopSignal = strings.NewReplacer("MINPLUS", "MIN+", "MAXMINUS", "MAX-").Replace(name)
	}
	return spec, nil
}

// hostDevices returns the devices of the host that the request names.
func hostDevices(c *cri.ContainerConfig) []container.Device {
	var list []container.Device
	for _, d := range c.GetDevices() {
		source, err := filepath.EvalSymlinks(d.GetHostPath())
		if err != nil {
			source = d.GetHostPath() // is reported later
		}
		list = append(list, container.Device{Source: source, Destination: cmp.Or(d.GetContainerPath(), d.GetHostPath()), Access: cmp.Or(d.GetPermissions(), "rwm")})
	}
	return list
}

// userSpec returns the user from the security context or, without one, from the image.
func userSpec(sc *cri.LinuxContainerSecurityContext, imageUser string) container.UserSpec {
	w := container.UserSpec{User: imageUser}
	switch {
	case sc.GetRunAsUser() != nil:
		w.User = strconv.FormatInt(sc.GetRunAsUser().GetValue(), 10)
	case sc.GetRunAsUsername() != "":
		w.User = sc.GetRunAsUsername()
	}
	if g := sc.GetRunAsGroup(); g != nil {
		gid := uint32(g.GetValue())
		w.Group = &gid
	}
	for _, g := range sc.GetSupplementalGroups() {
		w.Groups = append(w.Groups, uint32(g))
	}
	w.OnlyGroups = sc.GetSupplementalGroupsPolicy() == cri.SupplementalGroupsPolicy_Strict
	return w
}

// command follows the rule of Kubernetes: a command replaces entrypoint and
// arguments of the image, arguments alone only its arguments.
func command(c *cri.ContainerConfig, img *image.Image) []string {
	if len(c.GetCommand()) > 0 {
		return slices.Concat(c.GetCommand(), c.GetArgs())
	}
	args := c.GetArgs()
	if len(args) == 0 {
		args = img.Config.Config.Cmd
	}
	return slices.Concat(img.Config.Config.Entrypoint, args)
}

func environment(p *pod, c *cri.ContainerConfig, img *image.Image) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if h := p.config.GetHostname(); h != "" {
		env = append(env, "HOSTNAME="+h)
	}
	if c.GetTty() {
		env = append(env, "TERM=xterm")
	}
	env = append(env, img.Config.Config.Env...)
	for _, e := range c.GetEnvs() {
		env = append(env, e.GetKey()+"="+string(e.GetValue()))
	}
	// The last one of a name counts; keeping the others would only confuse.
	last := map[string]int{}
	for i, e := range env {
		name, _, _ := strings.Cut(e, "=")
		last[name] = i
	}
	var out []string
	for i, e := range env {
		if name, _, ok := strings.Cut(e, "="); ok && name != "" && last[name] == i {
			out = append(out, e)
		}
	}
	return out
}

// containerMounts returns the mounts of the CRI request, and the pod's own files where the
// request mounts nothing.
func (s *Server) containerMounts(p *pod, c *cri.ContainerConfig) ([]container.Mount, error) {
	readOnly := c.GetLinux().GetSecurityContext().GetReadonlyRootfs()
	own := []container.Mount{
		{Destination: "/etc/hosts", Source: p.file("hosts"), ReadOnly: readOnly},
		{Destination: "/etc/hostname", Source: p.file("hostname"), ReadOnly: readOnly},
		{Destination: "/etc/resolv.conf", Source: p.file("resolv.conf"), ReadOnly: readOnly},
		{Destination: "/dev/shm", Source: p.file("shm")},
	}
	if p.record.HostIPC {
		own[3].Source = "/dev/shm"
	}
	var out []container.Mount
	asked := map[string]bool{}
	for _, m := range c.GetMounts() {
		asked[path.Clean(m.GetContainerPath())] = true
		if m.GetImage().GetImage() != "" {
			continue // see addImages
		}
		source, err := filepath.EvalSymlinks(m.GetHostPath())
		if errors.Is(err, fs.ErrNotExist) {
			// As other runtimes do: what should be mounted and isn't there is made.
			source, err = m.GetHostPath(), os.MkdirAll(m.GetHostPath(), 0o755)
		}
		if err != nil {
			return nil, invalid("container %q: mount %s: %v", c.GetMetadata().GetName(), m.GetContainerPath(), err)
		}
		mount := container.Mount{
			Destination: m.GetContainerPath(), Source: source, ReadOnly: m.GetReadonly(), RecursiveReadOnly: m.GetRecursiveReadOnly(),
		}
		if mount.Mapped, err = p.maps(m); err != nil {
			return nil, invalid("container %q: %v", c.GetMetadata().GetName(), err)
		}
		switch m.GetPropagation() {
		case cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
			mount.Propagation = "rslave"
		case cri.MountPropagation_PROPAGATION_BIDIRECTIONAL:
			mount.Propagation = "rshared"
			if err := checkShared(source); err != nil {
				return nil, invalid("container %q: mount %s: %v", c.GetMetadata().GetName(), m.GetContainerPath(), err)
			}
		case cri.MountPropagation_PROPAGATION_PRIVATE: // the rule, if nothing is asked for
		}
		out = append(out, mount)
	}
	for _, m := range own {
		if !asked[m.Destination] {
			out = append(out, m)
		}
	}
	return out, nil
}

// addImages mounts the images that are volumes of the container, read-only. The error has the beginning by which clients
// recognize it (k8s.io/cri-api/pkg/errors).
func (s *Server) addImages(spec *container.Spec, id string, c *cri.ContainerConfig, store *image.Store) error {
	for i, m := range c.GetMounts() {
		if m.GetImage().GetImage() == "" {
			continue
		}
		img, err := findImage(store, m.GetImage())
		if err != nil {
			return err
		}
		source, err := store.MountImage(id, img.ID, s.rootfsDir(id), m.GetImageSubPath(), i)
		if err != nil {
			return invalid("ImageVolumeMountFailed: container %q: mount %s: %v", c.GetMetadata().GetName(), m.GetContainerPath(), err)
		}
		spec.Mounts = append(spec.Mounts, container.Mount{Destination: m.GetContainerPath(), Source: source, ReadOnly: true, NoExec: true})
	}
	return nil
}

// addVolumes mounts a new directory at each path that the image declares as a volume,
// unless the request mounts something there. As in other runtimes, these are writable
// even if the root file system isn't.
func addVolumes(spec *container.Spec, id string, store *image.Store, img *image.Image) error {
	if len(img.Config.Config.Volumes) == 0 {
		return nil
	}
	taken := map[string]bool{}
	for _, m := range spec.Mounts {
		taken[image.Place(spec.Rootfs, m.Destination)] = true
	}
	var places []string
	for place := range img.Config.Config.Volumes {
		if place = image.Place(spec.Rootfs, place); !taken[place] {
			taken[place] = true
			places = append(places, place)
		}
	}
	slices.Sort(places)
	dirs, err := store.Volumes(id, spec.Rootfs, places)
	if err != nil {
		return err
	}
	for _, place := range places {
		spec.Mounts = append(spec.Mounts, container.Mount{Destination: place, Source: dirs[place], Mapped: spec.UserNS != ""})
	}
	return nil
}

func resources(r *cri.LinuxContainerResources) container.Resources {
	out := container.Resources{
		CPUShares: uint64(max(0, r.GetCpuShares())), CPUQuota: r.GetCpuQuota(), CPUPeriod: uint64(max(0, r.GetCpuPeriod())),
		Cpuset: r.GetCpusetCpus(), CpusetMems: r.GetCpusetMems(),
		MemoryLimit: r.GetMemoryLimitInBytes(), SwapLimit: r.GetMemorySwapLimitInBytes(),
		OOMScoreAdj: int(r.GetOomScoreAdj()), Unified: r.GetUnified(),
	}
	for _, h := range r.GetHugepageLimits() {
		if out.Hugepages == nil {
			out.Hugepages = map[string]uint64{}
		}
		out.Hugepages[h.GetPageSize()] = h.GetLimit()
	}
	// CRI has no field for the number of processes but the file of cgroup v2.
	if limit, err := strconv.ParseInt(r.GetUnified()["pids.max"], 10, 64); err == nil {
		out.PidsLimit = limit
	}
	return out
}

// StartContainer implements CRI.
func (s *Server) StartContainer(ctx context.Context, req *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	return &cri.StartContainerResponse{}, s.supervisor.Start(ctx, req.GetContainerId())
}

// StopContainer implements CRI. To stop what has ended, or isn't there, is no error.
func (s *Server) StopContainer(ctx context.Context, req *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	grace := time.Duration(max(0, req.GetTimeout())) * time.Second
	err := s.supervisor.Stop(ctx, req.GetContainerId(), grace)
	if errors.Is(err, container.ErrNotFound) {
		err = nil
	}
	return &cri.StopContainerResponse{}, err
}

// RemoveContainer implements CRI. To remove what isn't there is no error.
func (s *Server) RemoveContainer(ctx context.Context, req *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	return &cri.RemoveContainerResponse{}, s.removeContainer(ctx, req.GetContainerId())
}

func (s *Server) removeContainer(ctx context.Context, id string) error {
	if err := s.supervisor.Remove(ctx, id); err != nil {
		return err
	}
	if s.containerConfig(id) == nil {
		return nil
	}
	store, err := s.store(ctx)
	if err != nil {
		return err
	}
	if err := store.Unmount(id, s.rootfsDir(id)); err != nil {
		return fmt.Errorf("removing container %s: %w", id, err)
	}
	s.mu.Lock()
	delete(s.containers, id)
	s.mu.Unlock()
	return nil
}

// ReopenContainerLog implements CRI.
func (s *Server) ReopenContainerLog(_ context.Context, req *cri.ReopenContainerLogRequest) (*cri.ReopenContainerLogResponse, error) {
	return &cri.ReopenContainerLogResponse{}, s.supervisor.ReopenLog(req.GetContainerId())
}

// UpdateContainerResources implements CRI. A field that is zero keeps its value, and so
// does a file of cgroup v2 that is not named.
func (s *Server) UpdateContainerResources(_ context.Context, req *cri.UpdateContainerResourcesRequest) (*cri.UpdateContainerResourcesResponse, error) {
	r, err := s.supervisor.Get(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	old, asked := r.Spec.Resources, resources(req.GetLinux())
	merged := container.Resources{
		CPUShares: cmp.Or(asked.CPUShares, old.CPUShares), CPUQuota: cmp.Or(asked.CPUQuota, old.CPUQuota),
		CPUPeriod: cmp.Or(asked.CPUPeriod, old.CPUPeriod), Cpuset: cmp.Or(asked.Cpuset, old.Cpuset),
		CpusetMems: cmp.Or(asked.CpusetMems, old.CpusetMems), MemoryLimit: cmp.Or(asked.MemoryLimit, old.MemoryLimit),
		SwapLimit: cmp.Or(asked.SwapLimit, old.SwapLimit), PidsLimit: cmp.Or(asked.PidsLimit, old.PidsLimit),
		OOMScoreAdj: cmp.Or(asked.OOMScoreAdj, old.OOMScoreAdj), Hugepages: old.Hugepages, Unified: old.Unified,
	}
	if asked.Hugepages != nil {
		merged.Hugepages = asked.Hugepages
	}
	if asked.Unified != nil {
		merged.Unified = maps.Clone(asked.Unified)
		for file, value := range old.Unified {
			if _, changed := asked.Unified[file]; !changed {
				merged.Unified[file] = value
			}
		}
	}
	return &cri.UpdateContainerResourcesResponse{}, s.supervisor.Update(r.ID, merged)
}

// ExecSync implements CRI.
func (s *Server) ExecSync(ctx context.Context, req *cri.ExecSyncRequest) (*cri.ExecSyncResponse, error) {
	timeout := time.Duration(max(0, req.GetTimeout())) * time.Second
	res, err := s.supervisor.Exec(ctx, req.GetContainerId(), req.GetCmd(), timeout)
	if errors.Is(err, container.ErrTimeout) {
		return nil, status.Errorf(codes.DeadlineExceeded, "the command %q was killed after %v", req.GetCmd(), timeout)
	}
	if err != nil {
		return nil, err
	}
	return &cri.ExecSyncResponse{Stdout: res.Stdout, Stderr: res.Stderr, ExitCode: int32(res.Code)}, nil
}

// adoptContainers restores the CRI requests of the containers that the supervisor
// found, and removes state that belongs to no container.
func (s *Server) adoptContainers() error {
	for _, r := range s.supervisor.List() {
		if s.pauses(r.ID) != nil {
			continue
		}
		var note about
		config := &cri.ContainerConfig{}
		err := json.Unmarshal(r.About, &note)
		if err == nil {
			err = proto.Unmarshal(note.Config, config)
		}
		if err != nil {
			return fmt.Errorf("the record of container %s is damaged (%w): `sampan down --purge`, or the command clean of a runtime that runs alone, removes everything", r.ID, err)
		}
		s.mu.Lock()
		s.containers[r.ID] = &containerConfig{config: config, imageID: note.ImageID, imageRef: note.ImageRef, user: criUser(r.Spec.User)}
		s.mu.Unlock()
		if r.State() == container.Running {
			s.adopted[1]++
		}
	}
	entries, err := os.ReadDir(s.rootfsDir(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if s.containerConfig(e.Name()) == nil { // R2
			dir := s.rootfsDir(e.Name())
			if err := errors.Join(mounts.DetachBelow(dir), removal.Tree(dir)); err != nil {
				return err
			}
		}
	}
	return nil
}
