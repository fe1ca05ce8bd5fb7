package node_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/simulation/simulated"
)

// A watched runtime counts how often the containers of a sandbox are read.
type watched struct {
	*simulated.Runtime
	reads atomic.Int32
}

func (w *watched) PodSandboxStatus(ctx context.Context, id string) (*cri.PodSandboxStatusResponse, error) {
	w.reads.Add(1)
	return w.Runtime.PodSandboxStatus(ctx, id)
}

// TestManyContainersAreStartedInFewTurns starts a pod with 400 containers. Each of its turns and each of its status costs as
// much as it has containers, so there must not be one for each container.
func TestManyContainersAreStartedInFewTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 400
		r := newRig(t)
		w := &watched{Runtime: r.rt}
		r.opts.Runtime = w
		stop := r.start()
		<-r.node.Ready()
		r.create(webPod("large", func(p *corev1.Pod) {
			c := p.Spec.Containers[0]
			p.Spec.Containers = nil
			for i := range n {
				c.Name = fmt.Sprintf("c%d", i)
				p.Spec.Containers = append(p.Spec.Containers, c)
			}
		}))
		r.await("large", "ready", func(p *corev1.Pod) bool {
			for _, c := range p.Status.ContainerStatuses {
				if !c.Ready {
					return false
				}
			}
			return len(p.Status.ContainerStatuses) == n
		})
		if reads := w.reads.Load(); reads > n/2 {
			t.Errorf("its containers were read %d times, want at most %d", reads, n/2)
		}
		if patches := r.statusPatches(); patches > n/4 {
			t.Errorf("its status was written %d times, want at most %d", patches, n/4)
		}
		synctest.Wait()
		stop()
	})
}
