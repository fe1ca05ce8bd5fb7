package blocking_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/apiserver/blocking"
	"github.com/sampan-io/sampan/internal/expression"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/store"
)

// A value is an object with a number and a label.
type value struct {
	n     int64
	label string
}

func (*value) Bytes() []byte                        { return nil }
func (*value) Place(store.Revision, store.Revision) {}

func object(v store.Value) (map[string]any, error) {
	return map[string]any{"n": v.(*value).n, "text": "abc"}, nil
}

// A fixture is a set of Waiters over a store in memory.
type fixture struct {
	*testing.T
	store   *store.Store
	waiters *blocking.Waiters
	stop    func()
}

func open(t *testing.T, change ...func(*blocking.Options)) *fixture {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	st, err := store.Open(ctx, nil, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(ctx, 0)
	g.Go(func(ctx context.Context) { _ = st.Run(ctx) })
	<-st.Ready()
	o := blocking.Options{Store: st, Object: object}
	for _, c := range change {
		c(&o)
	}
	f := &fixture{t, st, blocking.New(o), func() { cancel(); g.Wait() }}
	t.Cleanup(f.stop)
	return f
}

func key(name string) string { return "things/ns/" + name }

// put sets an object's number; label is optional.
func (f *fixture) put(name string, n int64, label ...string) {
	f.Helper()
	w := store.Write{Key: key(name), Value: &value{n, strings.Join(label, "")}}
	if rec, err := f.store.Get(w.Key); err == nil {
		w.Expect = rec.Revision
	}
	if _, err := f.store.Commit(context.Background(), w); err != nil {
		f.Error(err)
	}
}

func (f *fixture) remove(name string) {
	f.Helper()
	rec, err := f.store.Get(key(name))
	if err == nil {
		_, err = f.store.Commit(context.Background(), store.Write{Key: rec.Key, Value: rec.Value, Delete: true, Expect: rec.Revision})
	}
	if err != nil {
		f.Error(err)
	}
}

func ask(outcomes ...blocking.Outcome) blocking.Question {
	return blocking.Question{Outcomes: outcomes, Missing: blocking.Fail, Timeout: time.Minute}
}

func one(text string) blocking.Outcome { return blocking.Outcome{Name: blocking.Done, Text: text} }

// about is a question about the object of that name, or about the collection.
func about(name string, q blocking.Question) blocking.Request {
	r := blocking.Request{Question: q, User: "u", Scope: "things/ns/"}
	if name != "" {
		r.Key = key(name)
	} else {
		r.Query = store.Query{Prefix: "things/ns/"}
	}
	return r
}

// outcome describes how a wait ended: "done: a=1 b=2 after 3s".
func outcome(a blocking.Answer, err error, took time.Duration) string {
	s := "error: "
	if err != nil {
		return s + err.Error() + " after " + took.String()
	}
	s = a.Outcome + ":"
	if a.Value != nil {
		s += fmt.Sprintf(" %d", a.Value.(*value).n)
	}
	for _, v := range a.Values {
		s += fmt.Sprintf(" %d", v.(*value).n)
	}
	return s + " after " + took.String()
}

func TestWait(t *testing.T) {
	is := func(n int) string { return fmt.Sprintf("object.n == %d", n) }
	named := func(missing blocking.Missing, outcomes ...blocking.Outcome) blocking.Request {
		r := about("a", ask(outcomes...))
		r.Missing = missing
		return r
	}
	all := func(missing blocking.Missing, outcomes ...blocking.Outcome) blocking.Request {
		r := about("", ask(outcomes...))
		r.Missing = missing
		return r
	}
	labelled := all(blocking.Stay, one(is(2)))
	labelled.Matches = func(v store.Value) bool { return v.(*value).label == "x" }
	tests := []struct {
		name    string
		before  func(f *fixture)
		request blocking.Request
		during  []func(f *fixture) // one a second
		want    string
	}{
		{
			"true at once", func(f *fixture) { f.put("a", 1) }, named(blocking.Fail, one(is(1))), nil, "done: 1 after 0s",
		},
		{
			"true later", func(f *fixture) { f.put("a", 1) }, named(blocking.Fail, one(is(3))),
			[]func(f *fixture){func(f *fixture) { f.put("a", 2) }, func(f *fixture) { f.put("b", 3) }, func(f *fixture) { f.put("a", 3) }},
			"done: 3 after 3s",
		},
		{
			"true for a moment only", func(f *fixture) { f.put("a", 1) }, named(blocking.Fail, one(is(3))),
			[]func(f *fixture){func(f *fixture) { f.put("a", 3); f.put("a", 4) }},
			"done: 3 after 1s",
		},
		{
			"the second outcome", func(f *fixture) { f.put("a", 1) },
			named(blocking.Fail, blocking.Outcome{Name: "ok", Text: is(9)}, blocking.Outcome{Name: "failed", Text: "object.n < 0"}),
			[]func(f *fixture){func(f *fixture) { f.put("a", -1) }},
			"failed: -1 after 1s",
		},
		{
			"both are true: the first", func(f *fixture) { f.put("a", 1) },
			named(blocking.Fail, blocking.Outcome{Name: "ok", Text: is(1)}, blocking.Outcome{Name: "failed", Text: "object.n == 1"}), nil, "ok: 1 after 0s",
		},
		{"not there", nil, named(blocking.Fail, one(is(1))), nil, "error: there is no such object after 0s"},
		{
			"deleted in mid-wait", func(f *fixture) { f.put("a", 1) }, named(blocking.Fail, one(is(2))),
			[]func(f *fixture){func(f *fixture) { f.remove("a") }},
			"error: the object was deleted during the wait after 1s",
		},
		{
			"not there yet, gone, and there again", nil, named(blocking.Stay, one(is(2))),
			[]func(f *fixture){func(f *fixture) { f.put("a", 1) }, func(f *fixture) { f.remove("a") }, func(f *fixture) { f.put("a", 2) }},
			"done: 2 after 3s",
		},
		{"absent at once", nil, named(blocking.Ended), nil, "absent: after 0s"},
		{
			"absent, though a namesake comes at once", func(f *fixture) { f.put("a", 1) }, named(blocking.Ended),
			[]func(f *fixture){func(f *fixture) { f.put("a", 2) }, func(f *fixture) { f.remove("a"); f.put("a", 3) }},
			"absent: after 2s",
		},
		{
			"time is over", func(f *fixture) { f.put("a", 1) }, named(blocking.Ended, one(is(2))), nil,
			"error: timed out: done: does not hold: object.n == 2; absent: the object exists after 1m0s",
		},
		{"nobody came", nil, named(blocking.Stay, one(is(2))), nil, "error: timed out: done: there is no such object after 1m0s"},
		{
			"types that do not go together", func(f *fixture) { f.put("a", 1) }, named(blocking.Fail, one(`object.text > object.n`)), nil,
			`error: expression "object.text > object.n": 1:13: types that do not go together: a function, an operator or a field is used with a value of another type after 0s`,
		},
		{
			"no expression", nil, named(blocking.Fail, one("a b"), blocking.Outcome{Name: "x", Text: ""}), nil,
			"error: until: done: 1:3: not expected here: b; until: x: 1:1: the expression is empty after 0s",
		},

		{
			"all of a collection", func(f *fixture) { f.put("a", 1); f.put("b", 2) }, all(blocking.Stay, one("object.n >= 2")),
			[]func(f *fixture){func(f *fixture) { f.put("c", 0) }, func(f *fixture) { f.put("a", 2) }, func(f *fixture) { f.put("c", 3) }},
			"done: 2 2 3 after 3s",
		},
		{
			"the last one that was in the way goes", func(f *fixture) { f.put("a", 1); f.put("b", 2) }, all(blocking.Stay, one("object.n >= 2")),
			[]func(f *fixture){func(f *fixture) { f.remove("a") }},
			"done: 2 after 1s",
		},
		{
			"any of a collection", func(f *fixture) { f.put("a", 1); f.put("b", 1) },
			all(blocking.Stay, one(is(9)), blocking.Outcome{Name: "failed", Text: "object.n < 0", Any: true}),
			[]func(f *fixture){func(f *fixture) { f.put("b", -1) }},
			"failed: 1 -1 after 1s",
		},
		{
			"an empty collection holds nothing", nil, all(blocking.Stay, one("true")),
			[]func(f *fixture){nil, func(f *fixture) { f.put("a", 7) }},
			"done: 7 after 2s",
		},
		{"an empty collection that must not be", nil, all(blocking.Fail, one("true")), nil, "error: there is no such object after 0s"},
		{
			"all of them gone", func(f *fixture) { f.put("a", 1); f.put("b", 2) }, all(blocking.Ended),
			[]func(f *fixture){func(f *fixture) { f.remove("a") }, func(f *fixture) { f.remove("b") }},
			"absent: after 2s",
		},
		{
			"a selector", func(f *fixture) { f.put("a", 1, "x"); f.put("b", 2, "x"); f.put("c", 7, "y") }, labelled,
			[]func(f *fixture){func(f *fixture) { f.put("c", 8, "y") }, func(f *fixture) { f.put("a", 1, "y") }},
			"done: 2 after 2s",
		},
		{
			"time is over for some", func(f *fixture) {
				for i := range 9 {
					f.put(fmt.Sprint("t", i), int64(i))
				}
			}, all(blocking.Stay, one("object.n < 2")), nil,
			"error: timed out: done: holds for 2 of 9 objects: object.n < 2; not for t2, t3, t4, t5, t6 and 2 more after 1m0s",
		},
		{
			"time is over for all", nil, all(blocking.Stay, blocking.Outcome{Name: "x", Text: "true", Any: true}), nil,
			"error: timed out: x: there is no such object in the collection after 1m0s",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := open(t)
				if tt.before != nil {
					tt.before(f)
				}
				for i, step := range tt.during {
					if step != nil {
						time.AfterFunc(time.Duration(i+1)*time.Second, func() { step(f) })
					}
				}
				start := time.Now()
				a, err := f.waiters.Wait(t.Context(), tt.request)
				if got := outcome(a, err, time.Since(start)); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
				if n := f.waiters.Waiting(); n != 0 {
					t.Errorf("%d still wait", n)
				}
				time.Sleep(time.Hour) // what is left of the steps
				f.stop()
			})
		})
	}
}

func TestZeroTimeoutReadsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t)
		f.put("a", 1)
		for text, want := range map[string]string{
			"object.n == 1": "done: 1 after 0s",
			"object.n == 2": "error: timed out: done: does not hold: object.n == 2 after 0s",
		} {
			r := about("a", ask(one(text)))
			r.Timeout = 0
			start := time.Now()
			a, err := f.waiters.Wait(t.Context(), r)
			if got := outcome(a, err, time.Since(start)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		f.stop()
	})
}

// TestEqualExpressionsEvaluateOnce asks one expression 10,000 times and another one of
// 100 objects each. While nothing of theirs changes, nothing is evaluated; a change is
// evaluated once for all who ask the same.
func TestEqualExpressionsEvaluateOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters, others = 10_000, 100
		f := open(t, func(o *blocking.Options) { o.PerUser = waiters + others })
		f.put("a", 1)
		for i := range others {
			f.put(fmt.Sprint("b", i), 1)
		}
		g := run.NewGroup(t.Context(), 0)
		var mu sync.Mutex
		ends := map[string]int{}
		wait := func(r blocking.Request) {
			g.Go(func(ctx context.Context) {
				a, err := f.waiters.Wait(ctx, r)
				mu.Lock()
				defer mu.Unlock()
				ends[outcome(a, err, 0)]++
			})
		}
		for range waiters {
			wait(about("a", blocking.Question{Outcomes: []blocking.Outcome{one("object.n == 2")}, Missing: blocking.Fail, Timeout: time.Hour}))
		}
		for i := range others {
			wait(about(fmt.Sprint("b", i), blocking.Question{Outcomes: []blocking.Outcome{one("object.n == 2")}, Missing: blocking.Fail, Timeout: time.Hour}))
		}
		synctest.Wait()
		expect := func(when string, evaluations int64, waiting int) {
			t.Helper()
			synctest.Wait()
			if n, w := f.waiters.Evaluations(), f.waiters.Waiting(); n != evaluations || w != waiting {
				t.Errorf("%s: %d evaluations and %d waiting, want %d and %d", when, n, w, evaluations, waiting)
			}
		}
		expect("when they have come", 1+others, waiters+others)
		time.Sleep(30 * time.Minute)
		expect("after half an hour of nothing", 1+others, waiters+others)
		for i := range 500 {
			f.put(fmt.Sprint("c", i), 2) // no request is about these
		}
		expect("after writes that concern nobody", 1+others, waiters+others)
		f.put("a", 3)
		expect("after a change that does not help", 2+others, waiters+others)
		f.put("a", 2)
		expect("after the change that they waited for", 3+others, others)
		f.put("b7", 2)
		expect("after one of the others", 4+others, others-1)
		time.Sleep(time.Hour)
		expect("after the time of the rest", 4+others, 0)
		g.Wait()
		if ends["done: 2 after 0s"] != waiters+1 || ends["error: timed out: done: does not hold: object.n == 2 after 0s"] != others-1 {
			t.Errorf("they ended with %v", ends)
		}
		f.stop()
	})
}

func TestNextLeaderTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t)
		f.put("a", 1)
		g := run.NewGroup(t.Context(), 0)
		ends := make(chan string, 10)
		for i := range 5 {
			r := about("a", ask(one("object.n == 5")))
			r.Timeout = time.Duration(i+1) * 10 * time.Second
			g.Go(func(ctx context.Context) {
				a, err := f.waiters.Wait(ctx, r)
				ends <- outcome(a, err, 0)
			})
			synctest.Wait() // so that the first to come, who leads, is the first to go
		}
		time.Sleep(35 * time.Second) // three have gone
		f.put("a", 5)
		g.Wait()
		close(ends)
		var got []string
		for e := range ends {
			got = append(got, e)
		}
		late := "error: timed out: done: does not hold: object.n == 5 after 0s"
		if want := []string{late, late, late, "done: 5 after 0s", "done: 5 after 0s"}; strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("they ended with %q", got)
		}
		f.stop()
	})
}

func TestWaitersLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t, func(o *blocking.Options) { o.PerUser, o.Total = 2, 3 })
		f.put("a", 1)
		ctx, cancel := context.WithCancel(t.Context())
		g := run.NewGroup(ctx, 0)
		r := about("a", ask(one("object.n == 5")))
		for _, user := range []string{"u", "u", "v"} {
			r.User = user
			g.Go(func(ctx context.Context) {
				if _, err := f.waiters.Wait(ctx, r); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", r.User, err)
				}
			})
			synctest.Wait()
		}
		var busy *blocking.BusyError
		r.User = "u"
		if _, err := f.waiters.Wait(t.Context(), r); !errors.As(err, &busy) || busy.Total || busy.Limit != 2 {
			t.Errorf("a third question of u: %v", err)
		}
		r.User = "w"
		if _, err := f.waiters.Wait(t.Context(), r); !errors.As(err, &busy) || !busy.Total || busy.Limit != 3 {
			t.Errorf("a fourth question of all: %v", err)
		}
		cancel()
		g.Wait()
		r.Timeout = 0
		var late *blocking.TimeoutError
		if _, err := f.waiters.Wait(t.Context(), r); !errors.As(err, &late) {
			t.Errorf("when they are gone: %v", err)
		}
		f.stop()
	})
}

func TestStoreStopEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t)
		f.put("a", 1)
		g := run.NewGroup(t.Context(), 0)
		for range 3 {
			g.Go(func(ctx context.Context) {
				if _, err := f.waiters.Wait(ctx, about("a", ask(one("object.n == 5")))); !errors.Is(err, store.ErrStopped) {
					t.Errorf("Wait = %v, want ErrStopped", err)
				}
			})
		}
		synctest.Wait()
		f.stop()
		g.Wait()
	})
}

// forgetful is a store whose watches lose their place once.
type forgetful struct {
	*store.Store
	lose func() // called when the place is lost
	once sync.Once
}

func (s *forgetful) Watch(ctx context.Context, q store.Query, after store.Revision) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		lost := false
		s.once.Do(func() {
			s.lose()
			lost = true
		})
		if lost {
			yield(store.Event{}, store.ErrExpired)
			return
		}
		s.Store.Watch(ctx, q, after)(yield)
	}
}

// slow is a store whose watches deliver nothing until they may.
type slow struct {
	*store.Store
	may chan struct{}
}

func (s *slow) Watch(ctx context.Context, q store.Query, after store.Revision) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		<-s.may
		s.Store.Watch(ctx, q, after)(yield)
	}
}

// TestEarlierStateIsNoAnswer is U1: the leader is behind, and reads what
// happened before the question was asked when that waits already.
func TestEarlierStateIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		may := make(chan struct{})
		f := open(t, func(o *blocking.Options) { o.Store = &slow{o.Store.(*store.Store), may} })
		f.put("a", 1)
		f.put("b", 1)
		g := run.NewGroup(t.Context(), 0)
		expect := func(r blocking.Request, want string) {
			g.Go(func(ctx context.Context) {
				a, err := f.waiters.Wait(ctx, r)
				if got := outcome(a, err, 0); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			})
			synctest.Wait()
		}
		expect(about("b", ask(one("object.n == 9"))), "done: 9 after 0s") // it leads
		f.put("a", 5)
		f.put("a", 1)
		expect(about("a", ask(one("object.n == 5"))), "error: timed out: done: does not hold: object.n == 5 after 0s")
		expect(about("", ask(blocking.Outcome{Name: "x", Text: "object.n == 5", Any: true})),
			"error: timed out: x: holds for 0 of 2 objects: object.n == 5 after 0s")
		f.put("b", 9)
		close(may)
		g.Wait()
		f.stop()
	})
}

func TestExpiredWatchReadsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *fixture
		f = open(t, func(o *blocking.Options) {
			st := o.Store.(*store.Store)
			o.Store = &forgetful{Store: st, lose: func() {
				time.Sleep(10 * time.Second) // the others come
				f.put("a", 2)
			}}
		})
		f.put("a", 1)
		f.put("b", 1)
		g := run.NewGroup(t.Context(), 0)
		for _, name := range []string{"a", "a", "b", ""} {
			r := about(name, ask(blocking.Outcome{Name: "x", Text: "object.n == 2", Any: true}))
			g.Go(func(ctx context.Context) {
				if a, err := f.waiters.Wait(ctx, r); err != nil || a.Outcome != "x" {
					t.Errorf("%q: %+v, %v", name, a, err)
				}
			})
		}
		time.Sleep(20 * time.Second)
		if n := f.waiters.Waiting(); n != 1 {
			t.Errorf("%d wait, want 1", n)
		}
		f.put("b", 2)
		g.Wait()
		f.stop()
	})
}

// TestManyWaiters has writers and waiters at the same time, for the race detector: each
// waiter sees the number that it waits for, however quickly it passes.
func TestManyWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t)
		const objects, waiters, numbers = 4, 40, 300
		for i := range objects {
			f.put(fmt.Sprint(i), 0)
		}
		g := run.NewGroup(t.Context(), 0)
		for w := range waiters {
			name := fmt.Sprint(w % objects)
			text := fmt.Sprintf("object.n == %d", 1+w*7)
			r := about(name, ask(one(text)))
			if w%5 == 0 {
				r = about("", ask(blocking.Outcome{Name: "x", Text: text, Any: true}))
			}
			g.Go(func(ctx context.Context) {
				if a, err := f.waiters.Wait(ctx, r); err != nil {
					t.Errorf("%s of %q: %+v, %v", text, name, a, err)
				}
			})
		}
		synctest.Wait() // the writers begin when all have come
		for i := range objects {
			g.Go(func(context.Context) {
				for n := range numbers {
					f.put(fmt.Sprint(i), int64(n+1))
				}
			})
			g.Go(func(ctx context.Context) { // others come and go
				for range 50 {
					r := about(fmt.Sprint(i), ask(one("object.n == -1")))
					r.Timeout = 0
					_, _ = f.waiters.Wait(ctx, r)
				}
			})
		}
		g.Wait()
		if n := f.waiters.Waiting(); n != 0 {
			t.Errorf("%d still wait", n)
		}
		f.stop()
	})
}

func TestCostlyExpressionEndsOneWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t, func(o *blocking.Options) {
			o.Object = func(v store.Value) (map[string]any, error) {
				list := make([]any, 1000*v.(*value).n)
				for i := range list {
					list[i] = int64(i)
				}
				return map[string]any{"n": v.(*value).n, "list": list}, nil
			}
		})
		f.put("a", 0)
		g := run.NewGroup(t.Context(), 0)
		g.Go(func(ctx context.Context) {
			_, err := f.waiters.Wait(ctx, about("a", ask(one("object.list.exists(a, object.list.all(b, a > b))"))))
			var eval *expression.EvalError
			if !errors.As(err, &eval) || !eval.Limit {
				t.Errorf("the costly one: %v", err)
			}
		})
		g.Go(func(ctx context.Context) {
			if a, err := f.waiters.Wait(ctx, about("a", ask(one("object.n == 3")))); err != nil {
				t.Errorf("the other one: %+v, %v", a, err)
			}
		})
		synctest.Wait()
		f.put("a", 2)
		f.put("a", 3)
		g.Wait()
		f.stop()
	})
}
