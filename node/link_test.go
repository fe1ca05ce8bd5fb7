package node_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/simulation/simulated"
)

// TestAgentCatchesUpAfterCutLink is about simulated.Link: to the agent it is
// a network that loses everything for a while.
func TestAgentCatchesUpAfterCutLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		link := simulated.NewLink(r.api)
		r.opts.Client = link
		stop := r.start()
		defer stop()
		<-r.node.Ready()
		r.create(webPod("stays"))
		r.create(webPod("leaves"))
		r.await("stays", "ready", isReady)
		r.await("leaves", "ready", isReady)
		synctest.Wait()
		renewed := func() time.Time {
			return clienttest.Find(r.api, client.Leases, corev1.NamespaceNodeLease, "n1").Spec.RenewTime.Time
		}
		link.Set(true)
		time.Sleep(time.Second) // what was under way is done
		synctest.Wait()
		r.api.Writes() // forget what was
		last := renewed()
		grace := int64(1)
		if err := client.Pods.Delete(t.Context(), r.api, "default", "leaves", metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
			t.Fatal(err)
		}
		r.create(webPod("late"))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if writes := r.api.Writes(); len(writes) != 2 { // ours
			t.Errorf("through a link that is cut came %v", writes)
		}
		if p := r.pod("late"); p.Status.StartTime != nil || renewed() != last {
			t.Errorf("pod is %s, lease renewed at %v", brief(p), renewed())
		}
		link.Set(false)
		r.await("leaves", "gone", gone)
		r.await("late", "ready", isReady)
		synctest.Wait()
		if !renewed().After(last) || !isReady(r.pod("stays")) {
			t.Errorf("lease renewed at %v as before, pod %s", renewed(), brief(r.pod("stays")))
		}
	})
}
