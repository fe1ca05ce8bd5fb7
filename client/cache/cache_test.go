package cache_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func config(name, flavour string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"flavour": flavour}},
	}
}

func byFlavour(o *corev1.ConfigMap) []string { return []string{o.Labels["flavour"]} }

// diary plays the differences back (K1).
type diary struct {
	objects map[string]string // name → UID and flavour
	lines   []string
	faults  []string
}

func (d *diary) hear(before, after *corev1.ConfigMap) {
	if d.objects == nil {
		d.objects = map[string]string{}
	}
	switch {
	case before == nil:
		if d.objects[after.Name] != "" {
			d.faults = append(d.faults, after.Name+" was added twice")
		}
		d.lines = append(d.lines, "+"+after.Name)
	case after == nil:
		if d.objects[before.Name] == "" {
			d.faults = append(d.faults, before.Name+" was deleted without having been there")
		}
		delete(d.objects, before.Name)
		d.lines = append(d.lines, "-"+before.Name)
		return
	case before.UID != after.UID:
		d.faults = append(d.faults, after.Name+" became another object")
	default:
		d.lines = append(d.lines, "~"+after.Name)
	}
	d.objects[after.Name] = string(after.UID) + after.Labels["flavour"]
}

// An action is one step of the model test.
type action struct {
	Verb    string
	Name    string
	Flavour string
}

// TestACacheFollowsItsServer does random things to a server and its connections, and compares the
// cache, its index, and the calls of its subscriber with the server.
func TestACacheFollowsItsServer(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	flavours := []string{"sweet", "sour", "salt"}
	gen := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) action {
		return action{
			rapid.SampledFrom([]string{"set", "set", "set", "remove", "recreate", "break", "forget", "down", "settle"}).Draw(t, "verb"),
			rapid.SampledFrom(names).Draw(t, "name"),
			rapid.SampledFrom(flavours).Draw(t, "flavour"),
		}
	}), 1, 60)
	rapid.Check(t, func(rt *rapid.T) {
		actions := gen.Draw(rt, "actions")
		plain := rapid.Bool().Draw(rt, "without WatchList")
		selector := rapid.SampledFrom([]string{"", "flavour!=sour"}).Draw(rt, "selector")
		var fault string
		synctest.Test(t, func(t *testing.T) { fault = play(t, actions, plain, selector) })
		if fault != "" {
			rt.Fatal(fault)
		}
	})
}

// withoutWatchList is an older server: it does not know sendInitialEvents.
type withoutWatchList struct{ client.Interface }

func (c withoutWatchList) Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error] {
	if opts.SendInitialEvents == nil {
		return c.Interface.Watch(ctx, gvr, namespace, opts)
	}
	return func(yield func(watch.Event, error) bool) {
		yield(watch.Event{}, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", nil))
	}
}

func play(t *testing.T, actions []action, plain bool, selector string) (fault string) {
	s := clienttest.New(t, config("a", "sweet"), config("b", "sour"))
	var seen client.Interface = s
	if plain {
		seen = withoutWatchList{s}
	}
	c := cache.New(seen, client.ConfigMaps, cache.Options[*corev1.ConfigMap]{
		LabelSelector: selector,
		Indexes:       cache.Indexes[*corev1.ConfigMap]{"flavour": byFlavour},
	})
	var d diary
	c.Subscribe(d.hear)
	g := run.NewGroup(t.Context(), 0)
	defer g.Stop()
	g.Go(func(ctx context.Context) { _ = c.Run(ctx) })

	settle := func() string {
		s.Intercept(nil)
		time.Sleep(time.Minute) // longer than any pause
		synctest.Wait()
		return compare(s, c, &d, selector)
	}
	for _, a := range actions {
		switch a.Verb {
		case "set":
			o := config(a.Name, a.Flavour)
			if old := clienttest.Find(s, client.ConfigMaps, "default", a.Name); old != nil {
				o.UID = old.UID
			}
			s.Set(t, o)
		case "remove":
			s.Remove(t, config(a.Name, ""))
		case "recreate":
			s.Remove(t, config(a.Name, ""))
			s.Set(t, config(a.Name, a.Flavour))
		case "break":
			s.BreakWatches(errors.New("connection reset"))
		case "forget":
			s.BreakWatches(errors.New("connection reset"))
			s.Set(t, config(a.Name, a.Flavour))
			s.Forget()
		case "down":
			s.BreakWatches(client.ErrWatchEnded)
			s.Intercept(func(clienttest.Request) error { return errors.New("connection refused") })
		case "settle":
			if fault := settle(); fault != "" {
				return fault
			}
		}
	}
	return settle()
}

func compare(s *clienttest.Server, c *cache.Cache[*corev1.ConfigMap], d *diary, selector string) string {
	want := map[string]string{}
	flavours := map[string]int{}
	for _, o := range clienttest.All(s, client.ConfigMaps, "") {
		if selector != "" && o.Labels["flavour"] == "sour" {
			continue
		}
		want[o.Name] = string(o.UID) + o.Labels["flavour"]
		flavours[o.Labels["flavour"]]++
	}
	have := map[string]string{}
	for _, o := range c.List("default") {
		have[o.Name] = string(o.UID) + o.Labels["flavour"]
	}
	switch {
	case len(d.faults) > 0:
		return strings.Join(d.faults, ", ")
	case !maps.Equal(have, want):
		return fmt.Sprintf("the cache holds %v, the server %v", have, want)
	case !maps.Equal(d.objects, want) && len(d.objects)+len(want) > 0:
		return fmt.Sprintf("the subscriber was told %v, the server holds %v", d.objects, want)
	}
	for _, f := range []string{"sweet", "sour", "salt"} {
		if n := len(c.ByIndex("flavour", f)); n != flavours[f] {
			return fmt.Sprintf("the index has %d that are %s, want %d", n, f, flavours[f])
		}
	}
	return ""
}

// following runs a cache while f looks at it.
func following(t *testing.T, s *clienttest.Server, f func(c *cache.Cache[*corev1.ConfigMap], d *diary)) {
	t.Helper()
	c := cache.New(s, client.ConfigMaps, cache.Options[*corev1.ConfigMap]{})
	var d diary
	c.Subscribe(d.hear)
	g := run.NewGroup(t.Context(), 0)
	defer g.Stop()
	g.Go(func(ctx context.Context) { _ = c.Run(ctx) })
	<-c.Ready()
	f(c, &d)
}

func TestDeletionsDuringABreakAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, config("a", ""), config("b", ""))
		following(t, s, func(c *cache.Cache[*corev1.ConfigMap], d *diary) {
			s.BreakWatches(errors.New("connection reset"))
			s.Remove(t, config("a", ""))
			s.Forget()
			time.Sleep(time.Minute)
			synctest.Wait()
			slices.Sort(d.lines)
			if want := []string{"+a", "+b", "-a"}; !slices.Equal(d.lines, want) {
				t.Errorf("told %v, want %v", d.lines, want)
			}
		})
	})
}

