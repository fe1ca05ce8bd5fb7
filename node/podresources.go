package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"

	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/lifecycle"
)

// podResources serves kubelet's API about the devices of pods (v1), on the socket pod-resources/kubelet.sock in RootDir. Monitors
// of devices ask it which container has which device, and which processors for itself. Containers have no memory of their own.
type podResources struct {
	api.UnimplementedPodResourcesListerServer
	n *Node
}

// servePodResources serves that API until ctx is cancelled. Without it the node goes on.
func (n *Node) servePodResources(ctx context.Context) error {
	listener, err := listenPodResources(filepath.Join(n.files.Root(), "pod-resources"))
	if err != nil {
		n.log.Error("the API about the devices of pods is not served", "err", err)
		<-ctx.Done()
		return nil
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(64<<10), grpc.MaxConcurrentStreams(16))
	api.RegisterPodResourcesListerServer(server, &podResources{n: n})
	group := run.NewGroup(ctx, 0)
	defer group.Stop()
	ended := make(chan error, 1)
	group.Go(func(context.Context) { ended <- server.Serve(listener) })
	defer server.Stop()
	select {
	case err := <-ended:
		return fmt.Errorf("the API about the devices of pods: %w", err)
	case <-ctx.Done():
		return nil
	}
}

// listenPodResources makes the socket. That of an earlier agent is replaced: the directory is this agent's alone.
func listenPodResources(dir string) (net.Listener, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "kubelet.sock")
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", socket) //nolint:noctx // it blocks for nothing
}

// List describes the devices of all pods that have not ended.
func (p *podResources) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	out := &api.ListPodResourcesResponse{}
	p.n.metrics.Devices.Called(p.n.metrics.Devices.List, nil)
	for _, w := range p.n.allWorkers() {
		if seen, _ := w.Status(); !podstate.Finished(seen.Pod) && seen.Pod.Name != "" {
			out.PodResources = append(out.PodResources, p.describe(seen.Pod))
		}
	}
	slices.SortFunc(out.GetPodResources(), func(a, b *api.PodResources) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	return out, nil
}

// Get describes the devices of a pod.
func (p *podResources) Get(_ context.Context, r *api.GetPodResourcesRequest) (_ *api.GetPodResourcesResponse, err error) {
	defer func() { p.n.metrics.Devices.Called(p.n.metrics.Devices.Get, err) }()
	w := p.n.worker(r.GetPodNamespace(), r.GetPodName())
	if w == nil {
		return nil, fmt.Errorf("pod %s in namespace %s not found", r.GetPodName(), r.GetPodNamespace())
	}
	seen, _ := w.Status()
	return &api.GetPodResourcesResponse{PodResources: p.describe(seen.Pod)}, nil
}

// GetAllocatableResources describes all devices that can be used, free or not.
func (p *podResources) GetAllocatableResources(context.Context, *api.AllocatableResourcesRequest) (*api.AllocatableResourcesResponse, error) {
	p.n.metrics.Devices.Called(p.n.metrics.Devices.Allocatable, nil)
	out := &api.AllocatableResourcesResponse{}
	out.CpuIds = cpuIDs(p.n.capacity.AllocatableProcessors())
	if p.n.plugins.devices != nil {
		out.Devices = p.n.plugins.devices.Allocatable()
	}
	return out, nil
}

func cpuIDs(cpus cpuset.CPUSet) []int64 {
	var list []int64
	for _, cpu := range cpus.List() {
		list = append(list, int64(cpu))
	}
	return list
}

func (p *podResources) describe(pod *corev1.Pod) *api.PodResources {
	out := &api.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; lifecycle.IsSidecar(c) {
			out.Containers = append(out.Containers, p.container(pod, c))
		}
	}
	for i := range pod.Spec.Containers {
		out.Containers = append(out.Containers, p.container(pod, &pod.Spec.Containers[i]))
	}
	return out
}

func (p *podResources) container(pod *corev1.Pod, c *corev1.Container) *api.ContainerResources {
	out := &api.ContainerResources{Name: c.Name, CpuIds: cpuIDs(p.n.capacity.Exclusive(pod.UID, c.Name))}
	if p.n.plugins.devices != nil {
		out.Devices = p.n.plugins.devices.Given(pod.UID, c.Name)
	}
	if p.n.plugins.claims != nil {
		out.DynamicResources = p.n.plugins.claims.Describe(pod, c)
	}
	return out
}
