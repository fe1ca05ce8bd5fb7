package runtime

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/wholefile"
	"github.com/sampan-io/sampan/runtime/container"
	"github.com/sampan-io/sampan/runtime/network"
)

// A pod is what CRI calls a pod sandbox.
type pod struct {
	dir    string
	config *cri.PodSandboxConfig // immutable

	busy sync.Mutex // held while it is being made, stopped or removed, and while a container is being created in it

	mu     sync.Mutex
	record podRecord // guarded by mu
	gone   bool      // guarded by mu; removed while a caller waited for busy
	failed bool      // guarded by mu; it couldn't be made, and what was made of it couldn't be removed
}

// podRecord is written to pod.json.
type podRecord struct {
	ID      string
	Config  []byte // the PodSandboxConfig
	Created time.Time
	Ready   bool
	Made    bool // false: the making was cut off (R2)

	Pins    container.Pins
	Address netip.Addr   // invalid on the host's network
	Others  []netip.Addr `json:",omitempty"` // of the second IP family
	Link    string
	HostNet bool
	CNI     bool `json:",omitempty"` // plug-ins connect it, not the bridge
	HostIPC bool
	HostPID bool
	Pause   string `json:",omitempty"` // id of the container that holds the PID namespace of the pod; "" if its containers share none
	Cgroup  string
	Users   *container.IDMap `json:",omitempty"` // nil: those of the host
}

// addresses returns all of the pod's addresses, the primary one first.
func (r *podRecord) addresses() []netip.Addr {
	if !r.Address.IsValid() {
		return nil
	}
	return append([]netip.Addr{r.Address}, r.Others...)
}

// attachment is the pod's place on the network, as a record has it.
func (p *pod) attachment(r *podRecord) network.Attachment {
	if r.CNI {
		return network.Attachment{}
	}
	at := network.Attachment{Addresses: r.addresses(), Link: r.Link}
	if len(at.Addresses) > 0 {
		at.Ports, _ = hostPorts(p.config) // checked when it was made
	}
	return at
}

func (p *pod) snapshot() podRecord {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.record
}

// update changes the record, on disk first.
func (p *pod) update(change func(r *podRecord)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.record
	change(&r)
	data, err := json.Marshal(&r)
	if err != nil {
		return err
	}
	if err := wholefile.Write(filepath.Join(p.dir, "pod.json"), data, 0o600, wholefile.UntilBoot); err != nil {
		return err
	}
	p.record = r
	return nil
}

func (p *pod) file(name string) string { return filepath.Join(p.dir, name) }

// newID returns an id as other runtimes have them.
func newID() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func (s *Server) podDir(id string) string { return filepath.Join(s.opts.State, "pods", id) }

// findPod finds a pod by its id.
func (s *Server) findPod(id string) (*pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := s.pods[id]; ok {
		return p, nil
	}
	return nil, status.Errorf(codes.NotFound, "pod sandbox %q not found", id)
}

// checkSandbox reports everything in a request that can't be done.
func checkSandbox(c *cri.PodSandboxConfig, handler string) error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	m := c.GetMetadata()
	if m.GetName() == "" || m.GetUid() == "" || m.GetNamespace() == "" {
		fault("metadata needs a name, a uid and a namespace")
	}
	if handler != "" && handler != namedHandler {
		return status.Errorf(codes.Unknown, "no runtime for %q is configured", handler) // containerd's words
	}
	ns := c.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if ns.GetPid() == cri.NamespaceMode_TARGET {
		fault("the process namespace of another container (TARGET) is not possible for a pod sandbox; POD, CONTAINER and NODE are")
	}
	if users, err := podUsers(ns); err != nil {
		fault("%v", err)
	} else if users != nil && (ns.GetNetwork() == cri.NamespaceMode_NODE || ns.GetIpc() == cri.NamespaceMode_NODE || ns.GetPid() == cri.NamespaceMode_NODE) {
		fault("a pod with users of its own needs its own network, IPC and process namespaces")
	}
	if _, err := hostPorts(c); err != nil && ns.GetNetwork() != cri.NamespaceMode_NODE {
		fault("%v", err)
	}
	if len(c.GetHostname()) > 64 {
		fault("hostname %q is longer than the 64 characters that Linux allows", c.GetHostname())
	}
	spec := pinSpec(c)
	if err := spec.Check(); err != nil {
		fault("%v", err)
	}
	if len(faults) > 0 {
		return invalid("pod sandbox: %s", strings.Join(faults, "; "))
	}
	return nil
}

