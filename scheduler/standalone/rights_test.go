package standalone

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/scheduler"
	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/config"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

// guarded is a server that grants rights by a function, and answers reviews about them.
type guarded struct {
	*clienttest.Server

	mu      sync.Mutex
	grants  func(client.Right) bool // guarded by mu
	answer  error                   // guarded by mu; of reviews
	reviews int                     // guarded by mu
	refused int                     // guarded by mu; requests that are no reviews
}

func newGuarded(t *testing.T, grants func(client.Right) bool) *guarded {
	g := &guarded{Server: clienttest.New(t, plugintest.Node("a"), plugintest.Pod("web")), grants: grants}
	g.Intercept(func(r clienttest.Request) error {
		right := client.Right{Verb: r.Verb, GroupResource: r.GroupResource(), Subresource: r.Subresource, Namespace: r.Namespace}
		if !g.granted(right) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.refused++
			return apierrors.NewForbidden(r.GroupResource(), r.Name, errors.New("no"))
		}
		return nil
	})
	return g
}

func (g *guarded) grant(grants func(client.Right) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.grants = grants
}

func (g *guarded) granted(r client.Right) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.grants(r)
}

func (g *guarded) asked() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reviews
}

func (g *guarded) Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource string) (runtime.Object, error) {
	review, ok := obj.(*authorizationv1.SelfSubjectAccessReview)
	if !ok {
		return g.Server.Create(ctx, gvr, namespace, name, obj, opts, subresource)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reviews++
	if g.answer != nil {
		return nil, g.answer
	}
	a := review.Spec.ResourceAttributes
	out := review.DeepCopy()
	out.Status.Allowed = g.grants(client.Right{Verb: a.Verb, GroupResource: schema.GroupResource{Group: a.Group, Resource: a.Resource}, Subresource: a.Subresource, Namespace: a.Namespace})
	return out, nil
}

func all(client.Right) bool { return true }

func nothing(client.Right) bool { return false }

// start runs the work of a scheduler and returns what it logs.
func start(t *testing.T, g *guarded, e *config.Election) (logged *bytes.Buffer, stop func()) {
	t.Helper()
	logged = &bytes.Buffer{}
	o := Options{Log: slog.New(slog.NewTextHandler(logged, nil))}
	s, err := scheduler.New(scheduler.Options{Client: g, Plugins: builtin.Default(), Log: o.Log})
	if err != nil {
		t.Fatal(err)
	}
	work, err := o.work(s, g, e)
	if err != nil {
		t.Fatal(err)
	}
	group := run.NewGroup(t.Context(), 0)
	group.Go(func(ctx context.Context) {
		if err := work.Run(ctx); err != nil {
			t.Errorf("the scheduler ended: %v", err)
		}
	})
	return logged, group.Stop
}

func bound(t *testing.T, g *guarded) string {
	t.Helper()
	pod, err := client.Pods.Get(t.Context(), g.Server, "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	return pod.Spec.NodeName
}

func TestASchedulerWaitsForItsRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, nothing)
		logged, stop := start(t, g, new(config.DefaultElection()))
		defer stop()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := strings.Count(logged.String(), "\n"); n != 1 {
			t.Errorf("%d lines in a day, want one:\n%s", n, logged)
		}
		for _, want := range []string{
			"list, watch and delete pods;", "list and watch nodes;", "list and watch storageclasses.storage.k8s.io;", "create pods/binding;",
			"get, create and update leases.coordination.k8s.io in namespace kube-system;", "patch pods/status;",
			"create and patch events; ", "list, watch and update persistentvolumeclaims;",
		} {
			if !strings.Contains(logged.String(), want) {
				t.Errorf("the line does not say %q:\n%s", want, logged)
			}
		}
		if n, most := g.asked(), 24*60*2+100; n > most {
			t.Errorf("the server was asked %d times in a day, want at most %d", n, most)
		}
		g.mu.Lock()
		if g.refused > 0 {
			t.Errorf("%d requests without the right to make them", g.refused)
		}
		g.mu.Unlock()
		// Pods alone are not enough.
		g.grant(func(r client.Right) bool { return r.Resource == "pods" })
		time.Sleep(time.Hour)
		if n := strings.Count(logged.String(), "\n"); n != 1 {
			t.Errorf("%d lines after a part was granted, want one:\n%s", n, logged)
		}
		g.Intercept(nil)
		g.grant(all)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !strings.Contains(logged.String(), "has the rights") || bound(t, g) != "a" {
			t.Errorf("the rights came, and the pod is on node %q:\n%s", bound(t, g), logged)
		}
	})
}

func TestASchedulerGoesOnWithoutWhatItNeedsAtTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, func(r client.Right) bool { return r.Resource != "events" })
		g.Intercept(nil)
		logged, stop := start(t, g, nil)
		defer stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		if bound(t, g) != "a" || !strings.Contains(logged.String(), `needs at times" missing="create and patch events"`) {
			t.Errorf("the pod is on node %q:\n%s", bound(t, g), logged)
		}
	})
}

func TestASchedulerWaitsForAServerThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, all)
		g.Intercept(nil)
		g.answer = &client.UnreachableError{Server: "https://x", Err: errors.New("refused")}
		logged, stop := start(t, g, nil)
		defer stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := strings.Count(logged.String(), "\n"); n != 1 || !strings.Contains(logged.String(), "does not answer") {
			t.Errorf("%d lines in an hour, want one:\n%s", n, logged)
		}
		g.mu.Lock()
		g.answer = apierrors.NewNotFound(schema.GroupResource{Resource: "selfsubjectaccessreviews"}, "")
		g.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if bound(t, g) != "a" {
			t.Errorf("a server without reviews: the pod is on node %q:\n%s", bound(t, g), logged)
		}
	})
}

// TestSchedulerWorksWithoutDevices has a server that does not serve the kinds of devices, as before v1.37.
func TestSchedulerWorksWithoutDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuarded(t, func(r client.Right) bool { return r.Group != client.ResourceClaims.Group })
		_, stop := start(t, g, nil)
		defer stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := bound(t, g); n != "a" {
			t.Errorf("the pod is on node %q, want a", n)
		}
	})
}
