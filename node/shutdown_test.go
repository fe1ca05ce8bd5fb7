package node_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/node/kubeletconfig"
	"github.com/sampan-io/sampan/node/shutdown/logindtest"
	"github.com/sampan-io/sampan/node/volumes"
)

func TestShutdownEndsPodsByPriority(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	t.Cleanup(func() {
		if err := volumes.Clean(root); err != nil {
			t.Error(err)
		}
	})
	logind, err := logindtest.Serve(filepath.Join(dir, "bus"), time.Hour, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer logind.Close()
	r := newRig(t)
	c := kubeletconfig.Default()
	c.ShutdownGracePeriod, c.ShutdownGracePeriodCriticalPods = metav1.Duration{Duration: time.Hour}, metav1.Duration{Duration: time.Minute}
	r.opts.Config, r.opts.RootDir, r.opts.SystemBus = c, root, "unix:path="+filepath.Join(dir, "bus")
	r.opts.DrainPause = -1
	stop := r.start()
	defer stop()
	<-r.node.Ready()
	r.create(webPod("critical", func(p *corev1.Pod) { p.Spec.Priority = new(int32(2_000_000_000)) }))
	r.create(webPod("web"))
	r.await("critical", "ready", isReady)
	r.await("web", "ready", isReady)
	logind.Await(1, 1)

	logind.Shutdown(true)
	web := r.await("web", "ended", inPhase(corev1.PodFailed))
	critical := r.await("critical", "ended", inPhase(corev1.PodFailed))
	logind.Await(0, 1)
	for _, p := range []*corev1.Pod{web, critical} {
		s := p.Status
		if s.Reason != "Terminated" || s.Message != "Pod was terminated in response to imminent node shutdown." {
			t.Errorf("%s is %s: %s", p.Name, s.Reason, s.Message)
		}
		if !slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "TerminationByKubelet"
		}) {
			t.Errorf("%s has the conditions %+v", p.Name, s.Conditions)
		}
	}
	ended := func(p *corev1.Pod) time.Time { return p.Status.ContainerStatuses[0].State.Terminated.FinishedAt.Time }
	if ended(critical).Before(ended(web)) {
		t.Errorf("the critical pod ended at %v, before the other one at %v", ended(critical), ended(web))
	}
	r.awaitReadiness(corev1.ConditionFalse, "node is shutting down")
	r.create(webPod("late"))
	if s := r.await("late", "rejected", inPhase(corev1.PodFailed)).Status; s.Reason != "NodeShutdown" || s.Message != "Pod was rejected: Pod was rejected as the node is shutting down." {
		t.Errorf("a pod that comes late is %s: %s", s.Reason, s.Message)
	}

	logind.Shutdown(false)
	logind.Await(1, 2)
	r.awaitReadiness(corev1.ConditionTrue, "kubelet is posting ready status")
	r.create(webPod("next"))
	r.await("next", "ready", isReady)
}

// awaitReadiness waits for a state of the node's condition Ready.
func (r *rig) awaitReadiness(status corev1.ConditionStatus, message string) {
	r.Helper()
	r.api.Await(r, func() error {
		for _, c := range clienttest.Find(r.api, client.Nodes, "", "n1").Status.Conditions {
			if c.Type == corev1.NodeReady && (c.Status != status || c.Message != message) {
				return errNotYet(c.Message)
			}
		}
		return nil
	})
}

type errNotYet string

func (e errNotYet) Error() string { return "the node's condition Ready is still: " + string(e) }