// namedHandler is another name of the default handler, the one that it has in other runtimes.
const namedHandler = "runc"

// podUsers returns the users of a pod; nil means those of the host.
func podUsers(ns *cri.NamespaceOption) (*container.IDMap, error) {
	u := ns.GetUsernsOptions()
	switch u.GetMode() {
	case cri.NamespaceMode_NODE:
		return nil, nil // those of the host
	case cri.NamespaceMode_POD:
		if u == nil {
			return nil, nil // nothing was asked for
		}
	case cri.NamespaceMode_CONTAINER, cri.NamespaceMode_TARGET:
		return nil, fmt.Errorf("user namespaces: mode %s is not possible; POD and NODE are", u.GetMode())
	}
	if len(u.GetUids()) != 1 || len(u.GetGids()) != 1 || !proto.Equal(u.GetUids()[0], u.GetGids()[0]) {
		return nil, errors.New("user namespaces: want one range of user ids and the same range of group ids")
	}
	ids := u.GetUids()[0]
	if ids.GetContainerId() != 0 || ids.GetHostId() == 0 || ids.GetLength() == 0 || uint64(ids.GetHostId())+uint64(ids.GetLength()) > math.MaxUint32 {
		return nil, errors.New("user namespaces: want a range that begins at 0 in the container and not at 0 on the host")
	}
	return &container.IDMap{Host: ids.GetHostId(), Size: ids.GetLength()}, nil
}

// pinSpec returns the namespaces of a pod.
func pinSpec(c *cri.PodSandboxConfig) container.PinSpec {
	ns := c.GetLinux().GetSecurityContext().GetNamespaceOptions()
	ownNet := ns.GetNetwork() != cri.NamespaceMode_NODE
	users, _ := podUsers(ns) // checked
	return container.PinSpec{
		Users: users,
		Net:   ownNet, IPC: ns.GetIpc() != cri.NamespaceMode_NODE, UTS: ownNet,
		Hostname: c.GetHostname(), Sysctls: c.GetLinux().GetSysctls(),
	}
}

