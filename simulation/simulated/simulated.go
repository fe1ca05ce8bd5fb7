package simulated

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/simulation"
)

// The annotations that set the behaviour of a pod.
const (
	RunSeconds = simulation.RunSecondsAnnotation
	ExitCode   = simulation.ExitCodeAnnotation
	PullError  = simulation.PullErrorAnnotation
	CPU        = simulation.CPUAnnotation
	Memory     = simulation.MemoryAnnotation
)

// Options configures a [Runtime].
type Options struct {
	// PodCIDRs are the networks of the pods; each pod has an address in each. None means
	// 10.244.0.0/24.
	PodCIDRs []netip.Prefix

	// Pods are the pods that the node had when its process ended last. They go on as their statuses show them. They
	// are not changed, and not kept.
	Pods []*corev1.Pod

	// LogDir is where the agent keeps the logs of pods; "" means that it keeps none. Pods needs it.
	LogDir string
}

// A Runtime keeps sandboxes and containers that do nothing. It is safe for
// concurrent use.
type Runtime struct {
	cidrs   []netip.Prefix
	size    uint32 // of the smallest network, as far as it is used
	started time.Time

	mu         sync.Mutex
	next       uint64                // guarded by mu; number of the next ID
	used       uint64                // guarded by mu; nanoseconds of CPU that containers have used that ended
	last       uint32                // guarded by mu; the place in the networks that was given out last
	taken      map[uint32]bool       // guarded by mu; by the place
	sandboxes  map[string]*sandbox   // guarded by mu
	containers map[string]*container // guarded by mu
	listeners  map[*listener]bool    // guarded by mu
	images     map[string]*cri.Image // guarded by mu; the images that clients have requested
}

type sandbox struct {
	id         string
	config     *cri.PodSandboxConfig
	created    int64
	ready      bool
	place      uint32 // of its addresses in the networks; 0: it has none
	ips        []string
	containers []string // IDs
}

type container struct {
	sandbox *sandbox
	status  *cri.ContainerStatus // never changed, only replaced
	usage   simulation.Usage     // while it runs
	end     *time.Timer
}

// listener receives events. Its queue holds at most one entry per container, because a
// later event of a container replaces an earlier one.
type listener struct {
	pending map[string]*cri.ContainerEventResponse // by container
	wake    run.Bell
}

// New returns a runtime without pods.
func New(opts Options) (*Runtime, error) {
	if len(opts.PodCIDRs) == 0 {
		opts.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24")}
	}
	r := &Runtime{
		size: 1 << maxRoom, last: gateway, started: time.Now(),
		taken: map[uint32]bool{}, sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		listeners: map[*listener]bool{}, images: map[string]*cri.Image{},
	}
	for _, n := range opts.PodCIDRs {
		room := n.Addr().BitLen() - n.Bits()
		if room < 2 {
			return nil, fmt.Errorf("simulated: network %s is too small for pods", n)
		}
		r.size = min(r.size, 1<<min(room, maxRoom))
		r.cidrs = append(r.cidrs, n.Masked())
	}
	for _, pod := range opts.Pods {
		r.restore(pod, opts.LogDir)
	}
	return r, nil
}

const (
	gateway = 1  // the place of a bridge's address
	maxRoom = 24 // bits for the places in a network: more pods than there are
)

// Version returns the name and version of the runtime.
func (r *Runtime) Version(context.Context) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: simulation.RuntimeName, RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

// Status is always ready.
func (r *Runtime) Status(context.Context) (*cri.StatusResponse, error) {
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: cri.RuntimeReady, Status: true}, {Type: cri.NetworkReady, Status: true},
	}}}, nil
}

// id returns a new ID as long as those of real runtimes, which no earlier process has given. The caller holds mu.
func (r *Runtime) id() string {
	r.next++
	h := fnv.New128a()
	_, _ = h.Write([]byte(r.cidrs[0].String()))
	_ = binary.Write(h, binary.BigEndian, r.started.UnixNano())
	_ = binary.Write(h, binary.BigEndian, r.next)
	sum := h.Sum(nil)
	return fmt.Sprintf("%x%x", sum, sum)
}

