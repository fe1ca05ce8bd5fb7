package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/util/version"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/runtime/api"
	"github.com/sampan-io/sampan/runtime/container"
)

// Version implements CRI.
func (s *Server) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{
		Version:     "0.1.0", // of the kubelet's runtime API; it has never been another
		RuntimeName: api.RuntimeName, RuntimeVersion: semantic(s.opts.Version), RuntimeApiVersion: "v1",
	}, nil
}

// semantic returns a version by the rules of semver.org, as CRI wants it: upstream's kubelet shows others as Unknown. The version
// of a build without a release is a commit, which becomes the last part of 0.0.0.
func semantic(text string) string {
	if _, err := version.ParseSemantic(text); err == nil {
		return text
	}
	return "0.0.0+" + strings.Map(func(c rune) rune {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '.':
			return c
		default:
			return '-'
		}
	}, text)
}

// Status implements CRI. A server that answers is ready: it doesn't serve before.
func (s *Server) Status(ctx context.Context, req *cri.StatusRequest) (*cri.StatusResponse, error) {
	network := &cri.RuntimeCondition{Type: cri.NetworkReady, Status: true}
	if s.cni != nil {
		if err := s.supervisor.Spawning(func() error { return s.cni.Status(ctx) }); err != nil {
			network = &cri.RuntimeCondition{Type: cri.NetworkReady, Reason: "NetworkPluginNotReady", Message: "Network plugin returns error: " + err.Error()}
		}
	}
	res := &cri.StatusResponse{
		Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
			{Type: cri.RuntimeReady, Status: true}, network,
		}},
		RuntimeHandlers: []*cri.RuntimeHandler{{Features: s.features()}, {Name: namedHandler, Features: s.features()}},
		Features:        &cri.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}
	all := s.limitations()
	if len(all) > 0 { // for users who look at a node, and don't see our log
		res.Status.Conditions = append(res.Status.Conditions, &cri.RuntimeCondition{
			Type: "NothingMissing", Status: false, Reason: "MachineLacksSomething", Message: strings.Join(all, "; "),
		})
	}
	if req.GetVerbose() {
		limits, err := json.Marshal(all)
		if err != nil {
			return nil, err
		}
		res.Info = map[string]string{"limitations": string(limits)}
	}
	return res, nil
}

// features are those of every handler. Pods can have users of their own where the kernel maps the owners of the files of
// images.
func (s *Server) features() *cri.RuntimeHandlerFeatures {
	return &cri.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: s.noUsers == ""}
}

// limitations are what the surroundings lack, one sentence each.
func (s *Server) limitations() []string {
	out := append([]string{}, s.limits...)
	if store := s.images.Load(); store != nil && !store.Overlay() {
		out = append(out, "overlayfs can't be used in "+store.Dir()+": every container gets a copy of its image")
	}
	if least := container.LeastOOMScoreAdj(); least > -1000 {
		out = append(out, "without CAP_SYS_RESOURCE an oom_score_adj below this process' own can't be set; it is raised")
	}
	if profile, err := container.DefaultProfile(); err != nil || profile == nil {
		out = append(out, "this program was built without seccomp: containers run without a system call filter")
	}
	return out
}

// RuntimeConfig implements CRI.
func (s *Server) RuntimeConfig(context.Context, *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	return &cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: cri.CgroupDriver_CGROUPFS}}, nil
}

// UpdateRuntimeConfig implements CRI. The pod network can't be changed while the
// bridge exists, so a different one is refused. The rules of the current one are restored.
func (s *Server) UpdateRuntimeConfig(_ context.Context, req *cri.UpdateRuntimeConfigRequest) (*cri.UpdateRuntimeConfigResponse, error) {
	asked := req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	if own := commas(s.opts.PodCIDRs); asked != "" && asked != own {
		return nil, invalid("the pod network of this runtime is %s, set by --pod-cidr at its start; %s can't be taken up without a new start", own, asked)
	}
	if err := s.network.Restore(); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &cri.UpdateRuntimeConfigResponse{}, nil
}

