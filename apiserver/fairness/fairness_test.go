package fairness_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/fairness"
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
	if refused := (*fairness.RefusedError)(nil); n != 12 || !errors.As(err, &refused) || refused.Resource != fairness.Watches || l.Refused(fairness.Workload)[fairness.Watches] != 1 {
		t.Errorf("one user got %d watches and then %v, want 12 of the 35 of the level and a refusal", n, err)
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
