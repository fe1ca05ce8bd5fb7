package priority_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/priority"
	"github.com/sampan-io/sampan/catalog/flowcontrol"
	"github.com/sampan-io/sampan/internal/run"
)

func user(name string, groups ...string) *auth.User {
	return &auth.User{Name: name, Groups: append(groups, "system:authenticated")}
}

func account(namespace, name string) *auth.User {
	return user(auth.ServiceAccountUser(namespace, name), "system:serviceaccounts", "system:serviceaccounts:"+namespace)
}

// bootstrap is the objects that every cluster starts with.
func bootstrap() priority.Config {
	return priority.Config{
		Schemas: append(flowcontrol.MandatorySchemas(), flowcontrol.SuggestedSchemas()...),
		Levels:  append(flowcontrol.MandatoryLevels(), flowcontrol.SuggestedLevels()...),
	}
}

func level(name string, shares int32, change func(l *flowcontrolv1.LimitedPriorityLevelConfiguration)) *flowcontrolv1.PriorityLevelConfiguration {
	l := &flowcontrolv1.LimitedPriorityLevelConfiguration{
		NominalConcurrencyShares: &shares, LendablePercent: new(int32(0)),
		LimitResponse: flowcontrolv1.LimitResponse{
			Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 64, HandSize: 4, QueueLengthLimit: 2},
		},
	}
	if change != nil {
		change(l)
	}
	return &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name)},
		Spec:       flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: l},
	}
}

func rejecting(l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
	l.LimitResponse = flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}
}

// schema makes all requests of a user, in flows by user, ones of the level of that name.
func schema(name, level, user string, precedence int32) *flowcontrolv1.FlowSchema {
	all := []string{"*"}
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
			MatchingPrecedence:         precedence,
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects:         []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user}}},
				ResourceRules:    []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all, ClusterScope: true, Namespaces: all}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
			}},
		},
	}
}

func class(d *priority.Dispatcher, u *auth.User, r priority.Request) priority.Class {
	return d.User(nil, u).Classify(&r)
}

var getPod = priority.Request{Verb: "get", Resource: "pods", Namespace: "default"}

func TestClassesOfBootstrapObjects(t *testing.T) {
	d := priority.New(600)
	d.Configure(bootstrap())
	lease := priority.Request{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system"}
	probe := priority.Request{Verb: "get", Path: "/readyz"}
	nodeStatus := priority.Request{Verb: "patch", Resource: "nodes", Subresource: "status"}
	node := user("system:node:n", "system:nodes")
	tests := []struct {
		user   *auth.User
		what   priority.Request
		schema string
		level  string
	}{
		{user("admin", "system:masters"), getPod, "exempt", "exempt"},
		{user("admin", "system:masters"), priority.Request{Verb: "get", Path: "/metrics"}, "exempt", "exempt"},
		{&auth.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}, probe, "probes", "exempt"},
		{user("jane"), priority.Request{Verb: "get", Path: "/readyz/etcd"}, "probes", "exempt"},
		{user("jane"), priority.Request{Verb: "post", Path: "/readyz"}, "global-default", "global-default"},
		{user("jane"), priority.Request{Verb: "get", Path: "/readyzz"}, "global-default", "global-default"},
		{user("system:kube-controller-manager"), lease, "system-leader-election", "leader-election"},
		{user("system:kube-controller-manager"), getPod, "kube-controller-manager", "workload-high"},
		{user("system:kube-scheduler"), getPod, "kube-scheduler", "workload-high"},
		{account("kube-system", "x"), lease, "system-leader-election", "leader-election"},
		{account("kube-system", "x"), getPod, "kube-system-service-accounts", "workload-high"},
		{account("kube-system2", "x"), lease, "service-accounts", "workload-low"},
		{node, nodeStatus, "system-node-high", "node-high"},
		{node, priority.Request{Verb: "patch", Resource: "pods", Subresource: "status", Namespace: "a"}, "system-nodes", "system"},
		{node, priority.Request{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "a"}, "system-node-high", "node-high"},
		{account("a", "x"), getPod, "service-accounts", "workload-low"},
		{user("jane"), getPod, "global-default", "global-default"},
		{&auth.User{Name: "of no group"}, getPod, "catch-all", "catch-all"},
	}
	for _, tt := range tests {
		if c := class(d, tt.user, tt.what); c.Schema() != tt.schema || c.Level() != tt.level {
			t.Errorf("%s %+v: schema %s, level %s, want %s and %s", tt.user.Name, tt.what, c.Schema(), c.Level(), tt.schema, tt.level)
		}
	}
}

