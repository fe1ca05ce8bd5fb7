package criclient

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/unixsocket"
	"github.com/sampan-io/sampan/node/stats"
)

const (
	// maxMessage is what Kubernetes' own agent allows for lists of many
	// containers.
	maxMessage = 16 << 20

	// maxOutput is what a runtime may keep of a command's output: so much of each
	// of its two streams, and the frame around them.
	maxOutput = 2*maxMessage + 1<<10

	// A runtime that is being restarted is tried again at pauses between these.
	firstRedial, lastRedial = 20 * time.Millisecond, 2 * time.Second
)

// A CRI is a [Runtime] behind a unix socket. Calls fail with Unavailable while
// no server listens on it; the connection is made again automatically.
type CRI struct {
	conn    *grpc.ClientConn
	runtime cri.RuntimeServiceClient
	images  cri.ImageServiceClient
	calls   *calls
	active  run.Bell // rung when a call has started or ended something
}

// Dial returns the runtime that serves CRI at a unix socket: its path, or
// unix:// and the path. It does not connect before the first call. The caller
// closes it.
func Dial(endpoint string) (*CRI, error) {
	socket, err := unixsocket.Path(endpoint)
	if err != nil {
		return nil, fmt.Errorf("container runtime: %w", err)
	}
	c := &CRI{calls: newCalls(), active: run.NewBell()}
	c.conn, err = grpc.NewClient(
		"unix://"+socket,
		grpc.WithChainUnaryInterceptor(c.calls.unary, c.watchCalls),
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket that only root may open
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRedial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastRedial},
			MinConnectTimeout: lastRedial,
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("container runtime at %s: %w", socket, err)
	}
	c.runtime, c.images = cri.NewRuntimeServiceClient(c.conn), cri.NewImageServiceClient(c.conn)
	return c, nil
}

// Endpoint returns the address of the runtime's socket, with unix://.
func (c *CRI) Endpoint() string { return c.conn.Target() }

// Collectors returns the metrics of the calls.
func (c *CRI) Collectors() []prometheus.Collector { return c.calls.collectors() }

// Close ends the connection.
func (c *CRI) Close() error { return c.conn.Close() }

// Conn returns the connection, for other services on the same socket.
func (c *CRI) Conn() grpc.ClientConnInterface { return c.conn }

// Version implements [Runtime]; all other methods do as well.
func (c *CRI) Version(ctx context.Context) (*cri.VersionResponse, error) {
	return c.runtime.Version(ctx, &cri.VersionRequest{})
}

// Status returns the runtime's own conditions and features.
func (c *CRI) Status(ctx context.Context) (*cri.StatusResponse, error) {
	return c.runtime.Status(ctx, &cri.StatusRequest{})
}

// RunPodSandbox makes a sandbox.
func (c *CRI) RunPodSandbox(ctx context.Context, config *cri.PodSandboxConfig, handler string) (string, error) {
	r, err := c.runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	return r.GetPodSandboxId(), err
}

// StopPodSandbox ends what runs in a sandbox and gives its network back.
func (c *CRI) StopPodSandbox(ctx context.Context, id string) error {
	_, err := c.runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

// RemovePodSandbox removes a sandbox and its containers.
func (c *CRI) RemovePodSandbox(ctx context.Context, id string) error {
	_, err := c.runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// PodSandboxStatus returns the state of a sandbox.
func (c *CRI) PodSandboxStatus(ctx context.Context, id string) (*cri.PodSandboxStatusResponse, error) {
	return c.runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
}

// ListPodSandbox returns the sandboxes that pass the filter.
func (c *CRI) ListPodSandbox(ctx context.Context, filter *cri.PodSandboxFilter) ([]*cri.PodSandbox, error) {
	r, err := c.runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: filter})
	return r.GetItems(), err
}

// CreateContainer makes a container in a sandbox.
func (c *CRI) CreateContainer(ctx context.Context, sandbox string, config *cri.ContainerConfig, sandboxConfig *cri.PodSandboxConfig) (string, error) {
	r, err := c.runtime.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: sandbox, Config: config, SandboxConfig: sandboxConfig})
	return r.GetContainerId(), err
}

