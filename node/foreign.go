package node

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/names"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/crispec"
)

// Calls of CRI that a [Runtime] may lack.
type (
	// configurable takes the pod network, and returns which cgroup driver the runtime uses.
	configurable interface {
		RuntimeConfig(ctx context.Context) (*cri.LinuxRuntimeConfiguration, error)
		SetPodCIDR(ctx context.Context, cidr string) error
	}
	// imageFiles measures the file systems of images and of containers.
	imageFiles interface {
		ImageFsInfo(ctx context.Context) (*cri.ImageFsInfoResponse, error)
	}
	// logReopener opens the log of a container again after it was renamed.
	logReopener interface {
		ReopenContainerLog(ctx context.Context, id string) error
	}
)

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

// configure exchanges settings with a runtime that others configure: the pod network, and the cgroup driver.
func (n *Node) configure(ctx context.Context) {
	rt, ok := n.opts.Runtime.(configurable)
	if !ok || n.opts.Owner == "" {
		return
	}
	if len(n.opts.PodCIDRs) > 0 {
		if err := rt.SetPodCIDR(ctx, strings.Join(n.opts.PodCIDRs, ",")); err != nil && ctx.Err() == nil {
			n.log.Warn("the container runtime did not accept the pod network", "network", n.opts.PodCIDRs, "err", err)
		}
	}
	if err := n.setDriver(ctx, rt); err != nil && status.Code(err) != codes.Unimplemented && ctx.Err() == nil {
		n.log.Warn("the settings of the container runtime could not be read", "err", err)
	}
}

// A Cleanup says which pods [CleanForeign] removes.
type Cleanup struct {
	Endpoint string // of the container runtime, as in --container-runtime-endpoint
	Owner    string // see [Options.Owner]
	Cgroup   string // see [Options.CgroupRoot]
}

// stopsAtOnce bounds the pods that CleanForeign stops at the same time.
const stopsAtOnce = 16

// CleanForeign stops and removes the pods that a node made in a container runtime that is not Sampan's, and no others.
// Each container gets the grace period of its pod, at most a limit. It is idempotent.
func CleanForeign(ctx context.Context, o Cleanup, limit time.Duration) error {
	rt, err := Dial(o.Endpoint)
	if err != nil {
		return err
	}
	defer rt.Close()
	sandboxes, err := rt.ListPodSandbox(ctx, &cri.PodSandboxFilter{LabelSelector: map[string]string{names.Cluster: o.Owner}})
	if err != nil {
		return fmt.Errorf("listing the pods in the container runtime at %s: %s; start that runtime and run the command again", o.Endpoint, sentence(err))
	}
	g := run.NewGroup(ctx, stopsAtOnce)
	var (
		mu    sync.Mutex
		fault error
	)
	for _, s := range sandboxes {
		g.Go(func(ctx context.Context) {
			if err := removeSandbox(ctx, rt, s.GetId(), limit); err != nil {
				mu.Lock()
				fault = fmt.Errorf("removing pod %s/%s from the container runtime at %s: %s", s.GetMetadata().GetNamespace(), s.GetMetadata().GetName(), o.Endpoint, sentence(err))
				mu.Unlock()
			}
		})
	}
	g.Wait()
	mu.Lock()
	defer mu.Unlock()
	if fault == nil {
		removeCgroups(o.Cgroup)
	}
	return fault
}

func removeSandbox(ctx context.Context, rt *CRI, id string, limit time.Duration) error {
	containers, err := rt.ListContainers(ctx, &cri.ContainerFilter{PodSandboxId: id, State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}})
	if err != nil {
		return err
	}
	g := run.NewGroup(ctx, 0)
	for _, c := range containers {
		g.Go(func(ctx context.Context) {
			_ = rt.StopContainer(ctx, c.GetId(), min(limit, graceOf(c))) // stopping the sandbox kills what is left
		})
	}
	g.Wait()
	if err := rt.StopPodSandbox(ctx, id); err != nil && !notFound(err) {
		return err
	}
	if err := rt.RemovePodSandbox(ctx, id); err != nil && !notFound(err) {
		return err
	}
	return nil
}

// graceOf returns the grace period that a container was created with.
func graceOf(c *cri.Container) time.Duration {
	d, err := time.ParseDuration(c.GetAnnotations()[crispec.TerminationGrace] + "s")
	if err != nil {
		return defaultGrace
	}
	return d
}

// defaultGrace is the grace period of a pod that has none.
const defaultGrace = 30 * time.Second

// ownSandboxes returns the filter for the sandboxes of this agent, or nil for all.
func (n *Node) ownSandboxes() *cri.PodSandboxFilter {
	if n.opts.Owner == "" {
		return nil
	}
	return &cri.PodSandboxFilter{LabelSelector: map[string]string{names.Cluster: n.opts.Owner}}
}
