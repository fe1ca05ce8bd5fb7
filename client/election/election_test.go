package election_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/client/election"
	"github.com/sampan-io/sampan/internal/run"
)

// candidates are programs that note when they begin and end to work.
type candidates struct {
	t     *testing.T
	s     *clienttest.Server
	mu    sync.Mutex
	diary []string // guarded by mu
}

func (c *candidates) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.diary = append(c.diary, what)
}

func (c *candidates) told() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.diary, ", ")
}

// run has a candidate take part until the returned function is called.
func (c *candidates) run(name string) (stop func()) {
	g := run.NewGroup(context.WithoutCancel(c.t.Context()), 0)
	g.Go(func(ctx context.Context) {
		err := election.Run(ctx, election.Options{
			Client: c.s, Namespace: "kube-system", Name: "kube-scheduler", Identity: name,
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		}, func(ctx context.Context) error {
			c.note(name + " begins")
			<-ctx.Done()
			c.note(name + " ends")
			return nil
		})
		if errors.Is(err, election.ErrLost) {
			c.note(name + " lost")
		} else if err != nil {
			c.t.Error(err)
		}
	})
	return g.Stop
}

func TestTheSecondTakesOverWhenTheFirstStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &candidates{t: t, s: clienttest.New(t)}
		stopA := c.run("a")
		synctest.Wait()
		stopB := c.run("b")
		defer stopB()
		time.Sleep(time.Hour)
		if got := c.told(); got != "a begins" {
			t.Fatalf("after an hour: %s", got)
		}
		stopA()
		time.Sleep(3 * time.Second)
		if got := c.told(); got != "a begins, a ends, b begins" {
			t.Errorf("after a stopped: %s", got)
		}
		l := clienttest.Find(c.s, client.Leases, "kube-system", "kube-scheduler")
		if *l.Spec.HolderIdentity != "b" || *l.Spec.LeaseDurationSeconds != 15 || *l.Spec.LeaseTransitions == 0 {
			t.Errorf("the lease is %+v", l.Spec)
		}
	})
}

func TestOneThatIsCutOffStopsBeforeAnotherBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &candidates{t: t, s: clienttest.New(t)}
		var cut atomic.Bool
		c.s.Intercept(func(r clienttest.Request) error {
			if cut.Load() {
				return errors.New("connection refused")
			}
			return nil
		})
		stopA := c.run("a")
		defer stopA()
		time.Sleep(time.Minute)
		cut.Store(true)
		time.Sleep(11 * time.Second)
		if got := c.told(); got != "a begins, a ends, a lost" {
			t.Errorf("cut off: %s", got)
		}
		cut.Store(false)
		stopB := c.run("b")
		defer stopB()
		time.Sleep(14 * time.Second)
		if got := c.told(); strings.Contains(got, "b begins") {
			t.Errorf("b did not wait until the lease ran out by its own clock: %s", got)
		}
		time.Sleep(5 * time.Second)
		if got := c.told(); got != "a begins, a ends, a lost, b begins" {
			t.Errorf("afterwards: %s", got)
		}
	})
}