// StartContainer starts a container that was made.
func (c *CRI) StartContainer(ctx context.Context, id string) error {
	_, err := c.runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id})
	return err
}

// StopContainer ends a container. CRI counts whole seconds, so a grace is rounded
// up.
func (c *CRI) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	s := int64((grace + time.Second - 1) / time.Second)
	_, err := c.runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: id, Timeout: s})
	return err
}

// RemoveContainer removes a container.
func (c *CRI) RemoveContainer(ctx context.Context, id string) error {
	_, err := c.runtime.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
	return err
}

// ContainerStatus returns the state of a container.
func (c *CRI) ContainerStatus(ctx context.Context, id string) (*cri.ContainerStatus, error) {
	r, err := c.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
	return r.GetStatus(), err
}

// ListContainers returns the containers that pass the filter.
func (c *CRI) ListContainers(ctx context.Context, filter *cri.ContainerFilter) ([]*cri.Container, error) {
	r, err := c.runtime.ListContainers(ctx, &cri.ListContainersRequest{Filter: filter})
	return r.GetContainers(), err
}

// ExecSync runs a command in a container; zero timeout means no end.
func (c *CRI) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (*cri.ExecSyncResponse, error) {
	s := int64((timeout + time.Second - 1) / time.Second)
	return c.runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: s}, grpc.MaxCallRecvMsgSize(maxOutput))
}

// UpdateContainerResources changes the resources of a running container.
func (c *CRI) UpdateContainerResources(ctx context.Context, id string, resources *cri.LinuxContainerResources) error {
	_, err := c.runtime.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: resources})
	return err
}

// Exec returns the URL at which a command runs.
func (c *CRI) Exec(ctx context.Context, req *cri.ExecRequest) (string, error) {
	r, err := c.runtime.Exec(ctx, req)
	return r.GetUrl(), err
}

// Attach returns the URL at which the streams of a container are.
func (c *CRI) Attach(ctx context.Context, req *cri.AttachRequest) (string, error) {
	r, err := c.runtime.Attach(ctx, req)
	return r.GetUrl(), err
}

// PortForward returns the URL at which the ports of a sandbox are.
func (c *CRI) PortForward(ctx context.Context, req *cri.PortForwardRequest) (string, error) {
	r, err := c.runtime.PortForward(ctx, req)
	return r.GetUrl(), err
}

// ListPodSandboxStats returns what the pods that pass the filter use.
func (c *CRI) ListPodSandboxStats(ctx context.Context, filter *cri.PodSandboxStatsFilter) ([]*cri.PodSandboxStats, error) {
	r, err := c.runtime.ListPodSandboxStats(ctx, &cri.ListPodSandboxStatsRequest{Filter: filter})
	return r.GetStats(), err
}

// ListContainerStats returns what the containers that pass the filter use.
func (c *CRI) ListContainerStats(ctx context.Context, filter *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error) {
	r, err := c.runtime.ListContainerStats(ctx, &cri.ListContainerStatsRequest{Filter: filter})
	return r.GetStats(), err
}

// Metrics returns the metrics of pods and containers that the runtime has under cadvisor's names, and what they are.
func (c *CRI) Metrics(ctx context.Context) (stats.RuntimeMetrics, error) {
	about, err := c.runtime.ListMetricDescriptors(ctx, &cri.ListMetricDescriptorsRequest{})
	if err != nil {
		return stats.RuntimeMetrics{}, err
	}
	r, err := c.runtime.ListPodSandboxMetrics(ctx, &cri.ListPodSandboxMetricsRequest{})
	return stats.RuntimeMetrics{Descriptors: about.GetDescriptors(), Pods: r.GetPodMetrics()}, err
}

