package fairness_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/fairness"
	"github.com/sampan-io/sampan/internal/run"
)

func user(name string, groups ...string) *auth.User { return &auth.User{Name: name, Groups: groups} }

func account(name string) *auth.User {
	return user("system:serviceaccount:a:"+name, "system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated")
}

func TestLevelOfUsers(t *testing.T) {
	tests := []struct {
		user *auth.User
		want fairness.Level
	}{
		{user("admin", "system:masters", "system:authenticated"), fairness.Exempt},
		{user("system:node:n1", "system:nodes", "system:authenticated"), fairness.System},
		{user("system:kube-scheduler"), fairness.System},
		{user("system:kube-proxy"), fairness.System},
		{user("system:serviceaccount:kube-system:dns", "system:serviceaccounts", "system:serviceaccounts:kube-system"), fairness.System},
		{account("x"), fairness.Workload},
		{user("jane", "system:authenticated"), fairness.Default},
		{user("system:nodes", "system:authenticated"), fairness.Default},
		{user("system:anonymous", "system:unauthenticated"), fairness.Anonymous},
	}
	for _, tt := range tests {
		if got := fairness.LevelOf(tt.user); got != tt.want {
			t.Errorf("the level of %s is %s, want %s", tt.user.Name, got, tt.want)
		}
	}
}

// fill takes as many of a resource as a flow gets.
func fill(f *fairness.Flow, r fairness.Resource) (n int, err error) {
	for n = 0; n < 10_000; n++ {
		if err = f.Take(r, 1); err != nil {
			return n, err
		}
	}
	return n, nil
}

func TestTakeIsBoundedPerUserAndLevel(t *testing.T) {
	l := fairness.New(fairness.Options{Watches: 100})
	n, err := fill(l.Flow(account("a"), ""), fairness.Watches)
	if refused := (*fairness.RefusedError)(nil); n != 12 || !errors.As(err, &refused) || refused.Reason != fairness.ReasonLimit {
		t.Errorf("one user got %d watches and then %v, want 12 of the 35 of the level and concurrency-limit", n, err)
	}
	for _, name := range []string{"b", "c", "d", "e"} {
		m, _ := fill(l.Flow(account(name), ""), fairness.Watches)
		n += m
	}
	if n != 35 {
		t.Errorf("five users got %d watches, want 35", n)
	}
	for _, other := range []*auth.User{user("jane"), user("system:node:n", "system:nodes"), user("system:anonymous")} {
		if err := l.Flow(other, "10.0.0.1").Take(fairness.Watches, 1); err != nil {
			t.Errorf("while service accounts have all of theirs, %s got %v", other.Name, err)
		}
	}
	if n, err := fill(l.Flow(user("admin", "system:masters"), ""), fairness.Watches); err != nil {
		t.Errorf("an administrator got %d and then %v", n, err)
	}
	l.Flow(account("a"), "").Return(fairness.Watches, 1)
	if err := l.Flow(account("f"), "").Take(fairness.Watches, 1); err != nil {
		t.Errorf("after one was given back: %v", err)
	}
}

func TestAnonymousFlowsAreByAddress(t *testing.T) {
	l := fairness.New(fairness.Options{Streams: 200}) // 10 for the level, 4 for each
	nobody := user("system:anonymous")
	if n, _ := fill(l.Flow(nobody, "10.0.0.1"), fairness.Streams); n != 4 {
		t.Errorf("one address got %d, want 4", n)
	}
	if n, _ := fill(l.Flow(nobody, "10.0.0.2"), fairness.Streams); n != 4 {
		t.Errorf("another address got %d, want 4", n)
	}
}

func TestSeatsGoToFlowsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fairness.New(fairness.Options{Seats: 9}) // 3 for service accounts, 1 for each
		g := run.NewGroup(t.Context(), 0)
		holders := []*fairness.Flow{}
		for i := range 3 {
			f := l.Flow(account(fmt.Sprint("holder", i)), "")
			if err := f.Sit(t.Context()); err != nil {
				t.Fatal(err)
			}
			holders = append(holders, f)
		}
		got := make(chan string, 10)
		ask := func(name string) {
			g.Go(func(ctx context.Context) {
				f := l.Flow(account(name), "")
				if refused := (*fairness.RefusedError)(nil); errors.As(f.Sit(ctx), &refused) {
					got <- name + " " + refused.Reason
					return
				}
				got <- name
				f.Leave()
			})
			synctest.Wait()
		}
		ask("greedy")
		ask("greedy") // its queue has room for one
		if s := <-got; s != "greedy queue-full" {
			t.Errorf("a second request of one user: %s", s)
		}
		ask("modest")
		ask("third")
		ask("fourth") // the queue of the level has room for three
		if s := <-got; s != "fourth queue-full" {
			t.Errorf("a fourth request of the level: %s", s)
		}
		if s := l.Stats(fairness.Workload); s.Executing != 3 || s.Waiting != 3 || s.Refused["queue-full"] != 2 {
			t.Errorf("stats %+v", s)
		}
		holders[0].Leave()
		for _, want := range []string{"greedy", "modest", "third"} {
			if s := <-got; s != want {
				t.Errorf("the seat went to %s, want %s", s, want)
			}
		}
		g.Wait()
	})
}

func TestWaitingForASeatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fairness.New(fairness.Options{Seats: 1})
		f := l.Flow(account("a"), "")
		if err := f.Sit(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var refused *fairness.RefusedError
		if err := f.Sit(t.Context()); !errors.As(err, &refused) || refused.Reason != fairness.ReasonTimeOut || time.Since(start) != 15*time.Second {
			t.Errorf("after %s: %v, want time-out after 15s", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.Sit(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("when the client had gone: %v", err)
		}
		if s := l.Stats(fairness.Workload); s.Executing != 1 || s.Waiting != 0 {
			t.Errorf("stats %+v", s)
		}
		f.Leave()
		if err := f.Sit(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Users without requests are forgotten, and users with requests are not.
func TestManyUsersLeaveNothingBehind(t *testing.T) {
	l := fairness.New(fairness.Options{Watches: 300})
	for i := range 10 {
		if err := l.Flow(account(fmt.Sprint("keeps", i)), "").Take(fairness.Watches, 2); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100_000 {
		l.Flow(account(fmt.Sprint("passes", i)), "")
	}
	if n := l.Flows(fairness.Workload); n > 1000 {
		t.Errorf("%d flows are kept", n)
	}
	if n, _ := fill(l.Flow(account("keeps3"), ""), fairness.Watches); n != 33 {
		t.Errorf("a user with 2 of 35 watches got %d more", n)
	}
}
