package follow_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/client/follow"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func config(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

// line returns a step as text. It has no revisions and no random pauses.
func line(step follow.Step) string {
	switch s := step.(type) {
	case follow.Page:
		var names []string
		for _, o := range s.Objects {
			names = append(names, o.GetName())
		}
		text := "page " + strings.Join(names, " ")
		if s.Begins {
			text += " (begins)"
		}
		if s.Whole {
			text += " (whole)"
		}
		return text
	case *follow.Changed:
		return "changed " + s.Object.GetName()
	case follow.Deleted:
		return "deleted " + s.Object.GetName()
	case follow.Bookmark:
		return "bookmark"
	case follow.Expired:
		return "expired"
	case follow.Failed:
		if s.Final {
			return "failed for good"
		}
		return fmt.Sprint("failed ", s.Failures)
	}
	return fmt.Sprintf("%T", step)
}

// A stage is one follower and its server.
type stage struct {
	*testing.T
	*clienttest.Server
	*follow.Follower
	again chan struct{}

	mu    sync.Mutex
	lines []string // guarded by mu
	over  bool     // guarded by mu; the loop has ended by itself
}

// on plays a story with a follower of config maps, of which there are a, b and c.
func on(t *testing.T, change func(*follow.Follower), story func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, Server: clienttest.New(t, config("a"), config("b"), config("c")), again: make(chan struct{})}
		s.Follower = &follow.Follower{Client: s.Server, Source: follow.Source{GroupVersionResource: client.ConfigMaps.GroupVersionResource}, Again: s.again}
		if change != nil {
			change(s.Follower)
		}
		g := run.NewGroup(t.Context(), 0)
		defer g.Stop()
		g.Go(func(ctx context.Context) {
			for step := range s.Steps(ctx) {
				s.mu.Lock()
				s.lines = append(s.lines, line(step))
				s.mu.Unlock()
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.over = ctx.Err() == nil
		})
		story(s)
	})
}

// settle waits a minute and returns the steps since the last call, and whether the loop is over.
func (s *stage) settle() (lines []string, over bool) {
	time.Sleep(time.Minute)
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	lines, s.lines = s.lines, nil
	return lines, s.over
}

