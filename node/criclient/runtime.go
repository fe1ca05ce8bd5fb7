package criclient

import (
	"context"
	"iter"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A Runtime holds the containers of a node. Its methods are the calls of the
// Kubernetes container runtime interface (CRI v1) under their own names; see
// there for what each promises. It is safe for concurrent use. Errors carry gRPC
// status codes; NotFound means that there is no such thing. Messages that come
// out may be shared and must not be changed.
//
// [Dial] returns one that speaks to a CRI server, package simulated has one without
// containers.
type Runtime interface {
	Version(ctx context.Context) (*cri.VersionResponse, error)
	Status(ctx context.Context) (*cri.StatusResponse, error)

	// RunPodSandbox runs the pod with one of the handlers that Status names; "" is the default one.
	RunPodSandbox(ctx context.Context, config *cri.PodSandboxConfig, handler string) (id string, err error)
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	// PodSandboxStatus may or may not include the containers in the sandbox.
	PodSandboxStatus(ctx context.Context, id string) (*cri.PodSandboxStatusResponse, error)
	ListPodSandbox(ctx context.Context, filter *cri.PodSandboxFilter) ([]*cri.PodSandbox, error)

	CreateContainer(ctx context.Context, sandbox string, config *cri.ContainerConfig, sandboxConfig *cri.PodSandboxConfig) (id string, err error)
	StartContainer(ctx context.Context, id string) error
	// StopContainer returns when the container has ended, at the latest shortly
	// after grace.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	UpdateContainerResources(ctx context.Context, id string, resources *cri.LinuxContainerResources) error
	RemoveContainer(ctx context.Context, id string) error
	ContainerStatus(ctx context.Context, id string) (*cri.ContainerStatus, error)
	ListContainers(ctx context.Context, filter *cri.ContainerFilter) ([]*cri.Container, error)
	ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (*cri.ExecSyncResponse, error)

	// Exec, Attach and PortForward return the URL of an HTTP server that waits for one request for an upgrade, for about a
	// minute. The URL is all that a client needs.
	Exec(ctx context.Context, req *cri.ExecRequest) (url string, err error)
	Attach(ctx context.Context, req *cri.AttachRequest) (url string, err error)
	PortForward(ctx context.Context, req *cri.PortForwardRequest) (url string, err error)

	// ListPodSandboxStats may leave out the writable layers of containers, which are in ListContainerStats.
	ListPodSandboxStats(ctx context.Context, filter *cri.PodSandboxStatsFilter) ([]*cri.PodSandboxStats, error)
	ListContainerStats(ctx context.Context, filter *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error)

	// Events yields what happens to containers, from about now on, until ctx is
	// over, the caller leaves the loop, or the stream breaks: an error is the
	// last thing yielded. The first thing is nil, once the stream stands: from
	// then on nothing is missed.
	Events(ctx context.Context) iter.Seq2[*cri.ContainerEventResponse, error]

	// ImageStatus returns nil if the image is not there.
	ImageStatus(ctx context.Context, image string) (*cri.Image, error)
	PullImage(ctx context.Context, image string, auth *cri.AuthConfig, sandbox *cri.PodSandboxConfig) (ref string, err error)
	ListImages(ctx context.Context) ([]*cri.Image, error)
}
