package rollout_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/rollout"
)

// awaitOldGone waits until the old pods of a controller are gone, and checks that no pod
// is ending then.
func (h *testCluster) awaitOldGone(name string) {
	h.t.Helper()
	out, err := await.Until(h.t.Context(), h.s, await.Request{For: await.OldGone, Timeout: time.Minute, Targets: []await.Target{{
		Resource: client.ReplicationControllers.GroupVersionResource, Kind: "ReplicationController", Namespace: "default", Name: name,
	}}}, nil)
	if err != nil || out.Result != await.AllDone {
		h.t.Fatalf("Until = %v, %v", out, err)
	}
	for _, p := range clienttest.All(h.s, client.Pods, "default") {
		if p.DeletionTimestamp != nil {
			h.t.Errorf("pod %s is still ending", p.Name)
		}
	}
}

// TestOldGoneAfterUpdate waits for old-gone right after each way to end an
// update, when old pods are still ending.
func TestOldGoneAfterUpdate(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*rollout.Options)
		left   string
	}{
		"one name":  {nil, "web"},
		"two names": {func(o *rollout.Options) { o.NewName = "web2" }, "web2"},
		"preserved": {func(o *rollout.Options) { o.NewName, o.Cleanup = "web2", rollout.CleanupPreserve }, "web2"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, h *testCluster) {
				h.settled("web", 3, 3, 4)
				h.mustUpdate(tt.change)
				h.awaitOldGone(tt.left)
			}, web(3))
		})
	}
	t.Run("rolled back", func(t *testing.T) {
		inCluster(t, func(t *testing.T, h *testCluster) {
			h.settled("web", 3, 3, 4)
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
			defer stop()
			if _, err := h.update(h.s, ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("Run = %v, want the end of the context in mid-update", err)
			}
			h.mustUpdate(func(o *rollout.Options) { o.Image, o.Rollback = "", true })
			h.awaitOldGone("web")
		}, web(3))
	})
}
