package rollout_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/rollout"
)

func TestRenameRestartsNoPod(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 4)
		out := h.mustUpdate(nil)
		h.end("web", "v2", 3, 6)
		name := strings.TrimPrefix(strings.SplitN(out, "\n", 2)[0], "Created ")
		want := strings.ReplaceAll(`Created NEW
Scaling up NEW from 0 to 3, scaling down web from 3 to 0 (keep 3 pods available, don't exceed 4 pods)
Scaling NEW up to 1
Scaling web down to 2
Scaling NEW up to 2
Scaling web down to 1
Scaling NEW up to 3
Scaling web down to 0
Update succeeded. Deleting old controller: web
Renaming NEW to web
`, "NEW", name)
		if out != want {
			t.Errorf("it printed\n%s\nwant\n%s", out, want)
		}
		// Asking for what is there already is done without a write.
		h.s.Writes()
		if result, out, err := h.outcome(h.s, t.Context(), nil); err != nil || out != "" || !result.Unchanged {
			t.Errorf("an update to what is there: %+v, %v; it printed\n%s", result, err, out)
		}
		if result, _, err := h.outcome(h.s, t.Context(), func(o *rollout.Options) { o.Image = "v2b" }); err != nil || result.Unchanged {
			t.Errorf("an update to something else: %+v, %v", result, err)
		}
		h.mustUpdate(nil)
		// And back again, and to a third image.
		h.mustUpdate(func(o *rollout.Options) { o.Image = "v1" })
		h.end("web", "v1", 3, 15)
		h.mustUpdate(func(o *rollout.Options) { o.Image = "v3" })
		h.end("web", "v3", 3, 18)
	}, web(3))
}

func twoNames(o *rollout.Options) {
	none, one := intstr.FromInt32(0), intstr.FromInt32(1)
	o.NewName, o.Surge, o.Unavailable = "web2", &none, &one
}

func TestUpdateToNewName(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 2, 3)
		out := h.mustUpdate(twoNames)
		h.end("web2", "v2", 3, 6)
		want := `Created web2
Scaling up web2 from 0 to 3, scaling down web from 3 to 0 (keep 2 pods available, don't exceed 3 pods)
Scaling web down to 2
Scaling web2 up to 1
Scaling web down to 1
Scaling web2 up to 2
Scaling web down to 0
Scaling web2 up to 3
Update succeeded. Deleting web
`
		if out != want {
			t.Errorf("it printed\n%s\nwant\n%s", out, want)
		}
	}, web(3))
}

func TestUpdateWithPreserve(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 2, 3)
		preserve := func(o *rollout.Options) {
			twoNames(o)
			o.Cleanup = rollout.CleanupPreserve
		}
		h.mustUpdate(preserve)
		h.ends("web2", "v2", 3, 6)
		old := clienttest.Find(h.s, client.ReplicationControllers, "default", "web")
		if old == nil || *old.Spec.Replicas != 0 || len(leftOn(old)) > 0 {
			t.Errorf("the old controller is %+v, want it empty and without annotations", old)
		}
		h.s.Writes()
		h.mustUpdate(preserve)
		if w := h.s.Writes(); len(w) > 0 {
			t.Errorf("once more, it wrote %v", w)
		}
	}, web(3))
}

// newSpec is a new controller as a file would hold it.
func newSpec(labels map[string]string) *corev1.ReplicationController {
	rc := web(3)
	rc.Name, rc.Spec.Replicas = "web2", nil
	rc.Spec.Selector, rc.Spec.Template.Labels = labels, labels
	rc.Spec.Template.Spec.Containers[0].Image = "v2"
	return rc
}

func TestUpdateToNewController(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"of the same labels": {"app": "web"},
		"of other labels":    {"app": "web", "track": "new"},
		"told apart already": {"app": "web2"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, h *testCluster) {
				h.settled("web", 3, 3, 4)
				h.s.Writes()
				h.mustUpdate(func(o *rollout.Options) { o.Image, o.New = "", newSpec(labels) })
				h.end("web2", "v2", 3, 6)
				got := clienttest.Find(h.s, client.ReplicationControllers, "default", "web2").Spec.Selector
				if _, labelled := got[rollout.DefaultKey]; labelled == (labels["app"] == "web2") {
					t.Errorf("the selector is %v; want a label added exactly if there was none to tell them apart", got)
				}
			}, web(3))
		})
	}
}

func TestMinReady(t *testing.T) {
	const least = 30 * time.Second
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 2, 2, 3)
		began := time.Now()
		h.mustUpdate(func(o *rollout.Options) { o.MinReady = least })
		if took := time.Since(began); took < 2*(bootTime+least) || took > 2*(bootTime+least)+5*time.Second {
			t.Errorf("it took %v, want twice %v and %v", took, bootTime, least)
		}
		h.end("web", "v2", 2, 4)
	}, web(2))
}

