package simulated

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/simulation"
)

// Unready is the annotation that makes a pod's probes fail, with its value as the
// reason.
const Unready = simulation.UnreadyAnnotation

// Probe answers the probes of the node agent: they succeed, unless the pod has the
// annotation for failing probes, which concerns readiness probes only.
func (r *Runtime) Probe(_ context.Context, p *corev1.Probe, spec *corev1.Container, id, _ string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil || c.status.GetState() != cri.ContainerState_CONTAINER_RUNNING {
		return errors.New("the container is not running")
	}
	if p != spec.ReadinessProbe {
		return nil
	}
	if why := c.sandbox.config.GetAnnotations()[Unready]; why != "" {
		return errors.New(why)
	}
	return nil
}