func TestAwaitSeesOnesOwnWrites(t *testing.T) {
	s := clienttest.New(t)
	following(t, s, func(c *cache.Cache[*corev1.ConfigMap], _ *diary) {
		for i := range 100 {
			made, err := client.ConfigMaps.Create(t.Context(), s, config(fmt.Sprint("c", i), ""))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Await(t.Context(), made.ResourceVersion); err != nil {
				t.Fatal(err)
			}
			if _, ok := c.Get("default", made.Name); !ok {
				t.Fatalf("%s is not there", made.Name)
			}
			if err := client.ConfigMaps.Delete(t.Context(), s, "default", made.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := c.AwaitDeletion(t.Context(), made); err != nil {
				t.Fatal(err)
			}
			if _, ok := c.Get("default", made.Name); ok {
				t.Fatalf("%s is still there", made.Name)
			}
		}
	})
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		following(t, clienttest.New(t), func(c *cache.Cache[*corev1.ConfigMap], _ *diary) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := c.Await(ctx, "1000000"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Await = %v, want DeadlineExceeded", err)
			}
		})
	})
}

func TestAServerThatIsDownIsTriedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t)
		tries := 0
		s.Intercept(func(clienttest.Request) error { tries++; return apierrors.NewServiceUnavailable("starting") })
		c := cache.New(s, client.ConfigMaps, cache.Options[*corev1.ConfigMap]{})
		g := run.NewGroup(t.Context(), 0)
		g.Go(func(ctx context.Context) { _ = c.Run(ctx) })
		time.Sleep(time.Hour)
		g.Stop()
		// Pauses of at most 30 s and at least half of that make 120 to 240 tries an
		// hour, and the first growing ones about ten more.
		if tries < 100 || tries > 260 {
			t.Errorf("%d tries in an hour", tries)
		}
	})
}

func TestAnIdleCacheAsksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, config("a", ""))
		following(t, s, func(*cache.Cache[*corev1.ConfigMap], *diary) {
			asked := 0
			s.Intercept(func(clienttest.Request) error { asked++; return nil })
			time.Sleep(24 * time.Hour)
			if asked != 0 {
				t.Errorf("%d requests on an idle day", asked)
			}
		})
	})
}

// TestACacheSurvivesItsOwnersPanics has a subscriber, an index and a Keep that panic over one
// object.
func TestACacheSurvivesItsOwnersPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t)
		mined := func(o *corev1.ConfigMap) bool {
			if o != nil && o.Name == "mine" {
				panic("stepped on a mine")
			}
			return false
		}
		c := cache.New[*corev1.ConfigMap](s, client.ConfigMaps, cache.Options[*corev1.ConfigMap]{
			Indexes: cache.Indexes[*corev1.ConfigMap]{"flavour": func(o *corev1.ConfigMap) []string { mined(o); return byFlavour(o) }},
			Keep:    func(o *corev1.ConfigMap) *corev1.ConfigMap { mined(o); return o },
			Log:     slog.New(slog.DiscardHandler),
		})
		var d diary
		c.Subscribe(func(_, after *corev1.ConfigMap) { mined(after) })
		c.Subscribe(d.hear)
		s.Set(t, config("mine", "sweet"))
		g := run.NewGroup(t.Context(), 0)
		defer g.Stop()
		g.Go(func(ctx context.Context) { _ = c.Run(ctx) })
		<-c.Ready()
		s.Set(t, config("mine", "sour"))
		s.Set(t, config("b", "sour"))
		synctest.Wait()
		if want := []string{"+mine", "-mine", "+mine", "+b"}; !slices.Equal(d.lines, want) {
			t.Errorf("the other subscriber heard %q, want %q", d.lines, want)
		}
		if got := c.ByIndex("flavour", "sour"); len(got) != 1 || got[0].Name != "b" {
			t.Errorf("index: %v", got)
		}
		if _, ok := c.Get("default", "mine"); !ok {
			t.Error("the object is not there")
		}
	})
}