func podState(r *podRecord) cri.PodSandboxState {
	if r.Ready {
		return cri.PodSandboxState_SANDBOX_READY
	}
	return cri.PodSandboxState_SANDBOX_NOTREADY
}

func podStatus(p *pod) *cri.PodSandboxStatus {
	r := p.snapshot()
	out := &cri.PodSandboxStatus{
		Id: r.ID, Metadata: p.config.GetMetadata(), State: podState(&r), CreatedAt: r.Created.UnixNano(),
		Labels: p.config.GetLabels(), Annotations: p.config.GetAnnotations(), Network: &cri.PodSandboxNetworkStatus{},
		Linux: &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: &cri.NamespaceOption{
			UsernsOptions: p.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions(),
			Network:       mode(r.HostNet, cri.NamespaceMode_POD), Ipc: mode(r.HostIPC, cri.NamespaceMode_POD), Pid: pidMode(&r),
		}}},
	}
	if all := r.addresses(); r.Ready && len(all) > 0 {
		out.Network.Ip = all[0].String()
		for _, a := range all[1:] {
			out.Network.AdditionalIps = append(out.Network.AdditionalIps, &cri.PodIP{Ip: a.String()})
		}
	}
	return out
}

// commas writes networks or addresses of two IP families as Kubernetes does.
func commas[T fmt.Stringer](all []T) string {
	var texts []string
	for _, one := range all {
		texts = append(texts, one.String())
	}
	return strings.Join(texts, ",")
}

func mode(host bool, otherwise cri.NamespaceMode) cri.NamespaceMode {
	if host {
		return cri.NamespaceMode_NODE
	}
	return otherwise
}

func pidMode(r *podRecord) cri.NamespaceMode {
	if r.Pause != "" {
		return cri.NamespaceMode_POD
	}
	return mode(r.HostPID, cri.NamespaceMode_CONTAINER)
}

