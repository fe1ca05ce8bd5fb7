package rollout_test

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/rollout"
)

// kubectl rolling-update had nine defects. Each has a test here; what is said of it
// is what it did.

func TestDefect1TimeoutUnused(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 1, 1, 2)
		var late *rollout.TimeoutError
		began := time.Now()
		out, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Image, o.Timeout = "slow", 50*time.Second })
		if !errors.As(err, &late) || !strings.Contains(late.Why, "0 of 1 new pods ready") {
			t.Errorf("Run = %v, want a TimeoutError that says why, after\n%s", err, out)
		}
		if took := time.Since(began).Round(10 * time.Second); took != 50*time.Second {
			t.Errorf("it took %v, want 50 s", took)
		}
	}, web(1))
}

func TestDefect2DryRunWrites(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 3)
		h.stop()
		h.s.Writes()
		for name, change := range map[string]func(*rollout.Options){
			"image":   func(o *rollout.Options) { o.Image = "v2" },
			"spec":    func(o *rollout.Options) { o.New = newSpec(map[string]string{"app": "web"}) },
			"replace": func(o *rollout.Options) { o.ReplacePods = true },
		} {
			o := rollout.Options{Client: h.s, Namespace: "default", Old: "web"}
			change(&o)
			u, err := rollout.New(o)
			if err != nil {
				t.Fatal(err)
			}
			rc, _, err := u.Target(t.Context())
			if want := map[bool]string{true: "v1", false: "v2"}[o.ReplacePods]; err != nil || rc.Spec.Template.Spec.Containers[0].Image != want {
				t.Errorf("%s: Target = %+v, %v, want a controller of %s", name, rc, err, want)
			}
		}
		if w := h.s.Writes(); len(w) > 0 {
			t.Errorf("it wrote: %v", w)
		}
	}, web(3))
}

func TestDefect3KilledRename(t *testing.T) {
	// Every call of the renaming is one of those after which the updater is killed
	// here; this test is for the name.
	everyCall(t, way{name: "rename", end: "web", image: "v2", made: 6})
}

func TestDefect4PartnerByNamePrefix(t *testing.T) {
	other := web(1)
	other.Name, other.UID = "web2", "uid-web2"
	other.Spec.Selector = map[string]string{"app": "other"}
	other.Spec.Template.Labels = map[string]string{"app": "other"}
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 1, 0, 10)
		if _, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.NewName = "web2" }); err == nil || !strings.Contains(err.Error(), "not part of an update") {
			t.Errorf("Run = %v, want a refusal to use web2", err)
		}
		// An update of webby that is under way does not affect web.
		scaleTo := int32(1)
		webby := web(1)
		webby.Name, webby.UID = "webby", "uid-webby"
		webby.Spec.Selector, webby.Spec.Replicas = map[string]string{"app": "webby"}, &scaleTo
		webby.Spec.Template.Labels = map[string]string{"app": "webby"}
		next := webby.DeepCopy()
		next.Name, next.UID = "web-next", "uid-next"
		next.Annotations = map[string]string{
			"kubectl.kubernetes.io/update-source-id": "webby:uid-webby",
			"kubectl.kubernetes.io/desired-replicas": "1",
		}
		h.s.Set(t, webby, next)
		h.mustUpdate(nil)
		h.ends("web", "v2", 1, 0, "web2", "webby", "web-next")
		now := clienttest.Find(h.s, client.ReplicationControllers, "default", "web-next")
		if now == nil || !maps.Equal(now.Annotations, next.Annotations) {
			t.Errorf("web-next is %+v, want it as it was", now)
		}
	}, web(1), other)
}

