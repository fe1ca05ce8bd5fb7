package operation

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/codec"
	"github.com/sampan-io/sampan/store"
)

// mostLooks is how often a write is tried whose conditions keep changing: then it has lost against others.
// Each change is a write of another client, so this is many.
const mostLooks = 100

// commitAdmitted makes a write with the conditions that admission found for it. When one of them does not hold any
// more, the plug-in whose condition it is looks again. Its error is an API status error if that refuses the write, and
// otherwise that of the store.
func (o *Operations) commitAdmitted(ctx context.Context, t *Target, a *admission.Attributes, w store.Write) (*codec.Item, error) {
	w.Author = t.author()
	if len(a.Guards) > 0 {
		w.Guards = make([]store.Guard, len(a.Guards))
		for i := range a.Guards {
			w.Guards[i] = o.guard(&a.Guards[i])
		}
	}
	if a.Charge != nil {
		w.Charge = &a.Charge.Charge
	}
	for range mostLooks {
		item, err := o.commit(ctx, w)
		if err == nil {
			return item, nil
		}
		again, err := o.lookAgain(ctx, a, &w, err)
		switch {
		case !again:
			return nil, err
		case ctx.Err() != nil:
			return nil, endedEarly(ctx.Err())
		}
	}
	return nil, modified(t.Kind.GR(), t.Name)
}

// guard returns a guard as the store has them.
func (o *Operations) guard(g *admission.Guard) store.Guard {
	key := g.Resource.Resource + "/" + g.Name // of a kind that is not served any more, which has no such object
	if kind := o.catalog.Resource(g.Resource); kind != nil {
		key = kind.Key(g.Namespace, g.Name)
	}
	return store.Guard{Key: key, Revision: g.Revision}
}

// lookAgain brings the conditions of a write up to date after it failed with an error. It returns false and the error
// that is left if the write is not to be tried again.
func (o *Operations) lookAgain(ctx context.Context, a *admission.Attributes, w *store.Write, failed error) (bool, error) {
	if _, ok := errors.AsType[*store.ChargeError](failed); ok {
		since, err := a.Charge.Recounter.Recount(ctx, a)
		if err != nil {
			return false, err
		}
		w.Charge = &store.Charge{Account: w.Charge.Account, By: w.Charge.By, Since: since}
		return true, nil
	}
	e, ok := errors.AsType[*store.GuardError](failed)
	if !ok {
		return false, failed
	}
	for i := range w.Guards {
		if w.Guards[i].Key != e.Key {
			continue
		}
		guard, err := a.Guards[i].By.Look(ctx, a)
		if err != nil {
			return false, err
		}
		a.Guards[i] = guard
		w.Guards[i] = o.guard(&guard)
	}
	return true, nil
}

// A claimRace counts how often a write has lost a claim to another object.
type claimRace struct {
	tries int
	last  store.ClaimError
}

// again returns nil if the write is to be admitted and tried once more after it has lost a claim. An error is for the
// client: nothing has changed since the last time, or others were first too often.
func (r *claimRace) again(ctx context.Context, t *Target, name string, e *store.ClaimError) error {
	r.tries++
	same := r.last == *e
	r.last = *e
	switch {
	case same || r.tries == mostLooks:
		return apierrors.NewConflict(t.Kind.GR(), name, e)
	case ctx.Err() != nil:
		return endedEarly(ctx.Err())
	}
	return nil
}

// writeFault is StoreFault for the error of commitAdmitted.
func writeFault(err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return err
	}
	return StoreFault(err)
}