// RunPodSandbox implements CRI.
func (s *Server) RunPodSandbox(ctx context.Context, req *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	config := req.GetConfig()
	if err := checkSandbox(config, req.GetRuntimeHandler()); err != nil {
		return nil, err
	}
	data, err := proto.Marshal(config)
	if err != nil {
		return nil, err
	}
	spec := pinSpec(config)
	if spec.Users != nil && s.noUsers != "" {
		return nil, invalid("pod sandbox: user namespaces are not possible here: %s", s.noUsers)
	}
	id := newID()
	p := &pod{dir: s.podDir(id), config: config}
	p.record = podRecord{
		ID: id, Config: data, Created: time.Now(), HostNet: !spec.Net, HostIPC: !spec.IPC,
		HostPID: config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() == cri.NamespaceMode_NODE,
		Users:   spec.Users,
		Cgroup:  cmp.Or(config.GetLinux().GetCgroupParent(), filepath.Join(s.cgroup, id)),
	}
	if config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetPid() == cri.NamespaceMode_POD {
		p.record.Pause = newID()
	}
	p.busy.Lock()
	defer p.busy.Unlock()
	s.clearFailed(ctx)
	if err := s.enter(p); err != nil {
		return nil, err
	}
	if err := s.makePod(ctx, p, spec); err != nil {
		err = fmt.Errorf("creating the pod sandbox: %w", err)
		if left := s.dismantle(context.WithoutCancel(ctx), p); left != nil {
			p.mu.Lock()
			p.failed = true
			p.mu.Unlock()
			err = errors.Join(err, fmt.Errorf("and cleaning up, which is tried again with the next attempt: %w", left))
		}
		return nil, err
	}
	s.events.publish(cri.ContainerEventType_CONTAINER_CREATED_EVENT, id, id)
	s.events.publish(cri.ContainerEventType_CONTAINER_STARTED_EVENT, id, id)
	return &cri.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// isFailed reports whether p is the remains of a pod that couldn't be made.
func (p *pod) isFailed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// clearFailed tries once more to remove the remains of pods that couldn't be created.
// Clients can't remove them, because they are not listed.
func (s *Server) clearFailed(ctx context.Context) {
	for _, p := range s.listPods() {
		if !p.isFailed() || !p.busy.TryLock() {
			continue
		}
		if err := s.dismantle(ctx, p); err != nil {
			s.opts.Log.Error("can't clean up a pod sandbox that could not be created", "pod", p.record.ID, "err", err)
		}
		p.busy.Unlock()
	}
}

// enter puts a new pod into the table, unless there is one of this name and attempt.
func (s *Server) enter(p *pod) error {
	m := p.config.GetMetadata()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, other := range s.pods {
		if proto.Equal(other.config.GetMetadata(), m) && !other.isFailed() {
			return status.Errorf(codes.AlreadyExists, "pod %s/%s (uid %s), attempt %d, has the sandbox %s already",
				m.GetNamespace(), m.GetName(), m.GetUid(), m.GetAttempt(), id)
		}
	}
	s.keepPod(p)
	return nil
}

// keepPod puts a pod into the tables. The caller holds mu.
func (s *Server) keepPod(p *pod) {
	s.pods[p.record.ID] = p
	if p.record.Pause != "" {
		s.pauseOf[p.record.Pause] = p
	}
}

// makePod makes the namespaces, the network and the files of a pod.
func (s *Server) makePod(ctx context.Context, p *pod, spec container.PinSpec) error {
	if err := os.MkdirAll(p.dir, 0o711); err != nil {
		return err
	}
	var at network.Attachment
	if spec.Net {
		var err error
		if at, err = s.reserve(p); err != nil {
			return err
		}
		spec.Inside = func() error { return s.upNetwork(spec.Sysctls, at) }
	}
	// The record is written first, so that a restart can find and remove a half-made pod.
	err := p.update(func(r *podRecord) {
		r.Pins, r.Link, r.CNI = container.PinsOf(p.dir, spec), at.Link, spec.Net && s.cni != nil
		if len(at.Addresses) > 0 {
			r.Address, r.Others = at.Addresses[0], at.Addresses[1:]
		}
	})
	if err != nil {
		return err
	}
	err = s.supervisor.Spawning(func() error {
		_, err := s.supervisor.Pin(p.record.ID, p.dir, spec)
		return err
	})
	if err != nil {
		return err
	}
	addresses := at.Addresses
	if p.record.CNI {
		if addresses, err = s.attachCNI(ctx, p); err != nil {
			return err
		}
	}
	if err := s.podFiles(p, addresses); err != nil {
		return err
	}
	if p.record.Pause != "" {
		if err := s.pause(ctx, p); err != nil {
			return err
		}
	}
	if spec.Net && s.cni == nil {
		if err := s.network.Publish(p.record.ID); err != nil {
			return err
		}
	}
	return p.update(func(r *podRecord) { r.Ready, r.Made = true, true })
}

// reserve returns how a pod is attached to the pod network; with CNI plug-ins only its bandwidth is known before they run.
func (s *Server) reserve(p *pod) (at network.Attachment, err error) {
	ports, err := hostPorts(p.config)
	var bandwidth network.Bandwidth
	if err == nil {
		bandwidth, err = network.BandwidthOf(p.config.GetAnnotations())
	}
	if err == nil {
		err = network.CheckOwn(ports, s.streams.Port())
	}
	if err == nil && s.cni == nil {
		at, err = s.network.Reservation(p.record.ID, ports)
	}
	if err != nil {
		return at, s.named(err)
	}
	at.Bandwidth = bandwidth
	return at, nil
}

// upNetwork sets up the network of a pod with these sysctls, in its namespace. CNI plug-ins run later.
func (s *Server) upNetwork(sysctls map[string]string, at network.Attachment) error {
	// A pod with a separate address may listen on ports below 1024.
	const lowest = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
	if _, set := sysctls["net.ipv4.ip_unprivileged_port_start"]; !set {
		if err := os.WriteFile(lowest, []byte("0"), 0); err != nil {
			return fmt.Errorf("unprivileged ports: %w", err)
		}
	}
	if s.cni != nil {
		return network.UpLoopback()
	}
	return s.network.Attach(at)
}

// podFiles makes what the containers of a pod have in common on their file systems.
func (s *Server) podFiles(p *pod, addresses []netip.Addr) error {
	resolv, err := resolvConf(p.config.GetDnsConfig())
	if err != nil {
		return err
	}
	hostname := p.config.GetHostname()
	if p.record.HostNet {
		if hostname, err = os.Hostname(); err != nil {
			return err
		}
	}
	hosts := "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	if hostname != "" {
		for _, a := range addresses {
			hosts += a.String() + "\t" + hostname + "\n"
		}
	}
	if p.record.HostNet {
		if own, err := os.ReadFile("/etc/hosts"); err == nil {
			hosts = string(own)
		}
	}
	for name, text := range map[string]string{"resolv.conf": resolv, "hostname": hostname + "\n", "hosts": hosts} {
		if err := os.WriteFile(p.file(name), []byte(text), 0o644); err != nil {
			return err
		}
		if err := p.own(name); err != nil {
			return err
		}
	}
	if p.record.HostIPC {
		return nil // the host's /dev/shm
	}
	if err := os.Mkdir(p.file("shm"), 0o700); err != nil {
		return err
	}
	const options = "mode=1777,size=65536k" // as everywhere else
	if err := unix.Mount("shm", p.file("shm"), "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("shared memory: %w", err)
	}
	return p.own("shm")
}