// PodSandboxStatus implements CRI.
func (s *Server) PodSandboxStatus(_ context.Context, req *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	p, err := s.findPod(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	res := &cri.PodSandboxStatusResponse{Timestamp: time.Now().UnixNano()}
	res.Status, res.ContainersStatuses = s.podAndContainers(req.GetPodSandboxId())
	if res.GetStatus() == nil {
		return nil, status.Errorf(codes.NotFound, "pod sandbox %q not found", req.GetPodSandboxId())
	}
	if req.GetVerbose() {
		res.Info = map[string]string{"config": protojson.Format(p.config), "netns": p.snapshot().Pins.Net}
	}
	return res, nil
}

// podAndContainers describes a pod with all that is in it; nil if it isn't there.
func (s *Server) podAndContainers(id string) (*cri.PodSandboxStatus, []*cri.ContainerStatus) {
	s.mu.Lock()
	p := s.pods[id]
	s.mu.Unlock()
	if p == nil {
		return nil, nil
	}
	var containers []*cri.ContainerStatus
	for _, r := range s.supervisor.List() {
		if r.Pod == id {
			if st := s.containerStatus(&r); st != nil {
				containers = append(containers, st)
			}
		}
	}
	return podStatus(p), containers
}

// ListPodSandbox implements CRI.
func (s *Server) ListPodSandbox(_ context.Context, req *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	res := &cri.ListPodSandboxResponse{}
	f := req.GetFilter()
	for _, p := range s.listPods() {
		r := p.snapshot()
		if !r.Made || f.GetId() != "" && f.GetId() != r.ID || f.GetState() != nil && f.GetState().GetState() != podState(&r) ||
			!selected(f.GetLabelSelector(), p.config.GetLabels()) {
			continue
		}
		res.Items = append(res.Items, &cri.PodSandbox{
			Id: r.ID, Metadata: p.config.GetMetadata(), State: podState(&r), CreatedAt: r.Created.UnixNano(),
			Labels: p.config.GetLabels(), Annotations: p.config.GetAnnotations(),
		})
	}
	return res, nil
}

// selected reports whether labels has all of selector.
func selected(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func containerState(r *container.Record) cri.ContainerState {
	switch r.State() {
	case container.Running:
		return cri.ContainerState_CONTAINER_RUNNING
	case container.Exited:
		return cri.ContainerState_CONTAINER_EXITED
	case container.Created:
	}
	return cri.ContainerState_CONTAINER_CREATED
}

func (s *Server) containerStatus(r *container.Record) *cri.ContainerStatus {
	cc := s.containerConfig(r.ID)
	if cc == nil {
		return nil // it is being removed
	}
	c := cc.config
	out := &cri.ContainerStatus{
		Id: r.ID, Metadata: c.GetMetadata(), State: containerState(r), CreatedAt: r.Created.UnixNano(),
		Image: &cri.ImageSpec{Image: c.GetImage().GetImage(), UserSpecifiedImage: c.GetImage().GetUserSpecifiedImage()}, ImageRef: cc.imageRef, ImageId: cc.imageID,
		Labels: c.GetLabels(), Annotations: c.GetAnnotations(), Mounts: c.GetMounts(), LogPath: r.LogPath,
		Resources: &cri.ContainerResources{Linux: criResources(&r.Spec.Resources)}, User: cc.user, StopSignal: c.GetStopSignal(),
	}
	if !r.Started.IsZero() {
		out.StartedAt = r.Started.UnixNano()
	}
	if e := r.Exit; e != nil {
		out.ExitCode, out.Reason, out.Message, out.FinishedAt = int32(e.Code), e.Reason, e.Message, e.Finished.UnixNano()
	}
	return out
}

func criResources(r *container.Resources) *cri.LinuxContainerResources {
	return &cri.LinuxContainerResources{
		CpuShares: int64(r.CPUShares), CpuQuota: r.CPUQuota, CpuPeriod: int64(r.CPUPeriod), CpusetCpus: r.Cpuset, CpusetMems: r.CpusetMems,
		MemoryLimitInBytes: r.MemoryLimit, MemorySwapLimitInBytes: r.SwapLimit, OomScoreAdj: int64(r.OOMScoreAdj), Unified: r.Unified,
	}
}

// ContainerStatus implements CRI.
func (s *Server) ContainerStatus(_ context.Context, req *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	r, err := s.supervisor.Get(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	st := s.containerStatus(&r)
	if st == nil {
		return nil, status.Errorf(codes.NotFound, "container %q not found", req.GetContainerId())
	}
	res := &cri.ContainerStatusResponse{Status: st}
	if req.GetVerbose() {
		info, err := json.Marshal(map[string]any{"pid": r.Pid, "sandboxID": r.Pod, "spec": r.Spec})
		if err != nil {
			return nil, err
		}
		res.Info = map[string]string{"info": string(info)}
	}
	return res, nil
}

// ListContainers implements CRI.
func (s *Server) ListContainers(_ context.Context, req *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	res := &cri.ListContainersResponse{}
	f := req.GetFilter()
	for _, r := range s.supervisor.List() {
		cc := s.containerConfig(r.ID)
		if cc == nil || f.GetId() != "" && f.GetId() != r.ID || f.GetPodSandboxId() != "" && f.GetPodSandboxId() != r.Pod ||
			f.GetState() != nil && f.GetState().GetState() != containerState(&r) || !selected(f.GetLabelSelector(), cc.config.GetLabels()) {
			continue
		}
		res.Containers = append(res.Containers, &cri.Container{
			Id: r.ID, PodSandboxId: r.Pod, Metadata: cc.config.GetMetadata(), Image: proto.Clone(cc.config.GetImage()).(*cri.ImageSpec),
			ImageRef: cc.imageRef, ImageId: cc.imageID, State: containerState(&r), CreatedAt: r.Created.UnixNano(),
			Labels: cc.config.GetLabels(), Annotations: cc.config.GetAnnotations(),
		})
	}
	return res, nil
}
