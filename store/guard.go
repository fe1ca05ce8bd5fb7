package store

import (
	"errors"
	"fmt"
)

// # Conditions of a write beside its own key
//
// The expectation of a write (Write.Expect) is about its own key. Three further conditions are about others. All are
// checked in the step in which the write is accepted, so that no other write can come in between, and a write whose
// conditions do not hold changes nothing (store-I2):
//
//   - A guard says that another key still has the revision by which the caller decided, such as the namespace in
//     which an object is created.
//   - A claim is a name that belongs to the record, and that the record of no other key may have, such as a cluster IP.
//     The claims of a record follow from its value (Options.Claims). They end with the record that has them.
//   - A charge says that none but the caller has added to an account since the revision up to which the caller has
//     counted it, such as a quota.
//
// Each is something that a transaction of etcd can compare and put, so that a store elsewhere can keep the same
// contract.
//
// A condition is decided against what readers can see: if a write that could decide it is accepted and not published,
// its outcome is waited for first. So an error is about a state that the caller can read, and a write never depends on
// another that may still fail.

// The errors of conditions. A [*GuardError] matches ErrGuard, a [*ClaimError] ErrClaimed and a [*ChargeError]
// ErrCharged.
var (
	ErrGuard   = errors.New("another key has another revision than the write rests on")
	ErrClaimed = errors.New("a name is claimed by another key")
	ErrCharged = errors.New("the account was charged by others")
)

// A Guard says that a write rests on the state of another key.
type Guard struct {
	Key      string
	Revision Revision // that the key must have; 0 means that it must not exist
}

// A GuardError says which guard of a write does not hold.
type GuardError struct {
	Guard
	Have Revision // 0 if the key does not exist
}

func (e *GuardError) Error() string {
	return fmt.Sprintf("%s has revision %d, and the write rests on revision %d", e.Key, e.Have, e.Revision)
}

// Is makes errors.Is(err, ErrGuard) true.
func (e *GuardError) Is(target error) bool { return target == ErrGuard }

// checkConditions returns why the conditions of a write do not hold, or the outcome of an earlier write that has to be
// waited for before this is known. The caller holds accept.mu.
func (s *Store) checkConditions(w *Write, claims []string) (wait *outcome, err error) {
	for i := range w.Guards {
		if wait, err = s.checkGuard(&w.Guards[i]); wait != nil || err != nil {
			return wait, err
		}
	}
	if len(claims) > 0 {
		if wait, err = s.accept.checkClaims(w.Key, claims); wait != nil || err != nil {
			return wait, err
		}
	}
	if w.Charge != nil {
		return s.accept.checkCharge(w.Charge)
	}
	return nil, nil
}

func (s *Store) checkGuard(g *Guard) (wait *outcome, err error) {
	if o := s.accept.underway(g.Key); o != nil {
		return o, nil
	}
	have := Revision(0)
	if rec, exists := s.published(g.Key); exists {
		have = rec.Revision
	}
	if have != g.Revision {
		return nil, &GuardError{Guard: *g, Have: have}
	}
	return nil, nil
}

// underway returns the outcome of the newest accepted write to a key, if it is not known, or nil. The caller holds mu.
func (a *writes) underway(key string) *outcome {
	p, ok := a.pending[key]
	if !ok {
		return nil
	}
	select {
	case <-p.outcome.known:
		return nil
	default:
		return p.outcome
	}
}