func TestFlappingPodIsNotAvailable(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 2, 2, 3)
		_, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Image, o.MinReady = "flappy", 30*time.Second })
		if !errors.As(err, new(*rollout.TimeoutError)) {
			t.Errorf("Run = %v, want a TimeoutError: coming and going is no progress", err)
		}
		h.mustUpdate(func(o *rollout.Options) { o.Image, o.Rollback = "", true })
		h.end("web", "v1", 2, 3)
	}, web(2))
}

func TestCanaries(t *testing.T) {
	canary := func(o *rollout.Options) { o.Canaries = 2 }
	for name, then := range map[string]struct {
		change func(*rollout.Options)
		image  string
		made   int
	}{
		"promoted":    {func(o *rollout.Options) { o.Image, o.Promote = "", true }, "v2", 10},
		"the same":    {nil, "v2", 10},
		"rolled back": {func(o *rollout.Options) { o.Image, o.Rollback = "", true }, "v1", 9},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, h *testCluster) {
				h.settled("web", 5, 5, 6)
				out, text, err := h.outcome(h.s, t.Context(), canary)
				if err != nil || out.Canaries != 2 || out.Desired != 5 {
					t.Fatalf("Run = %+v, %v, want 2 canaries of 5, after\n%s", out, err, text)
				}
				h.settled("web", 3, 5, 6)
				h.settled(out.Name, 2, 5, 6)
				h.s.Writes()
				if again, _, err := h.outcome(h.s, t.Context(), canary); err != nil || again != out {
					t.Errorf("once more, Run = %+v, %v, want %+v", again, err, out)
				}
				if w := h.s.Writes(); len(w) > 0 {
					t.Errorf("once more, it wrote %v", w)
				}
				h.mustUpdate(then.change)
				h.end("web", then.image, 5, then.made)
			}, web(5))
		})
	}
}

// TestCanariesHoldAtOnce has an update period that is much longer than pods take to become ready: the run stops when its
// canary is ready, because it is the user who looks at it.
func TestCanariesHoldAtOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 4)
		began := time.Now()
		h.mustUpdate(func(o *rollout.Options) { o.Canaries, o.UpdatePeriod = 1, time.Hour })
		if took := time.Since(began); took >= time.Minute {
			t.Errorf("it took %v", took)
		}
		h.settled("web", 2, 3, 4)
	}, web(3))
}

func TestScaledCanaries(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 5, 5, 7)
		out, _, err := h.outcome(h.s, t.Context(), func(o *rollout.Options) { o.Canaries = 1 })
		if err != nil {
			t.Fatal(err)
		}
		scale(t, h, out.Name, 2)
		h.settled(out.Name, 2, 5, 7)
		h.mustUpdate(func(o *rollout.Options) { o.Image, o.Promote = "", true })
		h.end("web", "v2", 5, 10)
	}, web(5))
}

func TestAutoRollback(t *testing.T) {
	for image, cause := range map[string]error{"bad": new(rollout.FailedError), "slow": new(rollout.TimeoutError)} {
		t.Run(image, func(t *testing.T) {
			inCluster(t, func(t *testing.T, h *testCluster) {
				h.settled("web", 3, 3, 4)
				out, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Image, o.AutoRollback = image, true })
				if _, ok := errors.AsType[*rollout.RolledBackError](err); !ok {
					t.Fatalf("Run = %v, want a RolledBackError, after\n%s", err, out)
				}
				{
					var errCase0 *rollout.FailedError
					switch {
					case errors.As(cause, &errCase0):
						if !errors.As(err, new(*rollout.FailedError)) {
							t.Errorf("Run = %v, want it to be for a FailedError", err)
						}
					default:
						if !errors.As(err, new(*rollout.TimeoutError)) {
							t.Errorf("Run = %v, want it to be for a TimeoutError", err)
						}
					}
				}
				if !strings.Contains(out, "Update failed, rolling back web") || !strings.Contains(out, `Setting "web" replicas to 3`) {
					t.Errorf("it printed\n%s", out)
				}
				h.end("web", "v1", 3, 4)
			}, web(3))
		})
	}
}

func replacePods(o *rollout.Options) { o.Image, o.ReplacePods = "", true }

func TestReplacePods(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 2, 3)
		before := map[string]bool{}
		for _, p := range clienttest.All(h.s, client.Pods, "default") {
			before[p.Name] = true
		}
		began := time.Now()
		out := h.mustUpdate(func(o *rollout.Options) {
			replacePods(o)
			o.UpdatePeriod = time.Minute
		})
		if took := time.Since(began).Round(time.Minute); took != 2*time.Minute {
			t.Errorf("it took %v, want a minute between each two of three pods", took)
		}
		if n := strings.Count(out, "Deleting pod web-"); n != 3 {
			t.Errorf("it printed\n%s\nwant three pods", out)
		}
		h.end("web", "v1", 3, 6)
		for _, p := range clienttest.All(h.s, client.Pods, "default") {
			if before[p.Name] {
				t.Errorf("%s is still there", p.Name)
			}
		}
	}, web(3))
}

