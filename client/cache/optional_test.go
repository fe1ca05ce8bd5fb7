package cache_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/run"
)

// TestOptionalCacheWithoutServedResource has a server that does not serve a resource, then is away, then
// serves it, and then no more.
func TestOptionalCacheWithoutServedResource(t *testing.T) {
	gr := client.ConfigMaps.GroupResource()
	for name, refusal := range map[string]error{
		"no such kind":  apierrors.NewNotFound(gr, ""),
		"no permission": apierrors.NewForbidden(gr, "", nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := clienttest.New(t, config("a", "sweet"))
				asked := 0
				answer := func(err error) {
					s.Intercept(func(clienttest.Request) error { asked++; return err })
				}
				answer(refusal)
				var said bytes.Buffer
				log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelInfo}))
				c := cache.New(s, client.ConfigMaps, cache.Options[*corev1.ConfigMap]{Optional: true, Log: log})
				g := run.NewGroup(t.Context(), 0)
				defer g.Stop()
				g.Go(func(ctx context.Context) { _ = c.Run(ctx) })
				<-c.Ready()
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if n := strings.Count(said.String(), "resource=configmaps"); n != 1 {
					t.Errorf("that it goes on without was said %d times in a day, want once:\n%s", n, &said)
				}
				if asked > 24*12 || asked < 24*4 {
					t.Errorf("the server was asked %d times in a day", asked)
				}
				s.Intercept(nil)
				time.Sleep(15 * time.Minute)
				synctest.Wait()
				if c.Len() != 1 {
					t.Errorf("%d objects, and the server serves one now", c.Len())
				}
				answer(refusal)
				s.BreakWatches(client.ErrWatchEnded)
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := strings.Count(said.String(), "continuing without it"); n != 2 || c.Len() != 1 {
					t.Errorf("it was said %d times, %d objects, want twice and the one that was there:\n%s", n, c.Len(), &said)
				}
			})
		})
	}
}

// TestACacheWaitsForAServerThatIsAway even for what it could do without.
func TestACacheWaitsForAServerThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t)
		s.Intercept(func(clienttest.Request) error { return apierrors.NewInternalError(context.Canceled) })
		c := cache.New(s, client.ConfigMaps, cache.Options[*corev1.ConfigMap]{Optional: true, Log: slog.New(slog.DiscardHandler)})
		g := run.NewGroup(t.Context(), 0)
		defer g.Stop()
		g.Go(func(ctx context.Context) { _ = c.Run(ctx) })
		select {
		case <-c.Ready():
			t.Error("the cache is ready, and the server has said nothing")
		case <-time.After(time.Hour):
		}
		s.Intercept(nil)
		<-c.Ready()
	})
}

// TestARefusalIsLoggedOnce has a user who may not read a resource, may later, and then no more.
func TestARefusalIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, config("a", "sweet"))
		refuse := func(clienttest.Request) error {
			return apierrors.NewForbidden(client.ConfigMaps.GroupResource(), "", nil)
		}
		s.Intercept(refuse)
		var logged bytes.Buffer
		c := cache.New(s, client.ConfigMaps, cache.Options[*corev1.ConfigMap]{Log: slog.New(slog.NewTextHandler(&logged, nil))})
		g := run.NewGroup(t.Context(), 0)
		defer g.Stop()
		g.Go(func(ctx context.Context) { _ = c.Run(ctx) })
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := strings.Count(logged.String(), "\n"); n != 1 || !strings.Contains(logged.String(), "not allowed to read a resource") {
			t.Errorf("%d lines in a day, want one:\n%s", n, &logged)
		}
		s.Intercept(nil)
		<-c.Ready()
		s.Intercept(refuse)
		s.BreakWatches(client.ErrWatchEnded)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := strings.Count(logged.String(), "\n"); n != 2 {
			t.Errorf("%d lines after the right was taken away again, want two:\n%s", n, &logged)
		}
	})
}

// TestSharedCacheIsOptionalIfItIsForAll has a resource that one of two readers needs.
func TestSharedCacheIsOptionalIfItIsForAll(t *testing.T) {
	for _, required := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := clienttest.New(t)
			s.Intercept(func(clienttest.Request) error { return apierrors.NewNotFound(client.ConfigMaps.GroupResource(), "") })
			shared := cache.NewShared(s, slog.New(slog.DiscardHandler))
			c := cache.OptionalOf(shared, client.ConfigMaps, nil)
			if required {
				cache.Of(shared, client.ConfigMaps, nil)
			}
			g := run.NewGroup(t.Context(), 0)
			defer g.Stop()
			g.Go(func(ctx context.Context) { _ = shared.Run(ctx) })
			time.Sleep(time.Minute)
			synctest.Wait()
			select {
			case <-c.Ready():
				if required {
					t.Error("the cache is ready, and one of its readers needs the objects")
				}
			default:
				if !required {
					t.Error("the cache is not ready")
				}
			}
		})
	}
}