func TestDefect5RenameWithoutController(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 4)
		var mu sync.Mutex
		var released, taken time.Time // guarded by mu
		between := 0                  // guarded by mu
		h.s.Intercept(func(r clienttest.Request) error {
			mu.Lock()
			defer mu.Unlock()
			rc, is := r.Object.(*corev1.ReplicationController)
			if r.Verb != "update" || !is || r.Subresource != "" {
				if !released.IsZero() && taken.IsZero() && r.Subresource == "" && (r.Verb == "create" || r.Verb == "delete") {
					between++
				}
				return nil
			}
			if _, found := rc.Spec.Selector["sampan.dev/rollout-released"]; found {
				released = time.Now()
			}
			if rc.Annotations["sampan.dev/rollout-taken"] != "" && taken.IsZero() {
				taken = time.Now()
			}
			return nil
		})
		h.mustUpdate(nil)
		h.s.Intercept(nil)
		mu.Lock()
		defer mu.Unlock()
		if released.IsZero() || taken.IsZero() || !released.Equal(taken) || between != 0 {
			t.Errorf("let go at %v, taken at %v, %d calls in between; want no time and none", released, taken, between)
		}
		h.end("web", "v2", 3, 6) // six: none was restarted
	}, web(3))
}

func TestDefect6FirstContainerOnly(t *testing.T) {
	rc := web(2)
	rc.Spec.Template.Spec.Containers = append(rc.Spec.Template.Spec.Containers, corev1.Container{Name: "side", Image: "s1"})
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 2, 2, 3)
		for _, name := range []string{"", "none"} {
			if _, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Container = name }); err == nil || !strings.Contains(err.Error(), "main, side") {
				t.Errorf("container %q: Run = %v, want the containers there are", name, err)
			}
		}
		side := func(o *rollout.Options) { o.Container, o.Image = "side", "s2" }
		killedAt(t, h, 13, side) // in the middle
		out := h.mustUpdate(side)
		if !strings.Contains(out, "Found existing update in progress") {
			t.Errorf("it was not resumed:\n%s", out)
		}
		h.end("web", "v1", 2, 4)
		if got := clienttest.Find(h.s, client.ReplicationControllers, "default", "web").Spec.Template.Spec.Containers[1].Image; got != "s2" {
			t.Errorf("the second container has %s, want s2", got)
		}
	}, rc)
}

func TestDefect7RollbackIgnoresError(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 2, 2, 3)
		if _, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Image = "bad" }); !errors.As(err, new(*rollout.FailedError)) {
			t.Fatalf("Run = %v, want a FailedError", err)
		}
		no := apierrors.NewForbidden(client.ReplicationControllers.GroupResource(), "web", errors.New("frozen"))
		h.s.Intercept(func(r clienttest.Request) error {
			if r.Verb == "update" && r.Subresource == "" {
				return no
			}
			return nil
		})
		if _, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Image, o.Rollback = "", true }); !errors.Is(err, no) {
			t.Errorf("Run = %v, want the server's %v", err, no)
		}
		h.s.Intercept(nil)
		h.mustUpdate(func(o *rollout.Options) { o.Image, o.Rollback = "", true })
		h.end("web", "v1", 2, 0)
	}, web(2))
}

func TestDefect7ScaleDuringUpdate(t *testing.T) {
	for _, of := range []string{"old", "new"} {
		t.Run(of, func(t *testing.T) {
			inCluster(t, func(t *testing.T, h *testCluster) {
				h.settled("web", 2, 2, 1<<30)
				done := false
				_, err := h.update(h.s, t.Context(), func(o *rollout.Options) {
					o.Out = writer(func(line string) {
						if done || !strings.Contains(line, "Scaling web down to 1") {
							return
						}
						done = true
						for _, rc := range clienttest.All(h.s, client.ReplicationControllers, "default") {
							if (rc.Name == "web") == (of == "old") {
								scale(t, h, rc.Name, 5)
							}
						}
					})
				})
				if err != nil {
					t.Fatal(err)
				}
				h.end("web", "v2", 5, 0)
			}, web(2))
		})
	}
}

