package store

import (
	"fmt"
	"slices"
)

// A ClaimError says that a record would have a claim that another key has.
type ClaimError struct {
	Claim  string
	Holder string // the key that has it
}

func (e *ClaimError) Error() string { return fmt.Sprintf("%s belongs to %s", e.Claim, e.Holder) }

// Is makes errors.Is(err, ErrClaimed) true.
func (e *ClaimError) Is(target error) bool { return target == ErrClaimed }

// claims is the index of the claims of all records, published and accepted ones. It is in memory only: it follows from
// the records. It is guarded by the mu of its writes.
//
// A claim is held from the acceptance of the first record that has it until the publication of the write that replaces
// or deletes the last one. So a claim is never free while a write under way could still leave it with its holder.
type claims struct {
	// holders has the keys that have a claim, once for each of their records. It is one key, the first, unless records
	// from before the claims were checked share one.
	holders map[string][]string

	records map[string][]claimant // of each key with claims, oldest first
}

// A claimant is a record with claims.
type claimant struct {
	revision Revision
	names    []string
}

// add notes the claims of a record that is accepted or loaded. It reports whether the key has claims, before or after.
func (c *claims) add(key string, revision Revision, names []string) bool {
	before := c.records[key]
	if len(names) == 0 {
		return len(before) > 0
	}
	if c.records == nil {
		c.records, c.holders = map[string][]claimant{}, map[string][]string{}
	}
	c.records[key] = append(before, claimant{revision, names})
	for _, name := range names {
		c.holders[name] = append(c.holders[name], key)
	}
	return true
}

// publish ends the claims of the records of a key that the one of a revision replaced.
func (c *claims) publish(key string, revision Revision) {
	c.end(key, func(r Revision) bool { return r < revision })
}

// fail ends the claims of a record that was accepted and is not written.
func (c *claims) fail(key string, revision Revision) {
	c.end(key, func(r Revision) bool { return r == revision })
}

// end ends the claims of those records of a key.
func (c *claims) end(key string, ended func(Revision) bool) {
	left := slices.DeleteFunc(c.records[key], func(r claimant) bool {
		if !ended(r.revision) {
			return false
		}
		for _, name := range r.names {
			c.release(name, key)
		}
		return true
	})
	if len(left) == 0 {
		delete(c.records, key)
		return
	}
	c.records[key] = left
}

// release takes one record of a key from a claim.
func (c *claims) release(name, key string) {
	keys := c.holders[name]
	i := slices.Index(keys, key)
	switch {
	case i < 0:
	case len(keys) == 1:
		delete(c.holders, name)
	default:
		c.holders[name] = slices.Delete(keys, i, i+1)
	}
}

// foreign returns the first of the names that only other keys have, and these keys. A name that a record of the key has
// already stays with it.
func (c *claims) foreign(key string, names []string) (name string, holders []string) {
	for _, name := range names {
		if holders := c.holders[name]; len(holders) > 0 && !slices.Contains(holders, key) {
			return name, holders
		}
	}
	return "", nil
}

// checkClaims returns an error if another key has one of the claims, or the outcome of a write to that key. The caller
// holds mu.
func (a *writes) checkClaims(key string, names []string) (wait *outcome, err error) {
	name, holders := a.claims.foreign(key, names)
	if holders == nil {
		return nil, nil
	}
	for _, holder := range holders {
		if o := a.underway(holder); o != nil {
			return o, nil
		}
	}
	return nil, &ClaimError{Claim: name, Holder: holders[0]}
}

// settleClaims ends the claims of the records that published writes have replaced. It comes before their outcome is
// set. The caller holds mu.
func (a *writes) settleClaims(items ...queued) {
	for i := range items {
		if items[i].claiming {
			a.claims.publish(items[i].rec.Key, items[i].rec.Revision)
		}
	}
}

// loadClaims notes the claims of a record from the backend. Two keys may have the same one from before claims were
// checked: the first keeps it, and the other as well until a write takes it away. The caller holds mu.
func (s *Store) loadClaims(rec *record) {
	names := s.opts.Claims(rec.Key, rec.Value)
	if len(names) == 0 {
		return
	}
	if name, holders := s.accept.claims.foreign(rec.Key, names); holders != nil {
		s.opts.Log.Warn("two stored objects have what only one may have", "what", name, "first", holders[0], "second", rec.Key)
	}
	s.accept.claims.add(rec.Key, rec.Revision, names)
}
