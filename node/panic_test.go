package node_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/simulation/simulated"
)

// mined is a runtime in which everything about the sandbox of the pod "mine" panics a few times.
type mined struct {
	*simulated.Runtime
	id          atomic.Pointer[string]
	starts, see atomic.Int32 // panics that are left
}

func (m *mined) RunPodSandbox(ctx context.Context, config *cri.PodSandboxConfig, handler string) (string, error) {
	if config.GetMetadata().GetName() == "mine" && m.starts.Add(-1) >= 0 {
		panic("stepped on a mine")
	}
	id, err := m.Runtime.RunPodSandbox(ctx, config, handler)
	if config.GetMetadata().GetName() == "mine" {
		m.id.Store(&id)
	}
	return id, err
}

func (m *mined) PodSandboxStatus(ctx context.Context, id string) (*cri.PodSandboxStatusResponse, error) {
	if mine := m.id.Load(); mine != nil && id == *mine && m.see.Add(-1) >= 0 {
		panic("stepped on a mine")
	}
	return m.Runtime.PodSandboxStatus(ctx, id)
}

// TestAPanicOverOnePodIsTriedAgain starts a pod over which the agent panics, in an operation and
// in the worker itself, on a node that starts one pod at a time.
func TestAPanicOverOnePodIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		m := &mined{Runtime: r.rt}
		m.starts.Store(2)
		m.see.Store(2)
		r.opts.Runtime, r.opts.Starts = m, 1
		stop := r.start()
		<-r.node.Ready()
		r.create(webPod("mine"))
		r.create(webPod("web"))
		r.await("web", "running", inPhase(corev1.PodRunning))
		r.await("mine", "running", inPhase(corev1.PodRunning))
		synctest.Wait()
		if m.starts.Load() >= 0 || m.see.Load() >= 0 {
			t.Error("nothing has panicked")
		}
		told := func(e *corev1.Event) bool {
			return e.InvolvedObject.Name == "mine" && e.Reason == "FailedSync" && e.Type == corev1.EventTypeWarning
		}
		if !slices.ContainsFunc(r.events(), told) {
			t.Errorf("no event tells of it: %v", r.events())
		}
		stop()
	})
}
