package cluster

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/run"
)

// TestOnlyTheNodeOfThisHostGetsTheRole has the node of this host and one that has joined.
func TestOnlyTheNodeOfThisHostGetsTheRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
		api := clienttest.New(t, node("joined"))
		log := slog.New(slog.DiscardHandler)
		caches := cache.NewShared(api, log)
		r := newRoleLabel(api, caches, "own", log)
		g := run.NewGroup(t.Context(), 0)
		for _, f := range []func(context.Context) error{caches.Run, r.task().Run} {
			g.Go(func(ctx context.Context) {
				if err := f(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		create := func() {
			if _, err := client.Nodes.Create(t.Context(), api, node("own")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		has := func(name string) bool {
			_, has := clienttest.Find(api, client.Nodes, "", name).Labels[controlPlaneRole]
			return has
		}
		create()
		<-r.task().Ready
		if !has("own") || has("joined") {
			t.Errorf("after the registration: own %v, joined %v", has("own"), has("joined"))
		}
		removed := clienttest.Find(api, client.Nodes, "", "own").DeepCopy()
		removed.Labels = nil
		if _, err := client.Nodes.Update(t.Context(), api, removed, ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if has("own") {
			t.Error("a label that a user has removed is there again")
		}
		if err := client.Nodes.Delete(t.Context(), api, "", "own", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		create()
		if !has("own") {
			t.Error("a Node that was deleted and registered again has no role")
		}
		g.Stop()
	})
}