// TestDefect7ScaleAtAnyTime scales the old controller before each call in
// turn, up to the moment when it has taken the pods over.
func TestDefect7ScaleAtAnyTime(t *testing.T) {
	for call := 2; ; call++ {
		over := false
		inCluster(t, func(t *testing.T, h *testCluster) {
			h.settled("web", 2, 2, 1<<30)
			f := &faultClient{Interface: h.s}
			f.before = func(n int) {
				if n == call {
					scale(t, h, "web", 5)
				}
			}
			out, err := h.update(f, t.Context(), nil)
			if err != nil {
				t.Fatalf("scaled before call %d: Run = %v after\n%s", call, err, out)
			}
			if over = f.count() < call; !over {
				h.end("web", "v2", 5, 0)
			}
			if t.Failed() {
				t.Fatalf("scaled before call %d:\n%s", call, out)
			}
		}, web(2))
		if over || t.Failed() {
			return
		}
	}
}

func scale(t *testing.T, h *testCluster, name string, n int32) {
	for {
		rc := clienttest.Find(h.s, client.ReplicationControllers, "default", name).DeepCopy()
		rc.Spec.Replicas = &n
		_, err := client.ReplicationControllers.Update(t.Context(), h.s, rc, "")
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) { // its status may have changed in between
			t.Fatal(err)
		}
	}
}

type writer func(string)

func (w writer) Write(b []byte) (int, error) { w(string(b)); return len(b), nil }

func TestDefect8TerminatingPodsCounted(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 4)
		// New pods that never become ready take none of the old ones' places.
		if _, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Image = "slow" }); err == nil {
			t.Fatal("an update to pods that do not become ready succeeded")
		}
		if now := clienttest.Find(h.s, client.ReplicationControllers, "default", "web"); *now.Spec.Replicas != 3 {
			t.Errorf("the old controller has %d pods left, want 3", *now.Spec.Replicas)
		}
		// Ready pods that another client is deleting do not count as ready.
		h.mustUpdate(func(o *rollout.Options) { o.Image, o.Rollback = "", true })
		h.expect(0, 1<<30)
		hook := false
		h.s.Intercept(func(r clienttest.Request) error {
			rc, is := r.Object.(*corev1.ReplicationController)
			if is && r.Verb == "update" && r.Subresource == "" && r.Name == "web" && *rc.Spec.Replicas == 2 && !hook {
				hook = true
				live := 0
				for _, p := range clienttest.All(h.s, client.Pods, "default") {
					if ready(p) && p.DeletionTimestamp == nil {
						live++
					}
				}
				// Two of them may be old; the controller deletes the newly created pod first.
				if live < 3 {
					t.Errorf("the old controller is scaled down when %d pods are ready, want 3", live)
				}
			}
			return nil
		})
		h.mustUpdate(func(o *rollout.Options) {
			o.Out = writer(func(line string) {
				if !strings.Contains(line, "up to 1") {
					return
				}
				for _, p := range clienttest.All(h.s, client.Pods, "default") {
					if p.Spec.Containers[0].Image == "v1" && p.DeletionTimestamp == nil {
						_ = client.Pods.Delete(t.Context(), h.s, "default", p.Name, metav1.DeleteOptions{})
						return
					}
				}
			})
		})
		h.s.Intercept(nil)
		h.end("web", "v2", 3, 0)
	}, web(3))
}

func TestDefect9FailedUpdateBlocksNext(t *testing.T) {
	for _, image := range []string{"slow", "bad"} {
		t.Run(image, func(t *testing.T) {
			inCluster(t, func(t *testing.T, h *testCluster) {
				h.settled("web", 3, 3, 4)
				if _, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Image = image }); err == nil {
					t.Fatal("it succeeded")
				}
				out := h.mustUpdate(nil)
				if !strings.Contains(out, "undoing it first") {
					t.Errorf("it did not tell what it found:\n%s", out)
				}
				h.end("web", "v2", 3, 7)
				if _, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Image, o.Rollback = "", true }); err == nil {
					t.Error("a rollback of nothing succeeded, want: nothing to roll back")
				}
			}, web(3))
		})
	}
}