// own gives a file to the root user of the pod.
func (p *pod) own(name string) error {
	if p.record.Users == nil {
		return nil
	}
	return os.Chown(p.file(name), int(p.record.Users.Host), int(p.record.Users.Host))
}

// resolvConf returns the resolv.conf for a DNS configuration. Without one the pod uses the
// servers of the host.
func resolvConf(dns *cri.DNSConfig) (string, error) {
	if dns == nil {
		data, err := os.ReadFile("/etc/resolv.conf")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		return string(data), nil
	}
	var b strings.Builder
	if len(dns.GetSearches()) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(dns.GetSearches(), " "))
	}
	for _, server := range dns.GetServers() {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	if len(dns.GetOptions()) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(dns.GetOptions(), " "))
	}
	return b.String(), nil
}

// StopPodSandbox implements CRI: it stops all containers of the pod and gives back
// its network. To stop what has been stopped, or isn't there, is no error.
func (s *Server) StopPodSandbox(ctx context.Context, req *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	p, err := s.findPod(req.GetPodSandboxId())
	if err != nil {
		return &cri.StopPodSandboxResponse{}, nil // CRI: a pod that isn't there is stopped
	}
	p.busy.Lock()
	defer p.busy.Unlock()
	return &cri.StopPodSandboxResponse{}, s.stopPod(ctx, p, 0)
}

// stopPod stops a pod. The caller holds its busy lock.
func (s *Server) stopPod(ctx context.Context, p *pod, grace time.Duration) error {
	id := p.record.ID
	if err := s.eachContainer(ctx, id, func(c string) error { return s.supervisor.Stop(ctx, c, grace) }); err != nil {
		return err
	}
	was := p.snapshot()
	if err := s.release(ctx, &was, p); err != nil {
		return fmt.Errorf("stopping pod sandbox %s: %w", id, err)
	}
	return s.setNotReady(p)
}

// setNotReady records and reports that a pod has stopped, the first time.
func (s *Server) setNotReady(p *pod) error {
	stopped := false
	err := p.update(func(r *podRecord) { stopped, r.Ready = r.Ready, false })
	if err != nil || !stopped {
		return err
	}
	s.events.publish(cri.ContainerEventType_CONTAINER_STOPPED_EVENT, p.record.ID, p.record.ID)
	return nil
}