// Events yields the runtime's events. It waits for a runtime that is not there. A
// runtime without them is asked again and again instead, see poll.
func (c *CRI) Events(ctx context.Context) iter.Seq2[*cri.ContainerEventResponse, error] {
	return func(yield func(*cri.ContainerEventResponse, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends the stream when the caller leaves
		stream, err := c.runtime.GetContainerEvents(ctx, &cri.GetEventsRequest{}, grpc.WaitForReady(true))
		if err != nil {
			yield(nil, err)
			return
		}
		// Runtimes send headers with the first event only, so what can be known
		// is that the request is out on a connection that stands. A call after
		// it is answered when the stream is most likely being served.
		if _, err := c.runtime.Version(ctx, &cri.VersionRequest{}, grpc.WaitForReady(true)); err != nil {
			yield(nil, err)
			return
		}
		if !yield(nil, nil) {
			return
		}
		began := time.Now()
		for first := true; ; first = false {
			e, err := stream.Recv()
			if first && err != nil && noEvents(err, time.Since(began)) && ctx.Err() == nil {
				c.poll(ctx, yield)
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// ImageStatus returns the runtime's status of an image, or nil if it does not have the image.
func (c *CRI) ImageStatus(ctx context.Context, image string) (*cri.Image, error) {
	r, err := c.images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: image}})
	return r.GetImage(), err
}

// PullImage makes an image available.
func (c *CRI) PullImage(ctx context.Context, image string, auth *cri.AuthConfig, sandbox *cri.PodSandboxConfig) (string, error) {
	r, err := c.images.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image}, Auth: auth, SandboxConfig: sandbox})
	return r.GetImageRef(), err
}

// ListImages returns all images.
func (c *CRI) ListImages(ctx context.Context) ([]*cri.Image, error) {
	r, err := c.images.ListImages(ctx, &cri.ListImagesRequest{})
	return r.GetImages(), err
}

// RuntimeConfig returns the settings of the runtime that its clients follow. The error of a runtime before CRI 1.28 has
// the code Unimplemented.
func (c *CRI) RuntimeConfig(ctx context.Context) (*cri.LinuxRuntimeConfiguration, error) {
	r, err := c.runtime.RuntimeConfig(ctx, &cri.RuntimeConfigRequest{})
	return r.GetLinux(), err
}

// SetPodCIDR passes on the networks of pods on this node, with commas between. A runtime whose CNI configuration
// is a template fills it in.
func (c *CRI) SetPodCIDR(ctx context.Context, cidr string) error {
	_, err := c.runtime.UpdateRuntimeConfig(ctx, &cri.UpdateRuntimeConfigRequest{
		RuntimeConfig: &cri.RuntimeConfig{NetworkConfig: &cri.NetworkConfig{PodCidr: cidr}},
	})
	return err
}

// ImageFsInfo returns the use of the file systems of images and of writable layers.
func (c *CRI) ImageFsInfo(ctx context.Context) (*cri.ImageFsInfoResponse, error) {
	return c.images.ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
}

// ReopenContainerLog makes the runtime open the path of a container's log again.
func (c *CRI) ReopenContainerLog(ctx context.Context, id string) error {
	_, err := c.runtime.ReopenContainerLog(ctx, &cri.ReopenContainerLogRequest{ContainerId: id})
	return err
}

// CheckpointContainer has the runtime write the state of a container to a file.
func (c *CRI) CheckpointContainer(ctx context.Context, req *cri.CheckpointContainerRequest) error {
	_, err := c.runtime.CheckpointContainer(ctx, req)
	return err
}

// RemoveImage removes an image with all its names.
func (c *CRI) RemoveImage(ctx context.Context, image string) error {
	_, err := c.images.RemoveImage(ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: image}})
	return err
}

// ImageDir returns the directory of the images.
func (c *CRI) ImageDir(ctx context.Context) (string, error) {
	r, err := c.images.ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
	if err != nil {
		return "", err
	}
	for _, f := range r.GetImageFilesystems() {
		if dir := f.GetFsId().GetMountpoint(); dir != "" {
			return dir, nil
		}
	}
	return "", errors.New("the runtime does not say where its images are")
}