// RunPodSandbox makes a sandbox with an address that no other has.
func (r *Runtime) RunPodSandbox(_ context.Context, config *cri.PodSandboxConfig, _ string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &sandbox{id: r.id(), config: config, created: time.Now().UnixNano(), ready: true}
	if config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() != cri.NamespaceMode_NODE {
		var err error
		if s.place, err = r.place(); err != nil {
			return "", err
		}
		s.ips = r.addresses(s.place)
	}
	r.sandboxes[s.id] = s
	return s.id, nil
}

// place returns a free place in the networks. The caller holds mu.
func (r *Runtime) place() (uint32, error) {
	for n := r.last + 1; ; n++ {
		if n >= r.size-1 { // the last one is the broadcast address
			n = gateway + 1
		}
		if !r.taken[n] {
			r.taken[n], r.last = true, n
			return n, nil
		}
		if n == r.last {
			return 0, status.Errorf(codes.ResourceExhausted, "no free address in %s", r.cidrs[0])
		}
	}
}

// StopPodSandbox stops the containers of a sandbox and frees its address.
func (r *Runtime) StopPodSandbox(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[id]; s != nil {
		r.stop(s)
	}
	return nil
}

// stop is StopPodSandbox. The caller holds mu.
func (r *Runtime) stop(s *sandbox) {
	s.ready = false
	delete(r.taken, s.place)
	for _, id := range s.containers {
		r.exit(r.containers[id], 137)
	}
}

// RemovePodSandbox removes a sandbox and its containers.
func (r *Runtime) RemovePodSandbox(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil
	}
	r.stop(s)
	for _, c := range s.containers {
		delete(r.containers, c)
	}
	delete(r.sandboxes, id)
	return nil
}

// PodSandboxStatus returns the state of a sandbox and its containers.
func (r *Runtime) PodSandboxStatus(_ context.Context, id string) (*cri.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil, status.Errorf(codes.NotFound, "no sandbox %s", id)
	}
	resp := &cri.PodSandboxStatusResponse{Status: s.status(), Timestamp: time.Now().UnixNano()}
	for _, c := range s.containers {
		resp.ContainersStatuses = append(resp.ContainersStatuses, r.containers[c].status)
	}
	return resp, nil
}

func (s *sandbox) state() cri.PodSandboxState {
	if s.ready {
		return cri.PodSandboxState_SANDBOX_READY
	}
	return cri.PodSandboxState_SANDBOX_NOTREADY
}

func (s *sandbox) status() *cri.PodSandboxStatus {
	st := &cri.PodSandboxStatus{
		Id: s.id, Metadata: s.config.GetMetadata(), State: s.state(), CreatedAt: s.created,
		Labels: s.config.GetLabels(), Annotations: s.config.GetAnnotations(), Network: &cri.PodSandboxNetworkStatus{},
	}
	if len(s.ips) > 0 && s.ready {
		st.Network.Ip = s.ips[0]
		for _, more := range s.ips[1:] {
			st.Network.AdditionalIps = append(st.Network.AdditionalIps, &cri.PodIP{Ip: more})
		}
	}
	return st
}

// ListPodSandbox returns the sandboxes that pass the filter.
func (r *Runtime) ListPodSandbox(_ context.Context, f *cri.PodSandboxFilter) ([]*cri.PodSandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*cri.PodSandbox
	for _, s := range r.sandboxes {
		if f.GetId() != "" && f.GetId() != s.id || !matches(f.GetLabelSelector(), s.config.GetLabels()) ||
			f.GetState() != nil && f.GetState().GetState() != s.state() {
			continue
		}
		list = append(list, &cri.PodSandbox{
			Id: s.id, Metadata: s.config.GetMetadata(), State: s.state(), CreatedAt: s.created,
			Labels: s.config.GetLabels(), Annotations: s.config.GetAnnotations(),
		})
	}
	return list, nil
}

func matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// CreateContainer makes a container.
func (r *Runtime) CreateContainer(_ context.Context, sandboxID string, config *cri.ContainerConfig, _ *cri.PodSandboxConfig) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sandboxes[sandboxID]
	if s == nil || !s.ready {
		return "", status.Errorf(codes.NotFound, "no running sandbox %s", sandboxID)
	}
	c := &container{sandbox: s, status: &cri.ContainerStatus{
		Id: r.id(), Metadata: config.GetMetadata(), State: cri.ContainerState_CONTAINER_CREATED, CreatedAt: time.Now().UnixNano(),
		Image: config.GetImage(), ImageRef: config.GetImage().GetImage(), ImageId: config.GetImage().GetImage(),
		Labels: config.GetLabels(), Annotations: config.GetAnnotations(), Mounts: config.GetMounts(),
	}}
	if s.config.GetLogDirectory() != "" {
		c.status.LogPath = filepath.Join(s.config.GetLogDirectory(), config.GetLogPath())
	}
	r.containers[c.status.GetId()] = c
	s.containers = append(s.containers, c.status.GetId())
	r.publish(c, cri.ContainerEventType_CONTAINER_CREATED_EVENT)
	return c.status.GetId(), nil
}

// copyStatus returns a copy to change: a returned status never changes.
func copyStatus(s *cri.ContainerStatus) *cri.ContainerStatus {
	return &cri.ContainerStatus{
		Id: s.GetId(), Metadata: s.GetMetadata(), State: s.GetState(), CreatedAt: s.GetCreatedAt(), StartedAt: s.GetStartedAt(),
		FinishedAt: s.GetFinishedAt(), ExitCode: s.GetExitCode(), Image: s.GetImage(), ImageRef: s.GetImageRef(), ImageId: s.GetImageId(),
		Reason: s.GetReason(), Message: s.GetMessage(), Labels: s.GetLabels(), Annotations: s.GetAnnotations(), Mounts: s.GetMounts(),
		LogPath: s.GetLogPath(),
	}
}

// StartContainer starts a container, which runs for as long as its pod's annotation says. An
// init container ends at once.
func (r *Runtime) StartContainer(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	switch {
	case c == nil:
		return status.Errorf(codes.NotFound, "no container %s", id)
	case c.status.GetState() != cri.ContainerState_CONTAINER_CREATED:
		return status.Errorf(codes.FailedPrecondition, "container %s has been started before", id)
	}
	if c.status.GetAnnotations()[crispec.InitContainer] == "true" {
		r.run(c)
		err := c.log()
		r.exit(c, 0)
		return err
	}
	annotations := c.sandbox.config.GetAnnotations()
	usage, err := simulation.UsageOf(annotations)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	c.usage = usage
	after, code, ends, err := endOf(annotations)
	if err != nil {
		return err
	}
	if ends {
		c.end = time.AfterFunc(after, func() { r.ended(id, code) })
	}
	r.run(c)
	return c.log()
}

// endOf returns after how long the containers of a pod end, and with which code, by its annotations.
func endOf(annotations map[string]string) (after time.Duration, code int32, ends bool, err error) {
	text, ends := annotations[RunSeconds]
	if !ends {
		return 0, 0, false, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || seconds < 0 {
		return 0, 0, false, status.Errorf(codes.InvalidArgument, "annotation %s: %q is not a number of seconds", RunSeconds, text)
	}
	if text := annotations[ExitCode]; text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0, 0, false, status.Errorf(codes.InvalidArgument, "annotation %s: %q is not a number", ExitCode, text)
		}
		code = int32(n)
	}
	return time.Duration(seconds * float64(time.Second)), code, true, nil
}

// run sets a container to running. The caller holds mu.
func (r *Runtime) run(c *container) {
	s := copyStatus(c.status)
	s.State, s.StartedAt = cri.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	c.status = s
	r.publish(c, cri.ContainerEventType_CONTAINER_STARTED_EVENT)
}