// Requests of administrators have no limits and come first, even if broken objects are stored.
func TestAdministratorIsExempt(t *testing.T) {
	admin := user("admin", "system:masters")
	jail := level("jail", 0, rejecting)
	everyone := schema("everyone", "jail", "*", 1)
	broken := level("exempt", 0, rejecting)
	hijacked := schema("exempt", "jail", "nobody", 9999)
	for _, c := range []priority.Config{
		{}, {Levels: []*flowcontrolv1.PriorityLevelConfiguration{jail, broken}, Schemas: []*flowcontrolv1.FlowSchema{everyone, hijacked}},
	} {
		d := priority.New(10)
		d.Configure(c)
		for range 1000 {
			if _, err := d.Enter(t.Context(), class(d, admin, getPod), 1); err != nil {
				t.Fatal(err)
			}
		}
		if c := class(d, admin, getPod); !c.Exempt() {
			t.Errorf("the class of an administrator is %s in %s", c.Schema(), c.Level())
		}
	}
}

func TestSchemaWithoutLevelIsDangling(t *testing.T) {
	d := priority.New(10)
	now := metav1.Now()
	c := priority.Config{Schemas: []*flowcontrolv1.FlowSchema{schema("s", "missing", "jane", 50)}}
	d.Configure(c)
	if got := class(d, user("jane"), getPod); got.Schema() != "catch-all" {
		t.Errorf("a schema without a level matches: %s", got.Schema())
	}
	check := func(status flowcontrolv1.ConditionStatus, reason, message string) {
		t.Helper()
		changed := c.Conditions(now)
		if len(changed) != 1 || len(changed[0].Status.Conditions) != 1 {
			t.Fatalf("changed: %v", changed)
		}
		if got := changed[0].Status.Conditions[0]; got.Type != flowcontrolv1.FlowSchemaConditionDangling || got.Status != status || got.Reason != reason || got.Message != message || got.LastTransitionTime != now {
			t.Errorf("condition %+v", got)
		}
		c.Schemas = changed
		if again := c.Conditions(now); len(again) > 0 {
			t.Errorf("a condition that is as it should be is changed: %v", again)
		}
	}
	check("True", "NotFound", `This FlowSchema references the PriorityLevelConfiguration object named "missing" but there is no such object`)
	c.Levels = append(c.Levels, level("missing", 10, nil))
	check("False", "Found", `This FlowSchema references the PriorityLevelConfiguration object named "missing" and it exists`)
	d.Configure(c)
	if got := class(d, user("jane"), getPod); got.Schema() != "s" {
		t.Errorf("schema %s", got.Schema())
	}
}

func TestUserFollowsConfiguration(t *testing.T) {
	d := priority.New(10)
	jane := user("jane")
	before := d.User(nil, jane)
	if d.User(before, jane) != before {
		t.Error("the rules of a user are made again without need")
	}
	d.Configure(priority.Config{Schemas: []*flowcontrolv1.FlowSchema{schema("s", "l", "jane", 50)}, Levels: []*flowcontrolv1.PriorityLevelConfiguration{level("l", 1, nil)}})
	if c := d.User(before, jane).Classify(&getPod); c.Schema() != "s" {
		t.Errorf("schema %s", c.Schema())
	}
}

// crowd makes requests of users to one level, and records who gets a seat.
type crowd struct {
	t     *testing.T
	d     *priority.Dispatcher
	group *run.Group
	got   chan string
}

func newCrowd(t *testing.T, seats int, l *flowcontrolv1.PriorityLevelConfiguration) *crowd {
	c := &crowd{t: t, d: priority.New(seats), group: run.NewGroup(t.Context(), 0), got: make(chan string, 100)}
	none := level("catch-all", 0, rejecting)
	c.d.Configure(priority.Config{Levels: []*flowcontrolv1.PriorityLevelConfiguration{l, none}, Schemas: []*flowcontrolv1.FlowSchema{schema("s", l.Name, "*", 50)}})
	return c
}

// hold takes seats and keeps them.
func (c *crowd) hold(name string, seats int) *priority.Ticket {
	c.t.Helper()
	t, err := c.d.Enter(c.t.Context(), class(c.d, user(name), getPod), seats)
	if err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	return &t
}

