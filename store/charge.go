package store

import (
	"fmt"
	"slices"
)

// A Charge is the addition of a write to an account that several callers charge, each of which counts it on its own.
type Charge struct {
	Account string // such as "pods/default/"
	By      string // names the caller

	// Since is the revision up to which the caller has counted the account. The write fails if another caller has
	// charged the account after it.
	Since Revision
}

// A ChargeError says that others have charged the account of a write.
type ChargeError struct {
	Account string
	Seen    Revision // up to which the caller has to count, at least; readers can see it
}

func (e *ChargeError) Error() string {
	return fmt.Sprintf("others have charged %s up to revision %d", e.Account, e.Seen)
}

// Is makes errors.Is(err, ErrCharged) true.
func (e *ChargeError) Is(target error) bool { return target == ErrCharged }

// maxAccounts bounds the accounts whose charges are known.
const maxAccounts = 16 << 10

// charges knows when accounts were charged last, and by which caller. It is guarded by the mu of its writes.
type charges struct {
	accounts map[string]*charged

	// floor is the newest revision at which an account that is not known (any more) may have been charged.
	floor Revision
}

// charged has the newest charge of an account, and the newest one of all other callers.
type charged struct{ newest, other charging }

type charging struct {
	by       string
	key      string // of the write
	revision Revision
}

// ofOthers returns the newest charge of an account by another caller.
func (c *charges) ofOthers(account, by string) charging {
	switch known := c.accounts[account]; {
	case known == nil:
		return charging{revision: c.floor}
	case known.newest.by != by:
		return known.newest
	default:
		return known.other
	}
}

// note records the charge of an accepted write. Revisions up to published can be seen by readers.
func (c *charges) note(w *Charge, key string, revision, published Revision) {
	now := charging{w.By, key, revision}
	known := c.accounts[w.Account]
	switch {
	case known == nil:
		if len(c.accounts) >= maxAccounts {
			c.forget(published)
		}
		if c.accounts == nil {
			c.accounts = map[string]*charged{}
		}
		c.accounts[w.Account] = &charged{newest: now, other: charging{revision: c.floor}}
	case known.newest.by == w.By:
		known.newest = now
	default:
		known.newest, known.other = now, known.newest
	}
}

// forget drops the half of the accounts that were charged least recently, of those whose charges are published.
func (c *charges) forget(published Revision) {
	revisions := make([]Revision, 0, len(c.accounts))
	for _, known := range c.accounts {
		revisions = append(revisions, known.newest.revision)
	}
	slices.Sort(revisions)
	floor := min(revisions[len(revisions)/2], published)
	for account, known := range c.accounts {
		if known.newest.revision <= floor {
			delete(c.accounts, account)
		}
	}
	c.floor = max(c.floor, floor)
}

// fail takes back the charge of a write that failed: the account may have been charged up to the published revision,
// and not at the revision of the write, which will never be published.
func (c *charges) fail(account string, revision, published Revision) {
	known := c.accounts[account]
	if known == nil {
		return
	}
	for _, charge := range []*charging{&known.newest, &known.other} {
		if charge.revision == revision {
			charge.revision = min(revision, published)
		}
	}
}

// checkCharge returns an error if others have charged the account, or the outcome of a write that does. The caller
// holds mu.
func (a *writes) checkCharge(w *Charge) (wait *outcome, err error) {
	last := a.charges.ofOthers(w.Account, w.By)
	if last.revision <= w.Since {
		return nil, nil
	}
	if o := a.underway(last.key); o != nil {
		return o, nil
	}
	return nil, &ChargeError{Account: w.Account, Seen: last.revision}
}
