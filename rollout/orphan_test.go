package rollout_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/rollout"
)

// An onLine is an output that calls a function when a line with this text is printed first.
type onLine struct {
	text string
	call func()
}

func (o *onLine) Write(b []byte) (int, error) {
	if o.call != nil && strings.Contains(string(b), o.text) {
		call := o.call
		o.call = nil
		call()
	}
	return len(b), nil
}

// loseOld runs an update whose old controller is deleted when it prints a line with this text,
// and returns the name of the new controller.
func (h *testCluster) loseOld(at string, change func(*rollout.Options)) string {
	h.t.Helper()
	h.settled("web", 3, 0, 9)
	_, err := h.update(h.s, h.t.Context(), func(o *rollout.Options) {
		if change != nil {
			change(o)
		}
		o.Out = &onLine{text: at, call: func() {
			background := metav1.DeletePropagationBackground
			err := client.ReplicationControllers.Delete(h.t.Context(), h.s, "default", "web", metav1.DeleteOptions{PropagationPolicy: &background})
			if err != nil {
				h.t.Error(err)
			}
		}}
	})
	var orphaned *rollout.OrphanedError
	if !errors.As(err, &orphaned) || orphaned.Old != "web" || orphaned.Desired != 3 {
		h.t.Fatalf("Run = %v, want an OrphanedError of web", err)
	}
	return orphaned.New
}

var orphanings = map[string]struct {
	at     string
	change func(*rollout.Options)
}{
	"before the first pod":                    {"Created", nil},
	"in the middle":                           {"up to 2", nil},
	"in the renaming":                         {"Renaming", nil},
	"before the first pod of another name":    {"Created", twoNames},
	"in the middle of an update with a name":  {"up to 2", twoNames},
	"in the middle of one that preserves web": {"up to 2", func(o *rollout.Options) { o.NewName, o.Cleanup = "web2", rollout.CleanupPreserve }},
}

func TestOrphanedUpdateIsFinished(t *testing.T) {
	for name, tt := range orphanings {
		for _, again := range []string{"again", "promote"} {
			t.Run(name+", "+again, func(t *testing.T) {
				inCluster(t, func(t *testing.T, h *testCluster) {
					left := h.loseOld(tt.at, tt.change)
					out, text, err := h.outcome(h.s, t.Context(), func(o *rollout.Options) {
						if again == "promote" {
							o.Image, o.Promote = "", true
						} else if tt.change != nil {
							tt.change(o)
						}
					})
					if err != nil || out.Name != left {
						t.Fatalf("Run = %v, %v, want %s; it printed\n%s", out, err, left, text)
					}
					h.ends(left, "v2", 3, 0, "web")
					if rcs := clienttest.All(h.s, client.ReplicationControllers, "default"); len(rcs) != 1 {
						t.Errorf("%d controllers are left, want 1", len(rcs))
					}
				}, web(3))
			})
		}
	}
}

func TestOrphanedUpdateIsUndone(t *testing.T) {
	for name, tt := range orphanings {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, h *testCluster) {
				left := h.loseOld(tt.at, tt.change)
				back := func(o *rollout.Options) { o.Image, o.Rollback = "", true }
				out, text, err := h.outcome(h.s, t.Context(), back)
				if err != nil || out.Deleted != left || out.Name != "" {
					t.Errorf("Run = %v, %v, want that %s is deleted; it printed\n%s", out, err, left, text)
				}
				if rcs := clienttest.All(h.s, client.ReplicationControllers, "default"); len(rcs) != 0 {
					t.Errorf("%s is left", rcs[0].Name)
				}
				if _, err := h.update(h.s, t.Context(), back); !apierrors.IsNotFound(err) {
					t.Errorf("a second time: Run = %v, want that web is not found", err)
				}
			}, web(3))
		})
	}
}

// TestOrphanedUpdateWithOtherImage asks for another image than the update that is left.
func TestOrphanedUpdateWithOtherImage(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		left := h.loseOld("up to 2", nil)
		_, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Image = "v3" })
		if err == nil || !strings.Contains(err.Error(), left) || !strings.Contains(err.Error(), "--promote finishes that, --rollback deletes it") {
			t.Errorf("Run = %v, want what %s is and what to do", err, left)
		}
	}, web(3))
}

// TestOrphanedUpdateIsResumed kills the run that finishes an update after each of its
// calls.
func TestOrphanedUpdateIsResumed(t *testing.T) {
	for call := 1; ; call++ {
		complete := false
		inCluster(t, func(t *testing.T, h *testCluster) {
			left := h.loseOld("up to 2", nil)
			ctx, kill := context.WithCancel(t.Context())
			defer kill()
			broken := &faultClient{Interface: h.s, kill: kill, at: call, lost: true}
			if _, err := h.update(broken, ctx, nil); err == nil {
				complete = true
			} else if _, err := h.update(h.s, t.Context(), nil); err != nil && !apierrors.IsNotFound(err) { // it was the last call
				t.Fatalf("killed at call %d: Run = %v", call, err)
			}
			h.ends(left, "v2", 3, 0, "web")
		}, web(3))
		if complete || t.Failed() {
			return
		}
	}
}