// log writes the container's only line of output.
func (c *container) log() error {
	if c.status.GetLogPath() == "" {
		return nil
	}
	line := fmt.Sprintf("%s stdout F simulated container %s of pod %s/%s\n", time.Now().UTC().Format(time.RFC3339Nano),
		c.status.GetMetadata().GetName(), c.sandbox.config.GetMetadata().GetNamespace(), c.sandbox.config.GetMetadata().GetName())
	err := os.WriteFile(c.status.GetLogPath(), []byte(line), 0o640) // as real runtimes have it
	if errors.Is(err, os.ErrNotExist) {
		return nil // the agent keeps no logs
	}
	return err
}

func (r *Runtime) ended(id string, code int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.exit(c, code)
	}
}

// exit ends a container that runs. The caller holds mu.
func (r *Runtime) exit(c *container, code int32) {
	if c.status.GetState() != cri.ContainerState_CONTAINER_RUNNING {
		return
	}
	if c.end != nil {
		c.end.Stop()
	}
	s := copyStatus(c.status)
	s.State, s.FinishedAt, s.ExitCode = cri.ContainerState_CONTAINER_EXITED, time.Now().UnixNano(), code
	r.used += c.usage.Nanoseconds(time.Duration(s.GetFinishedAt() - s.GetStartedAt()))
	s.Reason = "Completed"
	if code != 0 {
		s.Reason = "Error"
	}
	c.status = s
	r.publish(c, cri.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// StopContainer ends a container at once, with code 0.
func (r *Runtime) StopContainer(_ context.Context, id string, _ time.Duration) error {
	r.ended(id, 0)
	return nil
}

// Exit makes a container end by itself, as if its program had. It reports whether
// there is a running container of that name in the pod.
func (r *Runtime) Exit(namespace, pod, name string, code int32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		m := c.sandbox.config.GetMetadata()
		if m.GetNamespace() == namespace && m.GetName() == pod && c.status.GetMetadata().GetName() == name && c.status.GetState() == cri.ContainerState_CONTAINER_RUNNING {
			r.exit(c, code)
			return true
		}
	}
	return false
}

// UpdateContainerResources accepts every change: simulated containers have no limits.
func (r *Runtime) UpdateContainerResources(ctx context.Context, id string, _ *cri.LinuxContainerResources) error {
	_, err := r.ContainerStatus(ctx, id)
	return err
}

// RemoveContainer removes a container.
func (r *Runtime) RemoveContainer(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return nil
	}
	r.exit(c, 137)
	c.sandbox.containers = slices.DeleteFunc(c.sandbox.containers, func(o string) bool { return o == id })
	delete(r.containers, id)
	r.publish(c, cri.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}

// ContainerStatus returns the state of a container.
func (r *Runtime) ContainerStatus(_ context.Context, id string) (*cri.ContainerStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return nil, status.Errorf(codes.NotFound, "no container %s", id)
	}
	return c.status, nil
}

// ListContainers returns the containers that pass the filter.
func (r *Runtime) ListContainers(_ context.Context, f *cri.ContainerFilter) ([]*cri.Container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*cri.Container
	for id, c := range r.containers {
		s := c.status
		if f.GetId() != "" && f.GetId() != id || f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandbox.id ||
			f.GetState() != nil && f.GetState().GetState() != s.GetState() || !matches(f.GetLabelSelector(), s.GetLabels()) {
			continue
		}
		list = append(list, &cri.Container{
			Id: id, PodSandboxId: c.sandbox.id, Metadata: s.GetMetadata(), Image: s.GetImage(), ImageRef: s.GetImageRef(), ImageId: s.GetImageId(),
			State: s.GetState(), CreatedAt: s.GetCreatedAt(), Labels: s.GetLabels(), Annotations: s.GetAnnotations(),
		})
	}
	return list, nil
}

