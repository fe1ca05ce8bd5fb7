package criclient

import (
	"context"
	"fmt"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/internal/names"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/crispec"
	"github.com/sampan-io/sampan/node/podcgroup"
)

// A Cleanup says which pods [CleanForeign] removes.
type Cleanup struct {
	Endpoint string // of the container runtime, as in --container-runtime-endpoint
	Owner    string // of the cluster in the runtime; sandboxes have it as a label
	Cgroup   string // the one that holds the pods; empty means none
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
		return fmt.Errorf("listing the pods in the container runtime at %s: %s; start that runtime and run the command again", o.Endpoint, Message(err))
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
				fault = fmt.Errorf("removing pod %s/%s from the container runtime at %s: %s", s.GetMetadata().GetNamespace(), s.GetMetadata().GetName(), o.Endpoint, Message(err))
				mu.Unlock()
			}
		})
	}
	g.Wait()
	mu.Lock()
	defer mu.Unlock()
	if fault == nil {
		podcgroup.RemoveEmpty(o.Cgroup)
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
	if err := rt.StopPodSandbox(ctx, id); err != nil && !IsNotFound(err) {
		return err
	}
	if err := rt.RemovePodSandbox(ctx, id); err != nil && !IsNotFound(err) {
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