func TestReplacePodsWithSurge(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 4)
		one := intstr.FromInt32(1)
		h.mustUpdate(func(o *rollout.Options) {
			replacePods(o)
			o.Surge = &one
		})
		h.end("web", "v1", 3, 0)
	}, web(3))
}

func TestStoppedReplacement(t *testing.T) {
	one := intstr.FromInt32(1)
	surge := func(o *rollout.Options) {
		replacePods(o)
		o.Surge = &one
	}
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 4)
		ctx, kill := context.WithCancel(t.Context())
		defer kill()
		if _, err := h.update(&faultClient{Interface: h.s, kill: kill, at: 8}, ctx, surge); err == nil {
			t.Fatal("it was not killed in the middle")
		}
		if _, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Image, o.Rollback = "", true }); err != nil {
			t.Fatal(err)
		}
		h.end("web", "v1", 3, 0)
	}, web(3))
}

func TestUpdateDuringReplacement(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 2, 4)
		ctx, kill := context.WithCancel(t.Context())
		defer kill()
		if _, err := h.update(&faultClient{Interface: h.s, kill: kill, at: 6}, ctx, replacePods); err == nil {
			t.Fatal("it was not killed in the middle")
		}
		h.settled("web", 3, 2, 4)
		h.mustUpdate(nil)
		h.end("web", "v2", 3, 0)
	}, web(3))
}

func TestNodeLost(t *testing.T) {
	for name, change := range map[string]func(*rollout.Options){"update": nil, "replacement": replacePods} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, h *testCluster) {
				h.settled("web", 4, 0, 5)
				f := &faultClient{Interface: h.s, before: func(call int) {
					if call == 12 || call == 6 && name == "replacement" {
						h.lose("node-1")
					}
				}}
				out, err := h.update(f, t.Context(), change)
				if err != nil {
					t.Fatalf("Run = %v after\n%s", err, out)
				}
				h.end("web", map[string]string{"update": "v2", "replacement": "v1"}[name], 4, 0)
			}, web(4))
		})
	}
}

func TestServerAway(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 4)
		var gone atomic.Pointer[time.Time]
		f := &faultClient{Interface: h.s}
		f.before = func(call int) {
			if call == 12 {
				now := time.Now()
				gone.Store(&now)
			}
		}
		away := &outage{Interface: f, over: func() bool { since := gone.Load(); return since == nil || time.Since(*since) > time.Minute }}
		if out, err := h.update(away, t.Context(), nil); err != nil {
			t.Fatalf("Run = %v after\n%s", err, out)
		}
		h.end("web", "v2", 3, 6)
	}, web(3))
}

func TestServerAwayIsNoTimeout(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 4)
		f := &faultClient{Interface: h.s}
		away := &outage{Interface: f, over: func() bool { return f.count() < 15 }}
		_, err := h.update(away, t.Context(), func(o *rollout.Options) { o.Image, o.AutoRollback = "slow", true })
		if !errors.As(err, new(*client.UnreachableError)) {
			t.Errorf("Run = %v, want an UnreachableError", err)
		}
	}, web(3))
}

func TestForbiddenList(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 1, 1, 2)
		no := apierrors.NewForbidden(client.Pods.GroupResource(), "", errors.New("ann may not list pods"))
		deaf := &outage{Interface: h.s, answer: no, over: func() bool { return false }, of: client.Pods.Resource}
		if _, err := h.update(deaf, t.Context(), nil); !apierrors.IsForbidden(err) {
			t.Errorf("Run = %v, want Forbidden", err)
		}
	}, web(1))
}

// TestInvalidPodsFailAtOnce has the controller report that the API server calls its pods invalid.
func TestInvalidPodsFailAtOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 4)
		began := time.Now()
		_, err := h.update(h.s, t.Context(), func(o *rollout.Options) { o.Image = "invalid" })
		var failed *rollout.FailedError
		if !errors.As(err, &failed) || !strings.Contains(err.Error(), "is invalid: spec.containers[0].image") {
			t.Errorf("Run = %v, want that it failed", err)
		}
		if took := time.Since(began); took >= time.Minute {
			t.Errorf("it took %v", took)
		}
	}, web(3))
}

