package apiserver_test

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/follow"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/run"
)

func TestFollowReportsEachState(t *testing.T) {
	f := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	states := make(chan []string)
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	g.Go(func(ctx context.Context) {
		follow.Objects(ctx, apiservertest.Kinds(t), f.store, corev1.SchemeGroupVersion.WithResource("namespaces"), func(all []catalog.Object) {
			names := []string{}
			for _, obj := range all {
				names = append(names, obj.GetName())
			}
			select {
			case states <- names:
			case <-ctx.Done():
			}
		})
		close(states)
	})
	until := func(want ...string) {
		t.Helper()
		for got := range states {
			if slices.Equal(got, want) {
				return
			}
		}
		t.Fatalf("the state %q did not come", want)
	}
	until()
	f.do("POST", "/api/v1/namespaces", `{"metadata":{"name":"b"},"spec":{"finalizers":[]}}`)
	until("b")
	f.do("POST", "/api/v1/namespaces", `{"metadata":{"name":"a"}}`)
	until("a", "b")
	cancel()
	for range states {
	}
}