// eachContainer does something with all containers of a pod at the same time.
func (s *Server) eachContainer(ctx context.Context, podID string, do func(id string) error) error {
	var mu sync.Mutex
	var errs []error
	group := run.NewGroup(ctx, 0)
	for _, r := range s.supervisor.List() {
		if r.Pod != podID || s.pauses(r.ID) != nil {
			continue
		}
		group.Go(func(context.Context) {
			err := do(r.ID)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// release gives back what the kernel has of a pod.
func (s *Server) release(ctx context.Context, r *podRecord, p *pod) error {
	var errs []error
	switch {
	case r.HostNet:
	case r.CNI:
		errs = append(errs, s.detachCNI(ctx, r, p))
	default:
		errs = append(errs, s.network.Detach(r.ID, p.attachment(r)))
	}
	errs = append(errs, s.supervisor.Unpin(r.ID, r.Pins))
	if !r.HostIPC {
		err := unix.Unmount(p.file("shm"), unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("shared memory: %w", err))
		}
	}
	errs = append(errs, s.removePause(ctx, r, p))
	return errors.Join(errs...)
}

// RemovePodSandbox implements CRI: it removes the pod with all its containers. What
// isn't there is no error.
func (s *Server) RemovePodSandbox(ctx context.Context, req *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	p, err := s.findPod(req.GetPodSandboxId())
	if err != nil {
		return &cri.RemovePodSandboxResponse{}, nil // CRI: a pod that isn't there is removed
	}
	p.busy.Lock()
	defer p.busy.Unlock()
	return &cri.RemovePodSandboxResponse{}, s.removePod(ctx, p, 0)
}

// removePod removes a pod. The caller holds its busy lock.
func (s *Server) removePod(ctx context.Context, p *pod, grace time.Duration) error {
	if err := s.stopPod(ctx, p, grace); err != nil {
		return err
	}
	id := p.record.ID
	if err := s.eachContainer(ctx, id, func(c string) error { return s.removeContainer(ctx, c) }); err != nil {
		return err
	}
	// Publish the event while the pod's status still exists.
	s.events.publish(cri.ContainerEventType_CONTAINER_DELETED_EVENT, id, id)
	if err := s.dismantle(ctx, p); err != nil {
		return fmt.Errorf("removing pod sandbox %s: %w", id, err)
	}
	return nil
}

// dismantle removes the last of a pod, or all of one that couldn't be made.
func (s *Server) dismantle(ctx context.Context, p *pod) error {
	r := p.snapshot()
	err := s.release(ctx, &r, p)
	if p.config.GetLinux().GetCgroupParent() == "" {
		err = errors.Join(err, container.RemoveCgroup(r.Cgroup))
	}
	if err = errors.Join(err, os.RemoveAll(p.dir)); err != nil {
		return err
	}
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	s.mu.Lock()
	delete(s.pods, r.ID)
	delete(s.pauseOf, r.Pause)
	s.mu.Unlock()
	return nil
}

// removeAllPods ends everything.
func (s *Server) removeAllPods(ctx context.Context) error {
	var mu sync.Mutex
	var errs []error
	group := run.NewGroup(ctx, 0)
	for _, p := range s.listPods() {
		group.Go(func(context.Context) {
			p.busy.Lock()
			defer p.busy.Unlock()
			err := s.removePod(ctx, p, s.opts.Grace)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// listPods returns all pods, the oldest first.
func (s *Server) listPods() []*pod {
	s.mu.Lock()
	pods := make([]*pod, 0, len(s.pods))
	for _, p := range s.pods {
		pods = append(pods, p)
	}
	s.mu.Unlock()
	slices.SortFunc(pods, func(a, b *pod) int { return a.snapshot().Created.Compare(b.snapshot().Created) })
	return pods
}

// loadPod reads the record of a pod of an earlier server. The pod is never nil.
func (s *Server) loadPod(id string) (*pod, error) {
	p := &pod{dir: s.podDir(id), config: &cri.PodSandboxConfig{}}
	data, err := os.ReadFile(p.file("pod.json"))
	if err == nil {
		err = json.Unmarshal(data, &p.record)
	}
	if err == nil {
		err = proto.Unmarshal(p.record.Config, p.config)
	}
	return p, err
}

// adoptPods restores the pods of an earlier server. The supervisor has found the
// containers before.
func (s *Server) adoptPods(ctx context.Context) error {
	if err := os.MkdirAll(s.podDir(""), 0o711); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	entries, err := os.ReadDir(s.podDir(""))
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	for _, e := range entries {
		p, err := s.loadPod(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			if err := os.RemoveAll(p.dir); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("%s is damaged (%w): `sampan down --purge`, or the command clean of a runtime that runs alone, removes everything", p.file("pod.json"), err)
		}
		if !p.record.Made {
			if err := s.dismantle(ctx, p); err != nil { // R2
				return err
			}
			continue
		}
		if err := s.supervisor.Repin(p.record.ID, p.record.Pins); err != nil && p.record.Ready {
			s.opts.Log.Error("the namespaces of a pod sandbox are lost, it is not ready any more", "pod", p.record.ID, "err", err)
			if err := s.setNotReady(p); err != nil {
				return err
			}
		}
		if p.record.Pause != "" && p.record.Ready {
			if r, err := s.supervisor.Get(p.record.Pause); err != nil || r.State() != container.Running {
				if err := s.setNotReady(p); err != nil {
					return err
				}
			}
		}
		if p.record.Address.IsValid() && p.record.Ready && !p.record.CNI {
			if err := s.network.Reserve(p.record.ID, p.attachment(&p.record)); err != nil {
				return err
			}
		}
		s.mu.Lock()
		s.keepPod(p)
		s.mu.Unlock()
		s.adopted[0]++
	}
	s.supervisor.ForgetPods(func(id string) bool { _, err := s.findPod(id); return err == nil })
	if err := s.network.Settle(); err != nil {
		return err
	}
	if s.cni != nil {
		s.settleCNI()
	}
	return s.adoptContainers()
}
