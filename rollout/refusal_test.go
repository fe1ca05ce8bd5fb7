package rollout_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/rollout"
)

// TestRefusedUpdateChangesNothing has the server refuse one of the calls of an update, as
// it does for an invalid object or without permission.
func TestRefusedUpdateChangesNothing(t *testing.T) {
	file := web(3)
	file.Name, file.Spec.Template.Spec.Containers[0].Image = "web2", "v2"
	for _, tt := range []struct {
		name           string
		verb, resource string
		error          string
		change         func(*rollout.Options)
	}{
		{"create", "create", "replicationcontrollers", "creating replicationcontroller web-", nil},
		{"create from a file", "create", "replicationcontrollers", "creating replicationcontroller web2: ", func(o *rollout.Options) { o.Image, o.New = "", file }},
		{"create under another name", "create", "replicationcontrollers", "creating replicationcontroller web2: ", twoNames},
		{"label pods", "patch", "pods", "labelling pod web-", nil},
		{"delete", "delete", "replicationcontrollers", "deleting replicationcontroller web: ", twoNames},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, h *testCluster) {
				h.settled("web", 3, 0, 9)
				before := clienttest.Find(h.s, client.ReplicationControllers, "default", "web")
				h.s.Intercept(func(r clienttest.Request) error {
					if r.Verb == tt.verb && r.Resource == tt.resource {
						return apierrors.NewForbidden(r.GroupResource(), r.Name, nil)
					}
					return nil
				})
				_, err := h.update(h.s, t.Context(), tt.change)
				if !apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), tt.error) {
					t.Errorf("Run = %v, want %s…", err, tt.error)
				}
				h.s.Intercept(nil)
				h.unchanged(before)
			}, web(3))
		})
	}
}

// TestRefusedUpdateKeepsOther has an update of another image be under way.
func TestRefusedUpdateKeepsOther(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 0, 9)
		h.mustUpdate(func(o *rollout.Options) { o.Canaries = 1 })
		before := clienttest.Find(h.s, client.ReplicationControllers, "default", "web")
		h.s.Intercept(func(r clienttest.Request) error {
			if r.Verb == "create" && r.Resource == "replicationcontrollers" {
				return apierrors.NewForbidden(r.GroupResource(), r.Name, nil)
			}
			return nil
		})
		out, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Image = "v3" })
		if !apierrors.IsForbidden(err) {
			t.Errorf("Run = %v, want that it is forbidden", err)
		}
		if strings.Contains(out, "undoing") {
			t.Errorf("it printed that it undoes what it does not undo:\n%s", out)
		}
		h.s.Intercept(nil)
		rc := clienttest.Find(h.s, client.ReplicationControllers, "default", "web")
		if next := "kubectl.kubernetes.io/next-controller-id"; rc.Annotations[next] != before.Annotations[next] || *rc.Spec.Replicas != *before.Spec.Replicas {
			t.Errorf("it is %v with %d replicas, was %v with %d", rc.Annotations, *rc.Spec.Replicas, before.Annotations, *before.Spec.Replicas)
		}
	}, web(3))
}

// unchanged checks that a controller is as it was and that there is no other.
func (h *testCluster) unchanged(before *corev1.ReplicationController) {
	h.t.Helper()
	all := clienttest.All(h.s, client.ReplicationControllers, "default")
	if len(all) != 1 || all[0].ResourceVersion != before.ResourceVersion {
		h.t.Errorf("there are %d controllers, the first one %v; want one, %v", len(all), all[0].ObjectMeta, before.ObjectMeta)
	}
	for _, p := range clienttest.All(h.s, client.Pods, "default") {
		if len(p.Labels) != 1 {
			h.t.Errorf("pod %s has labels %v", p.Name, p.Labels)
		}
	}
}
