package store

import (
	"context"
	"errors"
	"time"

	"github.com/sampan-io/sampan/internal/run"
)

// Records with a time to live (Options.TTL) are deleted when it has passed since their last
// write. The deadline is saved with the record, so that it holds over restarts.
//
// Deadlines are rounded up, so that records which were written at about the same time expire
// together, and the store sets one timer for all of them. A record stays at most a twentieth
// of its time to live longer, and at most a minute, which is what upstream's API server allows
// itself when it shares leases of etcd among events.

// deadline returns when a record that is written now expires, in Unix seconds.
func deadline(now time.Time, ttl time.Duration) int64 {
	step := int64(min(max(ttl/20, time.Second), time.Minute) / time.Second)
	at := now.Add(ttl)
	seconds := at.Unix()
	if at.Nanosecond() > 0 {
		seconds++
	}
	return (seconds + step - 1) / step * step
}

// deadlines holds the keys that expire, by deadline. It is guarded by the mu of its Image.
type deadlines struct {
	keys map[int64]map[string]struct{}
	set  run.Bell // rung when there is a new deadline
}

// move records that the deadline of a key was before and is now; 0 is none.
func (d *deadlines) move(key string, before, now int64) {
	if before == now {
		return
	}
	if keys := d.keys[before]; keys != nil {
		if delete(keys, key); len(keys) == 0 {
			delete(d.keys, before)
		}
	}
	if now == 0 {
		return
	}
	keys := d.keys[now]
	if keys == nil {
		keys = map[string]struct{}{}
		d.keys[now] = keys
		d.set.Ring()
	}
	keys[key] = struct{}{}
}

// next returns the earliest deadline, or 0.
func (d *deadlines) next() int64 {
	first := int64(0)
	for at := range d.keys {
		if first == 0 || at < first {
			first = at
		}
	}
	return first
}

// retryExpired is how long the store waits after it could not delete expired records, because
// the disk is full.
const retryExpired = time.Minute

// expire deletes records whose time to live is over, until ctx is over.
func (s *Store) expire(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.RLock()
		next := s.deadlines.next()
		s.mu.RUnlock()
		if next == 0 {
			select {
			case <-s.deadlines.set:
			case <-ctx.Done():
			}
			continue
		}
		if pause := time.Until(time.Unix(next, 0)); pause > 0 {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-s.deadlines.set: // it may be an earlier one
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		switch err := s.removeExpired(ctx, next); {
		case errors.Is(err, ErrFull):
			run.Pause(ctx, retryExpired)
		case err != nil:
			return // the store is stopped or broken
		}
	}
}

// expiry is the author of the deletions of expired records.
var expiry = Author{User: "system:apiserver", Agent: "expiry"}

// removeExpired deletes the records with that deadline, except records that are written again in
// the meantime.
func (s *Store) removeExpired(ctx context.Context, at int64) error {
	s.mu.RLock()
	var expired []Record
	for key := range s.deadlines.keys[at] {
		rec, _ := s.resources[resourceOf(key)].live.Get(key)
		expired = append(expired, rec.Record)
	}
	s.mu.RUnlock()
	for _, r := range expired {
		_, err := s.Commit(ctx, Write{Key: r.Key, Value: s.opts.Restate(r.Value), Delete: true, Expect: r.Revision, Volatile: true, Author: expiry})
		if err != nil && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return nil
}
