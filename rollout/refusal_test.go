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

// TestRefusedNameKeepsOther has an update be under way and asks for another to a name that is taken: the canaries stay, and a
// dry run says the same.
func TestRefusedNameKeepsOther(t *testing.T) {
	taken := web(0)
	taken.Name, taken.UID, taken.Spec.Selector = "taken", "t", map[string]string{"app": "taken"}
	taken.Spec.Template.Labels = taken.Spec.Selector
	file := web(3)
	file.Name = "taken"
	for name, change := range map[string]func(*rollout.Options){
		"image": func(o *rollout.Options) { o.Image, o.NewName = "v3", "taken" },
		"file":  func(o *rollout.Options) { o.Image, o.New = "", file },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, h *testCluster) {
				h.settled("web", 3, 0, 9)
				h.mustUpdate(func(o *rollout.Options) { o.Canaries = 1 })
				h.s.Writes()
				const want = `replicationcontroller "taken" exists and is not part of an update of "web": choose another name or delete it`
				out, err := h.update(h.s, t.Context(), change)
				if err == nil || err.Error() != want || out != "" {
					t.Errorf("Run = %v after %q, want %s", err, out, want)
				}
				for _, w := range h.s.Writes() {
					if w.Subresource != "status" { // the controllers write these
						t.Errorf("it wrote %v", w)
					}
				}
				if err := h.target(change); err == nil || err.Error() != want {
					t.Errorf("Target = %v, want %s", err, want)
				}
			}, web(3), taken)
		})
	}
}

// target returns the error of a dry run.
func (h *testCluster) target(change func(*rollout.Options)) error {
	h.t.Helper()
	o := rollout.Options{Client: h.s, Namespace: "default", Old: "web", Image: "v2"}
	change(&o)
	u, err := rollout.New(o)
	if err == nil {
		_, _, err = u.Target(h.t.Context())
	}
	return err
}

// TestDryRunRefusesAsRun compares the errors of commands that cannot begin while an update is under way, or none is.
func TestDryRunRefusesAsRun(t *testing.T) {
	way := func(change func(*rollout.Options)) func(*rollout.Options) {
		return func(o *rollout.Options) { o.Image = ""; change(o) }
	}
	for _, tt := range []struct {
		name     string
		underWay bool
		change   func(*rollout.Options)
	}{
		{"replace pods", true, way(func(o *rollout.Options) { o.ReplacePods = true })},
		{"promote", false, way(func(o *rollout.Options) { o.Promote = true })},
		{"promote to another", true, way(func(o *rollout.Options) { o.Promote, o.NewName = true, "web9" })},
		{"roll back", false, way(func(o *rollout.Options) { o.Rollback = true })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, h *testCluster) {
				h.settled("web", 3, 0, 9)
				if tt.underWay {
					h.mustUpdate(func(o *rollout.Options) { o.Canaries = 1 })
				}
				_, err := h.update(h.s, t.Context(), tt.change)
				if dry := h.target(tt.change); err == nil || dry == nil || dry.Error() != err.Error() {
					t.Errorf("Run = %v, Target = %v", err, dry)
				}
			}, web(3))
		})
	}
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