// ExecSync answers with the command.
func (r *Runtime) ExecSync(ctx context.Context, id string, cmd []string, _ time.Duration) (*cri.ExecSyncResponse, error) {
	s, err := r.ContainerStatus(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.GetState() != cri.ContainerState_CONTAINER_RUNNING {
		return nil, status.Errorf(codes.FailedPrecondition, "container %s is not running", id)
	}
	return &cri.ExecSyncResponse{Stdout: []byte("simulated: " + strings.Join(cmd, " ") + "\n")}, nil
}

// Exec is refused: there is no process to run a command beside.
func (r *Runtime) Exec(context.Context, *cri.ExecRequest) (string, error) {
	return "", noStreams("exec")
}

// Attach is refused.
func (r *Runtime) Attach(context.Context, *cri.AttachRequest) (string, error) {
	return "", noStreams("attach")
}

// PortForward is refused.
func (r *Runtime) PortForward(context.Context, *cri.PortForwardRequest) (string, error) {
	return "", noStreams("port-forward")
}

func noStreams(verb string) error {
	return status.Errorf(codes.Unimplemented, "%s is not possible: the pod is simulated, and has no processes", verb)
}

// publish sends an event of a container to the listeners. The caller holds mu.
func (r *Runtime) publish(c *container, t cri.ContainerEventType) {
	e := &cri.ContainerEventResponse{ContainerId: c.status.GetId(), ContainerEventType: t, CreatedAt: time.Now().UnixNano(), PodSandboxStatus: c.sandbox.status()}
	for l := range r.listeners {
		l.pending[e.GetContainerId()] = e
		l.wake.Ring()
	}
}

// Events yields the events of containers. If several events of one container are pending,
// it yields only the last.
func (r *Runtime) Events(ctx context.Context) iter.Seq2[*cri.ContainerEventResponse, error] {
	return func(yield func(*cri.ContainerEventResponse, error) bool) {
		l := &listener{pending: map[string]*cri.ContainerEventResponse{}, wake: run.NewBell()}
		r.mu.Lock()
		r.listeners[l] = true
		r.mu.Unlock()
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.listeners, l)
		}()
		if !yield(nil, nil) {
			return
		}
		for {
			select {
			case <-l.wake:
			case <-ctx.Done():
				yield(nil, context.Cause(ctx))
				return
			}
			r.mu.Lock()
			batch := l.pending
			l.pending = map[string]*cri.ContainerEventResponse{}
			r.mu.Unlock()
			for _, e := range slices.SortedFunc(maps.Values(batch), func(a, b *cri.ContainerEventResponse) int { return int(a.GetCreatedAt() - b.GetCreatedAt()) }) {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// ImageStatus returns an image for every name.
func (r *Runtime) ImageStatus(_ context.Context, name string) (*cri.Image, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.images[name]; i != nil {
		return i, nil
	}
	h := fnv.New128a()
	_, _ = h.Write([]byte(name))
	sum := h.Sum(nil)
	i := &cri.Image{Id: fmt.Sprintf("sha256:%x%x", sum, sum), RepoTags: []string{name}, Size: 1}
	if strings.HasPrefix(name, "sha256:") {
		i.Id, i.RepoTags = name, nil
	} else {
		r.images[i.GetId()] = i
	}
	r.images[name] = i
	return i, nil
}

// PullImage succeeds, unless the pod has the annotation PullError.
func (r *Runtime) PullImage(ctx context.Context, name string, _ *cri.AuthConfig, pod *cri.PodSandboxConfig) (string, error) {
	if why := pod.GetAnnotations()[PullError]; why != "" {
		return "", status.Error(codes.NotFound, why)
	}
	i, err := r.ImageStatus(ctx, name)
	return i.GetId(), err
}

// ListImages returns the images that clients have requested.
func (r *Runtime) ListImages(context.Context) ([]*cri.Image, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*cri.Image
	for name, i := range r.images {
		if name != i.GetId() {
			list = append(list, i)
		}
	}
	return list, nil
}
