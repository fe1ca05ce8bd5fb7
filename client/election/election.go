package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
)

// ErrLost is returned by [Run] when the lease could not be kept.
var ErrLost = errors.New("leader election lost")

// Options are the Lease and the candidate. All fields are required except Log.
type Options struct {
	Client          client.Interface
	Namespace, Name string
	Identity        string // no other program has it

	LeaseDuration, RenewDeadline, RetryPeriod time.Duration // each more than the next

	Log *slog.Logger // nil means slog.Default
}

// Run waits until it holds the lease and then works: work is called with a ctx that ends when the lease is lost or ctx
// is over. It returns what work returned, or an error that wraps [ErrLost], or nil if ctx is over first.
func Run(ctx context.Context, o Options, work func(ctx context.Context) error) error {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	e := &elector{Options: o}
	if !e.acquire(ctx) {
		return nil
	}
	o.Log.Info("successfully acquired lease", "lease", o.Namespace+"/"+o.Name, "identity", o.Identity)
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// The renewals go on while the work is being stopped.
	renewals := run.NewGroup(context.WithoutCancel(ctx), 0)
	renewals.Go(func(ctx context.Context) {
		if err := e.keep(ctx); err != nil {
			stop(err)
		}
	})
	err := work(working)
	renewals.Stop()
	if lost := context.Cause(working); errors.Is(lost, ErrLost) {
		return errors.Join(lost, err)
	}
	e.release(ctx)
	return err
}

// elector is a candidate for the lease. It is used by one goroutine at a time.
type elector struct {
	Options
	seen    *coordinationv1.Lease // as it was read or written last
	changed time.Time             // when it was seen to be another than before
}

// acquire returns true when the lease is held, or false when ctx is over.
func (e *elector) acquire(ctx context.Context) bool {
	for waiting := false; ctx.Err() == nil; {
		err := e.try(ctx)
		if err == nil {
			return true
		}
		if !waiting && ctx.Err() == nil {
			waiting = true
			e.Log.Info("waiting to acquire lease", "lease", e.Namespace+"/"+e.Name, "why", err)
		}
		run.Pause(ctx, e.RetryPeriod+rand.N(e.RetryPeriod/5+1))
	}
	return false
}

// keep renews the lease until ctx is over, or until that has not succeeded in time.
func (e *elector) keep(ctx context.Context) error {
	renewed := time.Now()
	for run.Pause(ctx, e.RetryPeriod) {
		within, cancel := context.WithDeadline(ctx, renewed.Add(e.RenewDeadline))
		err := e.try(within)
		cancel()
		switch {
		case err == nil:
			renewed = time.Now()
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errHeld), time.Since(renewed) >= e.RenewDeadline-e.RetryPeriod:
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
	return nil
}

// errHeld is the error for a Lease that another candidate holds.
var errHeld = errors.New("the lease is held by another candidate")

// try takes or renews the lease once.
func (e *elector) try(ctx context.Context) error {
	old, err := client.Leases.Get(ctx, e.Client, e.Namespace, e.Name)
	now := metav1.NowMicro()
	if apierrors.IsNotFound(err) {
		made, err := client.Leases.Create(ctx, e.Client, e.signed(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name}}, now))
		if err == nil {
			e.see(made)
		}
		return err
	}
	if err != nil {
		return err
	}
	if e.seen == nil || old.ResourceVersion != e.seen.ResourceVersion {
		e.see(old)
	}
	holder := ""
	if old.Spec.HolderIdentity != nil {
		holder = *old.Spec.HolderIdentity
	}
	if holder != "" && holder != e.Identity && time.Since(e.changed) < e.lasts(old) { // election-E2
		return fmt.Errorf("%w: %s", errHeld, holder)
	}
	made, err := client.Leases.Update(ctx, e.Client, e.signed(old.DeepCopy(), now), "")
	if err == nil {
		e.see(made)
	}
	return err
}

// lasts returns how long the Lease is valid after its last renewal.
func (e *elector) lasts(l *coordinationv1.Lease) time.Duration {
	if s := l.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		return time.Duration(*s) * time.Second
	}
	return e.LeaseDuration
}

func (e *elector) see(l *coordinationv1.Lease) { e.seen, e.changed = l, time.Now() }

// signed writes the identity into a lease.
func (e *elector) signed(l *coordinationv1.Lease, now metav1.MicroTime) *coordinationv1.Lease {
	s := &l.Spec
	var transitions int32
	if s.LeaseTransitions != nil {
		transitions = *s.LeaseTransitions
	}
	if s.HolderIdentity == nil || *s.HolderIdentity != e.Identity {
		if s.HolderIdentity != nil {
			transitions++
		}
		s.AcquireTime = &now
	}
	seconds := int32(e.LeaseDuration / time.Second)
	s.HolderIdentity, s.RenewTime, s.LeaseDurationSeconds, s.LeaseTransitions = &e.Identity, &now, &seconds, &transitions
	return l
}

// release gives the lease back (election-E3). If that fails, it runs out.
func (e *elector) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	l := e.seen.DeepCopy()
	nobody, seconds, now := "", int32(1), metav1.NowMicro()
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &nobody, &seconds, &now
	if _, err := client.Leases.Update(ctx, e.Client, l, ""); err != nil {
		e.Log.Debug("releasing the lease failed", "err", err)
	}
}
