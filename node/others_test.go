package node_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/node/criclient"
	"github.com/sampan-io/sampan/simulation/simulated"
)

// unset writes that a condition of a pod is false, as a controller may.
func (r *rig) unset(name string, c corev1.PodConditionType) {
	pod := r.pod(name).DeepCopy()
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == c {
			pod.Status.Conditions[i].Status = corev1.ConditionFalse
		}
	}
	if _, err := client.Pods.Update(r.Context(), r.api, pod, "status"); err != nil {
		r.Error(err)
	}
}

func TestStatusRestoresOverwrittenCondition(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.create(webPod("web"))
		r.await("web", "ready", isReady)
		synctest.Wait()
		var once sync.Once
		r.api.Intercept(func(q clienttest.Request) error {
			if q.Verb == "patch" && q.Resource == "pods" {
				// Between what the agent saw and what it writes.
				once.Do(func() { r.unset("web", corev1.PodReady) })
			}
			return nil
		})
		r.unset("web", corev1.ContainersReady)
		synctest.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		if p := r.pod("web"); !isReady(p) {
			t.Errorf("what others wrote is still there: %s", brief(p))
		}
	})
}

// mute is a runtime that can be silenced.
type mute struct {
	*simulated.Runtime

	mu     sync.Mutex
	silent bool   // guarded by mu
	cut    func() // guarded by mu; ends the stream of events
}

var errSilent = errors.New("connection refused")

func (m *mute) silence(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = on
	m.cut()
}

func (m *mute) isSilent() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.silent
}

func (m *mute) Status(ctx context.Context) (*cri.StatusResponse, error) {
	if m.isSilent() {
		return nil, errSilent
	}
	return m.Runtime.Status(ctx)
}

func (m *mute) Events(ctx context.Context) iter.Seq2[*cri.ContainerEventResponse, error] {
	return func(yield func(*cri.ContainerEventResponse, error) bool) {
		if m.isSilent() {
			yield(nil, errSilent)
			return
		}
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		m.mu.Lock()
		m.cut = cancel
		m.mu.Unlock()
		m.Runtime.Events(inner)(yield)
	}
}

func TestNodeStaysReadyDuringShortRuntimeOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		rt := &mute{Runtime: r.rt}
		r.opts.Runtime = rt
		stop := r.start()
		defer stop()
		<-r.node.Ready()
		ready := func(at string, want bool) {
			t.Helper()
			synctest.Wait()
			n := clienttest.Find(r.api, client.Nodes, "", "n1")
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && (c.Status == corev1.ConditionTrue) != want {
					t.Errorf("%s the node's Ready is %s (%s), want %v", at, c.Status, c.Message, want)
				}
			}
		}
		rt.silence(true)
		ready("at once", true)
		time.Sleep(29 * time.Second)
		ready("after 29 s", true)
		rt.silence(false)
		time.Sleep(time.Minute)
		ready("when it is heard again", true)
		rt.silence(true)
		time.Sleep(31 * time.Second)
		ready("after 31 s", false)
		rt.silence(false)
		time.Sleep(20 * time.Second)
		ready("when it is heard again", true)
	})
}

// poor is a runtime on a machine that lacks something.
type poor struct{ criclient.Runtime }

func (p poor) Status(ctx context.Context) (*cri.StatusResponse, error) {
	s, err := p.Runtime.Status(ctx)
	if err != nil {
		return nil, err
	}
	s = proto.Clone(s).(*cri.StatusResponse)
	s.Status.Conditions = append(s.GetStatus().GetConditions(), &cri.RuntimeCondition{Type: "NothingMissing", Reason: "MachineLacksSomething", Message: "no memory controller"})
	return s, nil
}

func TestNodeReportsLimitationsAsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.Runtime = poor{r.rt}
		stop := r.start()
		defer stop()
		<-r.node.Ready()
		time.Sleep(time.Minute)
		synctest.Wait()
		count := 0
		for _, e := range clienttest.All(r.api, client.Events, "default") {
			if e.Reason == "MachineLacksSomething" && e.Type == corev1.EventTypeWarning && e.InvolvedObject.Kind == "Node" &&
				e.Message == "container runtime: no memory controller" {
				count++
			}
		}
		if count != 1 {
			t.Errorf("%d events tell what the machine lacks, want 1", count)
		}
	})
}

// TestNodeStartsAgainOnAFullDisk refuses updates of the node: its object says from before that it is ready.
func TestNodeStartsAgainOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		stop := r.start()
		<-r.node.Ready()
		stop()
		full := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Message: "no space left for the store"}}
		r.api.Intercept(func(q clienttest.Request) error {
			if q.Verb == "patch" && q.Resource == "nodes" {
				return full
			}
			return nil
		})
		r.opts.Version = "v1.37.1" // so that there is something to write
		stop = r.start()
		select {
		case <-r.node.Ready():
		case <-time.After(time.Minute):
			t.Error("the node is not ready after a minute")
		}
		stop()
	})
}

// TestNodeReportsRefusedRegistration has an admission webhook refuse the Node for a minute.
func TestNodeReportsRefusedRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var allowed atomic.Bool
		r.api.Intercept(func(q clienttest.Request) error {
			if q.Verb == "create" && q.Resource == "nodes" && !allowed.Load() {
				return apierrors.NewForbidden(corev1.Resource("nodes"), "n", errors.New(`admission webhook "nodes.example.com" denied the request`))
			}
			return nil
		})
		var last atomic.Pointer[error]
		var after atomic.Bool
		r.opts.Trouble = func(err error) {
			last.Store(&err)
			after.Store(allowed.Load())
		}
		stop := r.start()
		defer stop()
		time.Sleep(time.Minute)
		if err := last.Load(); err == nil || !strings.Contains((*err).Error(), `"nodes.example.com" denied`) {
			t.Errorf("reported %v", err)
		}
		allowed.Store(true)
		<-r.node.Ready()
		if after.Load() {
			t.Error("trouble was reported after the registration")
		}
	})
}