// ask wants seats, and gives them back a second after it got them.
func (c *crowd) ask(name string, seats int) {
	c.group.Go(func(ctx context.Context) {
		t, err := c.d.Enter(ctx, class(c.d, user(name), getPod), seats)
		if refused := (*priority.RefusedError)(nil); errors.As(err, &refused) {
			c.got <- name + " " + refused.Reason
			return
		}
		c.got <- name
		run.Pause(ctx, time.Second)
		t.Leave()
	})
	synctest.Wait()
}

func (c *crowd) want(names ...string) {
	c.t.Helper()
	for _, want := range names {
		if got := <-c.got; got != want {
			c.t.Errorf("the seat went to %s, want %s", got, want)
		}
	}
	select {
	case got := <-c.got:
		c.t.Errorf("%s got a seat, too", got)
	default:
	}
}

func TestGreedyFlowDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1, level("l", 10, func(l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
			l.LimitResponse.Queuing.HandSize = 1
			l.LimitResponse.Queuing.Queues = 10_000 // the two flows have different ones
			l.LimitResponse.Queuing.QueueLengthLimit = 5
		}))
		first := c.hold("greedy", 1)
		for range 5 {
			c.ask("greedy", 1)
		}
		c.ask("modest", 1)
		c.ask("greedy", 1) // its queue is full
		c.want("greedy queue-full")
		time.Sleep(time.Second)
		first.Leave()
		// The greedy flow has had a seat for a second and the modest one none.
		c.want("modest")
		time.Sleep(time.Second)
		synctest.Wait()
		c.want("greedy")
		time.Sleep(10 * time.Second)
		c.want("greedy", "greedy", "greedy", "greedy")
		c.group.Wait()
	})
}

func TestWideRequestIsNotPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 40, level("l", 10, nil)) // a request takes up to 6 seats
		tickets := []*priority.Ticket{}
		for range 38 {
			tickets = append(tickets, c.hold("holder", 1)) // of one queue: wide finds one without seats, so it is first
		}
		c.ask("wide", 10)
		c.ask("narrow", 1)
		c.want()
		for _, held := range tickets[:3] {
			held.Leave()
		}
		c.want()
		tickets[3].Leave()
		synctest.Wait()
		c.want("wide")
		tickets[4].Leave()
		synctest.Wait()
		c.want("narrow")
		for _, held := range tickets[5:] {
			held.Leave()
		}
		c.group.Wait()
	})
}

func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1, level("l", 10, nil))
		first := c.hold("first", 1)
		start := time.Now()
		_, err := c.d.Enter(t.Context(), class(c.d, user("late"), getPod), 1)
		if refused := (*priority.RefusedError)(nil); !errors.As(err, &refused) || refused.Reason != "time-out" || time.Since(start) != 15*time.Second {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		start = time.Now()
		if _, err = c.d.Enter(ctx, class(c.d, user("hasty"), getPod), 1); err == nil || time.Since(start) != 5*time.Second {
			t.Errorf("with a deadline in 20s, after %s: %v", time.Since(start), err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err = c.d.Enter(ctx, class(c.d, user("gone"), getPod), 1); !errors.Is(err, context.Canceled) {
			t.Errorf("when the client had gone: %v", err)
		}
		c.ask("next", 1)
		first.Leave()
		first.Leave() // it has no seats any more
		synctest.Wait()
		c.want("next")
		c.group.Wait()
	})
}

func TestLevelWithoutQueuesRefuses(t *testing.T) {
	c := newCrowd(t, 1, level("l", 10, rejecting))
	first := c.hold("first", 1)
	_, err := c.d.Enter(t.Context(), class(c.d, user("second"), getPod), 1)
	if refused := (*priority.RefusedError)(nil); !errors.As(err, &refused) || refused.Reason != "concurrency-limit" {
		t.Errorf("%v", err)
	}
	first.Leave()
	c.hold("second", 1).Leave()
	jailed := newCrowd(t, 1, level("jail", 0, rejecting))
	if _, err := jailed.d.Enter(t.Context(), class(jailed.d, user("u"), getPod), 1); err == nil {
		t.Error("a level without shares has seats")
	}
}

func TestSeatsAreBorrowedAndReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := priority.New(20)
		lender := level("lender", 10, func(l *flowcontrolv1.LimitedPriorityLevelConfiguration) { l.LendablePercent = new(int32(50)) })
		borrower := level("borrower", 10, func(l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
			l.BorrowingLimitPercent = new(int32(30))
			l.LimitResponse.Queuing.QueueLengthLimit = 50
		})
		d.Configure(priority.Config{
			Levels:  []*flowcontrolv1.PriorityLevelConfiguration{lender, borrower, level("catch-all", 0, rejecting)},
			Schemas: []*flowcontrolv1.FlowSchema{schema("a", "lender", "lender", 50), schema("b", "borrower", "borrower", 51)},
		})
		group := run.NewGroup(t.Context(), 0)
		var mu sync.Mutex
		var held []priority.Ticket // guarded by mu while requests wait
		enter := func(name string) {
			group.Go(func(ctx context.Context) {
				if got, err := d.Enter(ctx, class(d, user(name), getPod), 1); err == nil {
					mu.Lock()
					defer mu.Unlock()
					held = append(held, got)
				}
			})
			synctest.Wait()
		}
		for range 14 {
			enter("borrower")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		// Of the lender's ten seats five may be lent, and three more than its ten may be borrowed.
		if len(held) != 13 {
			t.Errorf("the borrower has %d seats, want 13", len(held))
		}
		for range 10 {
			enter("lender")
		}
		for _, borrowed := range slices.Clone(held) {
			borrowed.Leave() // and a request that waits appends its ticket to held
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(held); n != 24 {
			t.Errorf("%d requests got seats, want all 24", n)
		}
		for _, lent := range held[13:] {
			lent.Leave()
		}
		time.Sleep(time.Minute)
		group.Wait()
		if dump := dumped(d); strings.Contains(dump, "false,   false,") || len(strings.Split(dump, "\n")) != 6 {
			t.Errorf("a level is not idle:\n%s", dump)
		}
	})
}

func dumped(d *priority.Dispatcher) string {
	var b strings.Builder
	d.Dump(&b, "dump_priority_levels")
	return b.String()
}

// What waits in a level that is deleted is executed.
func TestDeletedLevelDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1, level("l", 10, nil))
		first := c.hold("first", 1)
		c.ask("waiting", 1)
		c.d.Configure(priority.Config{})
		first.Leave()
		synctest.Wait()
		c.want("waiting")
		c.group.Wait()
	})
}

func TestSeatsOfLists(t *testing.T) {
	for objects, want := range map[int]int{0: 1, 1: 1, 100: 1, 101: 2, 950: 10, 1_000_000: 10} {
		if got := priority.Seats(objects); got != want {
			t.Errorf("a list of %d objects takes %d seats, want %d", objects, got, want)
		}
	}
}

func TestDumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1, level("l", 10, nil))
		first := c.hold("first", 1)
		c.ask("waiting", 1)
		for table, want := range map[string]string{
			"dump_priority_levels": "l,",
			"dump_queues":          "l,",
			"dump_requests":        "s,",
		} {
			var b strings.Builder
			if !c.d.Dump(&b, table) || !slices.ContainsFunc(strings.Fields(b.String()), func(f string) bool { return f == want }) {
				t.Errorf("%s:\n%s", table, b.String())
			}
		}
		if c.d.Dump(&strings.Builder{}, "dump_passwords") {
			t.Error("there is a table of passwords")
		}
		first.Leave()
		synctest.Wait()
		c.want("waiting")
		c.group.Wait()
	})
}

func TestRequestDoesNotAllocate(t *testing.T) {
	d := priority.New(600)
	d.Configure(bootstrap())
	for _, u := range []*auth.User{user("admin", "system:masters"), account("a", "x")} {
		known := d.User(nil, u)
		r := getPod
		if n := testing.AllocsPerRun(100, func() {
			known = d.User(known, u)
			t, err := d.Enter(context.Background(), known.Classify(&r), 1)
			if err != nil {
				panic(err)
			}
			t.Leave()
		}); n > 0 {
			t.Errorf("a request of %s makes %v allocations", u.Name, n)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	d := priority.New(600)
	d.Configure(bootstrap())
	for _, u := range []*auth.User{user("admin", "system:masters"), account("a", "x"), account("kube-system", "x"), user("jane")} {
		b.Run(u.Name, func(b *testing.B) {
			known := d.User(nil, u)
			r := getPod
			for b.Loop() {
				known = d.User(known, u)
				t, err := d.Enter(b.Context(), known.Classify(&r), 1)
				if err != nil {
					b.Fatal(err)
				}
				t.Leave()
			}
		})
	}
}
