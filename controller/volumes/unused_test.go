package volumes_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
)

// unused returns the status and the reason of the condition Unused of the claim c.
func unused(s *clienttest.Server) string {
	controllertest.Rest()
	for _, o := range clienttest.Find(s, client.PersistentVolumeClaims, "default", "c").Status.Conditions {
		if o.Type == corev1.PersistentVolumeClaimUnused {
			return fmt.Sprintf("%s %s", o.Status, o.Reason)
		}
	}
	return ""
}

func TestClaimSaysWhetherAPodUsesIt(t *testing.T) {
	controllertest.Controlling(t, tasks, func(t *testing.T, s *clienttest.Server) {
		check := func(when, want string) {
			t.Helper()
			if got := unused(s); got != want {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		since := func() (t string) {
			for _, o := range clienttest.Find(s, client.PersistentVolumeClaims, "default", "c").Status.Conditions {
				t = o.LastTransitionTime.String()
			}
			return t
		}
		give(t, s, fmt.Sprintf(pvc, "c", "5Gi", ""))
		check("not bound", "")
		give(t, s, fmt.Sprintf(pv, "v", "5Gi", ""))
		check("bound", "True NoPodsUsingPVC")
		before := since()
		give(t, s, `{apiVersion: v1, kind: Pod, metadata: {namespace: default, name: p}, spec: {volumes: [{name: d, persistentVolumeClaim: {claimName: c}}]}}`)
		check("named by a pod without a node", "False PodUsingPVC")
		time.Sleep(time.Second) // of the bubble
		give(t, s, `{apiVersion: v1, kind: Pod, metadata: {namespace: default, name: q}, spec: {volumes: [{name: d, persistentVolumeClaim: {claimName: c}}]}}`)
		s.Remove(t, clienttest.Find(s, client.Pods, "default", "p"))
		check("named by another pod", "False PodUsingPVC")
		q := clienttest.Find(s, client.Pods, "default", "q").DeepCopy()
		q.Status.Phase = corev1.PodSucceeded
		s.Set(t, q)
		check("named by a pod that has ended", "True NoPodsUsingPVC")
		if since() == before {
			t.Errorf("still since %s", before)
		}
	})
}