func TestUpdatePeriod(t *testing.T) {
	inCluster(t, func(t *testing.T, h *testCluster) {
		h.settled("web", 3, 3, 4)
		began := time.Now()
		pauses := 0
		h.mustUpdate(func(o *rollout.Options) {
			o.UpdatePeriod = time.Minute
			o.Progress = func(why string) {
				if strings.HasPrefix(why, "the update period of 1m0s ") {
					pauses++
				}
			}
		})
		if took := time.Since(began).Truncate(time.Minute); took != 3*time.Minute {
			t.Errorf("it took %v, want a minute for each of three pods", took)
		}
		if pauses != 3 {
			t.Errorf("%d pauses were reported, want one for each of three pods", pauses)
		}
		h.end("web", "v2", 3, 6)
	}, web(3))
}

// TestCalls counts: what a replaced pod costs, and what an update costs beside.
func TestCalls(t *testing.T) {
	for _, tt := range []struct {
		name   string
		pods   int32
		change func(*rollout.Options)
		limit  int // calls per replaced pod
	}{
		{"rename, 6 pods", 6, nil, 6},
		{"rename, 100 pods", 100, nil, 4},
		{"two names, 100 pods", 100, twoNames, 4},
		{"told apart, 100 pods", 100, func(o *rollout.Options) { o.Image, o.New = "", newSpec(map[string]string{"app": "web2"}) }, 3},
		{"a minute each, 10 pods", 10, func(o *rollout.Options) { o.UpdatePeriod = time.Minute }, 6},
		{"replaced, 10 pods", 10, replacePods, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, h *testCluster) {
				h.settled("web", int(tt.pods), 0, int(tt.pods)+1)
				f := &faultClient{Interface: h.s}
				if out, err := h.update(f, t.Context(), tt.change); err != nil {
					t.Fatalf("Run = %v after\n%s", err, out)
				}
				t.Logf("%d calls: %v", f.count(), f.verbs)
				if limit := tt.limit * int(tt.pods); f.count() > limit {
					t.Errorf("%d calls for %d pods, want at most %d: %v", f.count(), tt.pods, limit, f.verbs)
				}
			}, web(tt.pods))
		})
	}
}

func TestWrongOptions(t *testing.T) {
	s := clienttest.New(t)
	zero, negative, text := intstr.FromInt32(0), intstr.FromInt32(-1), intstr.FromString("many")
	with := func(change func(*rollout.Options)) rollout.Options {
		o := rollout.Options{Client: s, Namespace: "default", Old: "web", Image: "v2"}
		change(&o)
		return o
	}
	for name, o := range map[string]rollout.Options{
		"nothing":                {},
		"no target":              with(func(o *rollout.Options) { o.Image = "" }),
		"same name":              with(func(o *rollout.Options) { o.NewName = "web" }),
		"two targets":            with(func(o *rollout.Options) { o.Rollback = true }),
		"no room":                with(func(o *rollout.Options) { o.Surge = &zero }),
		"negative surge":         with(func(o *rollout.Options) { o.Surge = &negative }),
		"surge of no number":     with(func(o *rollout.Options) { o.Surge = &text }),
		"no room in percent":     with(func(o *rollout.Options) { o.Surge, o.Unavailable = &zero, new(intstr.FromString("0%")) }),
		"bad key":                with(func(o *rollout.Options) { o.Key = "a b" }),
		"negative period":        with(func(o *rollout.Options) { o.UpdatePeriod = -1 }),
		"negative readiness":     with(func(o *rollout.Options) { o.MinReady = -1 }),
		"never ready in time":    with(func(o *rollout.Options) { o.MinReady, o.Timeout = 2*time.Minute, time.Minute }),
		"negative canaries":      with(func(o *rollout.Options) { o.Canaries = -1 }),
		"canaries of a rollback": with(func(o *rollout.Options) { o.Image, o.Rollback, o.Canaries = "", true, 1 }),
		"replaced canaries":      with(func(o *rollout.Options) { replacePods(o); o.Canaries = 1 }),
		"replaced and back":      with(func(o *rollout.Options) { replacePods(o); o.AutoRollback = true }),
		"replaced and renamed":   with(func(o *rollout.Options) { replacePods(o); o.NewName = "web2" }),
		"unknown clean-up":       with(func(o *rollout.Options) { o.Cleanup = "burn" }),
		"rename to two names":    with(func(o *rollout.Options) { o.NewName, o.Cleanup = "web2", rollout.CleanupRename }),
		"preserve one name":      with(func(o *rollout.Options) { o.Cleanup = rollout.CleanupPreserve }),
		"unknown pull policy":    with(func(o *rollout.Options) { o.PullPolicy = "Sometimes" }),
		"container without use":  with(func(o *rollout.Options) { o.Image, o.Rollback, o.Container = "", true, "main" }),
	} {
		if _, err := rollout.New(o); err == nil {
			t.Errorf("%s: New = nil, want an error", name)
		}
	}
	u, err := rollout.New(with(func(*rollout.Options) {}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Run(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("Run = %v, want NotFound", err)
	}
}
