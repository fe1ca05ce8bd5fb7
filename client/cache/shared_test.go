package cache_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/run"
)

func anyConfigMaps() client.Resource[client.Object] {
	r := client.ConfigMaps
	return client.Resource[client.Object](r)
}

// TestSharedCachesFollowOnce has two parts that know one resource by different types and
// indexes, and a third that reads another resource.
func TestSharedCachesFollowOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, config("a", "sweet"), config("b", "sour"))
		var mu sync.Mutex // the two followers ask at the same time
		asked := map[string]int{}
		s.Intercept(func(r clienttest.Request) error {
			mu.Lock()
			defer mu.Unlock()
			asked[r.Resource]++
			return nil
		})
		shared := cache.NewShared(s, nil)
		typed := cache.Of(shared, client.ConfigMaps, cache.Indexes[*corev1.ConfigMap]{"by": byFlavour})
		untyped := cache.Of(shared, anyConfigMaps(), cache.Indexes[client.Object]{
			"by": func(o client.Object) []string { return []string{o.GetName()} },
		})
		pods := cache.Of(shared, client.Pods, nil)
		var order []string
		var d diary
		typed.Subscribe(func(before, after *corev1.ConfigMap) {
			order = append(order, "typed")
			d.hear(before, after)
		})
		untyped.Subscribe(func(before, after client.Object) {
			order = append(order, "untyped")
			if before == nil && after == nil {
				t.Error("told of nothing")
			}
		})
		g := run.NewGroup(t.Context(), 0)
		defer g.Stop()
		g.Go(func(ctx context.Context) { _ = shared.Run(ctx) })
		<-shared.Ready()
		for name, ready := range map[string]<-chan struct{}{"typed": typed.Ready(), "untyped": untyped.Ready(), "pods": pods.Ready()} {
			select {
			case <-ready:
			default:
				t.Errorf("%s is not ready when all are", name)
			}
		}
		mu.Lock()
		if asked["configmaps"] != 1 || asked["pods"] != 1 {
			t.Errorf("asked %v, want each resource once", asked)
		}
		mu.Unlock()
		s.Remove(t, config("a", ""))
		synctest.Wait()
		if want := []string{"typed", "untyped", "typed", "untyped", "typed", "untyped"}; !slices.Equal(order, want) {
			t.Errorf("told in the order %v, want %v", order, want)
		}
		if want := []string{"+a", "+b", "-a"}; !slices.Equal(d.lines, want) {
			t.Errorf("told %v, want %v", d.lines, want)
		}
		if n := len(typed.ByIndex("by", "sour")); n != 1 {
			t.Errorf("%d are sour, want 1", n)
		}
		if n := len(untyped.ByIndex("by", "b")); n != 1 {
			t.Errorf("%d are called b, want 1", n)
		}
		if typed.Len() != 1 || untyped.Len() != 1 || pods.Len() != 0 {
			t.Errorf("the caches hold %d, %d and %d objects, want 1, 1, 0", typed.Len(), untyped.Len(), pods.Len())
		}
		if err := typed.Run(t.Context()); err == nil {
			t.Error("a shared cache was run by itself")
		}
	})
}

// TestSharedHoldsMetadataIfNobodyReadsMore has a reader of metadata, alone and beside one of whole objects.
func TestSharedHoldsMetadataIfNobodyReadsMore(t *testing.T) {
	for _, whole := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			shared := cache.NewShared(clienttest.New(t, config("a", "sweet")), nil)
			c := cache.MetadataOf(shared, anyConfigMaps(), cache.Indexes[client.Object]{
				"name": func(o client.Object) []string { return []string{o.GetName()} },
			})
			if whole {
				cache.Of(shared, client.ConfigMaps, nil)
			}
			g := run.NewGroup(t.Context(), 0)
			defer g.Stop()
			g.Go(func(ctx context.Context) { _ = shared.Run(ctx) })
			<-shared.Ready()
			found := c.ByIndex("name", "a")
			if len(found) != 1 || found[0].GetUID() == "" || found[0].GetResourceVersion() == "" || client.KindOf(found[0]).Kind != "ConfigMap" && !whole {
				t.Fatalf("the cache has %v", found)
			}
			if _, is := found[0].(*corev1.ConfigMap); is != whole {
				t.Errorf("with a reader of whole objects: %v, the cache holds a %T", whole, found[0])
			}
		})
	}
}

// TestCachesOfOthersAreNotRunTwice is about parts that are given caches, or are not.
func TestCachesOfOthersAreNotRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, config("a", ""))
		part := func(given *cache.Shared) (*cache.Cache[*corev1.ConfigMap], run.Task) {
			caches, task := given.Or(s, nil)
			return cache.Of(caches, client.ConfigMaps, nil), task
		}
		ctx, cancel := context.WithCancel(t.Context())
		shared := cache.NewShared(s, nil)
		first, firstTask := part(shared)
		second, secondTask := part(shared)
		own, ownTask := part(nil)
		ended := make(chan error)
		g := run.NewGroup(t.Context(), 0)
		g.Go(func(context.Context) {
			ended <- run.Stages(ctx,
				run.Stage{{Name: "shared", Run: shared.Run, Ready: shared.Ready()}},
				run.Stage{firstTask, secondTask, ownTask},
			)
		})
		for _, task := range []run.Task{firstTask, secondTask, ownTask} {
			<-task.Ready
		}
		if first.Len()+second.Len()+own.Len() != 3 {
			t.Errorf("the caches hold %d, %d and %d objects, want one each", first.Len(), second.Len(), own.Len())
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a cache was made after the others had begun")
				}
			}()
			cache.Of(shared, client.Pods, nil)
		}()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("stopped with %v", err)
		}
		g.Stop()
	})
}

// TestSharedCachesAreNotReadyWithoutAll holds one resource back.
func TestSharedCachesAreNotReadyWithoutAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t)
		s.Intercept(func(r clienttest.Request) error {
			if r.Resource == "pods" {
				return errors.New("connection refused")
			}
			return nil
		})
		shared := cache.NewShared(s, nil)
		cache.Of(shared, client.ConfigMaps, nil)
		cache.Of(shared, client.Pods, nil)
		g := run.NewGroup(t.Context(), 0)
		defer g.Stop()
		g.Go(func(ctx context.Context) { _ = shared.Run(ctx) })
		time.Sleep(time.Hour)
		select {
		case <-shared.Ready():
			t.Error("ready without pods")
		default:
		}
		s.Intercept(nil)
		<-shared.Ready()
	})
}

// TestSharedReportsAnUnreachableServerOnce has a server that cannot be reached for a time.
func TestSharedReportsAnUnreachableServerOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t)
		var up atomic.Bool
		s.Intercept(func(clienttest.Request) error {
			if !up.Load() {
				return &client.UnreachableError{Server: "https://127.0.0.1:1", Err: errors.New("connection refused")}
			}
			return nil
		})
		var log strings.Builder
		shared := cache.NewShared(s, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
		cache.Of(shared, client.ConfigMaps, cache.Indexes[*corev1.ConfigMap]{})
		cache.Of(shared, client.Pods, nil)
		cache.Of(shared, client.Nodes, nil)
		g := run.NewGroup(t.Context(), 0)
		defer g.Stop()
		g.Go(func(ctx context.Context) { _ = shared.Run(ctx) })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := strings.Count(log.String(), "watch interrupted"); n != 1 {
			t.Errorf("%d lines, want one:\n%s", n, log.String())
		}
		up.Store(true)
		<-shared.Ready()
	})
}