// want compares the steps since the last call. It returns whether the loop is over.
func (s *stage) want(lines ...string) (over bool) {
	s.Helper()
	got, over := s.settle()
	if !slices.Equal(got, lines) {
		s.Errorf("steps:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
	return over
}

func TestFollowerListsAndWatches(t *testing.T) {
	for name, change := range map[string]func(*follow.Follower){
		"list":   nil,
		"stream": func(f *follow.Follower) { f.Stream = true },
	} {
		t.Run(name, func(t *testing.T) {
			on(t, change, func(s *stage) {
				s.want("page a b c (begins) (whole)")
				s.Set(t, config("d"))
				s.Set(t, config("a"))
				s.Remove(t, config("b"))
				s.want("changed d", "changed a", "deleted b")
			})
		})
	}
}

func TestListInPages(t *testing.T) {
	on(t, func(f *follow.Follower) { f.PageSize = 2 }, func(s *stage) {
		s.want("page a b (begins)", "page c (whole)")
	})
}

// TestExpiredPageBeginsAgain has a server that forgets a list between two of its pages.
func TestExpiredPageBeginsAgain(t *testing.T) {
	lists := 0
	on(t, func(f *follow.Follower) {
		f.PageSize = 2
		f.Client.(*clienttest.Server).Intercept(func(r clienttest.Request) error {
			if r.Verb != "list" {
				return nil
			}
			if lists++; lists == 2 {
				return apierrors.NewResourceExpired("too slow")
			}
			return nil
		})
	}, func(s *stage) {
		s.want("page a b (begins)", "page a b c (begins) (whole)")
	})
}

func TestStreamIsCutIntoPages(t *testing.T) {
	on(t, func(f *follow.Follower) {
		f.Stream = true
		for i := range 600 {
			f.Client.(*clienttest.Server).Set(t, config(fmt.Sprint("x", i)))
		}
	}, func(s *stage) {
		lines, _ := s.settle()
		var sizes []int
		for _, l := range lines {
			sizes = append(sizes, strings.Count(l, " x"))
		}
		if want := []int{247, 250, 103}; !slices.Equal(sizes, want) || !strings.HasSuffix(lines[0], "(begins)") || !strings.HasSuffix(lines[2], "(whole)") {
			t.Errorf("pages of %d, want %d: %q", sizes, want, lines)
		}
	})
}

// withoutWatchList is an older server: it does not know sendInitialEvents.
type withoutWatchList struct{ follow.Client }

func (c withoutWatchList) Watch(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) iter.Seq2[watch.Event, error] {
	if opts.SendInitialEvents == nil {
		return c.Client.Watch(ctx, gvr, namespace, opts)
	}
	return func(yield func(watch.Event, error) bool) {
		yield(watch.Event{}, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", nil))
	}
}

func TestServerWithoutStreamIsSentLists(t *testing.T) {
	on(t, func(f *follow.Follower) {
		f.Stream = true
		f.Client = withoutWatchList{f.Client}
	}, func(s *stage) {
		s.want("page a b c (begins) (whole)")
	})
}

func TestAfterReplacesTheFirstList(t *testing.T) {
	on(t, func(f *follow.Follower) {
		_, list, err := f.Client.List(t.Context(), f.Source.GroupVersionResource, "", metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		f.After = list.ResourceVersion
		f.Client.(*clienttest.Server).Set(t, config("d"))
	}, func(s *stage) {
		s.want("changed d")
	})
}

// TestNothingIsMissed has connections that break and watches that end: the first is reported, and both continue.
func TestNothingIsMissed(t *testing.T) {
	for _, stream := range []bool{false, true} {
		on(t, func(f *follow.Follower) { f.Stream = stream }, func(s *stage) {
			s.want("page a b c (begins) (whole)")
			s.BreakWatches(errors.New("connection reset"))
			synctest.Wait()
			s.Set(t, config("d"))
			s.want("failed 1", "changed d")
			s.BreakWatches(client.ErrWatchEnded)
			synctest.Wait()
			s.Remove(t, config("d"))
			s.want("deleted d")
		})
	}
}

func TestExpiredWatchIsListedAgain(t *testing.T) {
	tooLarge := apierrors.NewTimeoutError("Too large resource version", 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for name, err := range map[string]error{
		"forgotten":    apierrors.NewResourceExpired("too old"),
		"gone":         apierrors.NewGone("too old"),
		"older server": tooLarge,
	} {
		t.Run(name, func(t *testing.T) {
			on(t, nil, func(s *stage) {
				s.want("page a b c (begins) (whole)")
				s.BreakWatches(err)
				synctest.Wait()
				s.Remove(t, config("b"))
				s.want("expired", "page a c (begins) (whole)")
			})
		})
	}
}

// TestWatchThatExpiresAtOnceIsNotASpin has a server that lists and refuses each watch.
func TestWatchThatExpiresAtOnceIsNotASpin(t *testing.T) {
	on(t, func(f *follow.Follower) {
		f.Client.(*clienttest.Server).Intercept(func(r clienttest.Request) error {
			if r.Verb == "watch" {
				return apierrors.NewResourceExpired("too old")
			}
			return nil
		})
	}, func(s *stage) {
		lines, _ := s.settle()
		if most := int(2 * time.Minute / follow.FirstPause); len(lines) > most {
			t.Errorf("%d steps in a minute, want at most %d", len(lines), most)
		}
	})
}

func TestPermissionErrorIsFinal(t *testing.T) {
	refuse := func(clienttest.Request) error {
		return apierrors.NewForbidden(client.ConfigMaps.GroupResource(), "", nil)
	}
	on(t, nil, func(s *stage) {
		s.want("page a b c (begins) (whole)")
		s.Intercept(refuse)
		s.BreakWatches(client.ErrWatchEnded)
		if over := s.want("failed for good"); !over {
			t.Error("the loop goes on")
		}
	})
	patient := func(error, int) (time.Duration, bool) { return time.Hour, true }
	on(t, func(f *follow.Follower) { f.Retry = patient }, func(s *stage) {
		s.want("page a b c (begins) (whole)")
		s.Intercept(refuse)
		s.BreakWatches(errors.New("connection reset"))
		s.want("failed 1")
		s.again <- struct{}{} // ends the pause and the row of errors
		s.want("failed 1")
		s.Intercept(nil)
		time.Sleep(time.Hour)
		s.Set(t, config("d"))
		s.want("changed d")
	})
}

func TestUnservedResourceIsListedAgain(t *testing.T) {
	on(t, func(f *follow.Follower) {
		f.Retry = func(error, int) (time.Duration, bool) { return time.Hour, true }
	}, func(s *stage) {
		s.want("page a b c (begins) (whole)")
		s.Set(t, config("d"))
		s.want("changed d")
		s.Intercept(func(clienttest.Request) error { return apierrors.NewNotFound(client.ConfigMaps.GroupResource(), "") })
		s.BreakWatches(errors.New("connection reset"))
		s.want("failed 1")
		time.Sleep(time.Hour)
		s.want("expired", "failed 2")
		s.Intercept(nil)
		time.Sleep(time.Hour)
		s.want("page a b c d (begins) (whole)")
	})
}

func TestCheckCountsAsAnError(t *testing.T) {
	strict := func(o client.Object) error {
		if o.GetName() == "bad" {
			return errors.New("a bad one")
		}
		return nil
	}
	for _, stream := range []bool{false, true} {
		tries := 0
		on(t, func(f *follow.Follower) {
			f.Check, f.Stream = strict, stream
			f.Retry = func(error, int) (time.Duration, bool) { tries++; return time.Second, tries < 3 }
		}, func(s *stage) {
			s.want("page a b c (begins) (whole)")
			s.Set(t, config("bad"))
			s.want("failed 1", "failed 2", "failed for good")
		})
	}
}

func TestCallerMayLeaveAtAnyStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for last := 1; last <= 10; last++ {
			s := clienttest.New(t, config("a"), config("b"), config("c"))
			refusals := []error{apierrors.NewResourceExpired("too old"), errors.New("connection reset")}
			s.Intercept(func(r clienttest.Request) error {
				if r.Verb != "watch" || len(refusals) == 0 {
					return nil
				}
				defer func() { refusals = refusals[1:] }()
				return refusals[0]
			})
			f := follow.Follower{Client: s, Source: follow.Source{GroupVersionResource: client.ConfigMaps.GroupVersionResource}, PageSize: 1}
			var steps []string
			for step := range f.Steps(t.Context()) {
				if steps = append(steps, line(step)); len(steps) == last {
					break
				}
				s.Set(t, config("c"))
			}
			if len(steps) != last || last > 8 && (steps[3] != "expired" || steps[7] != "failed 1" || steps[8] != "changed c") {
				t.Errorf("left at step %d, want %d: %q", len(steps), last, steps)
			}
		}
	})
}
