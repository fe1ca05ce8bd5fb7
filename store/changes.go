package store

import "fmt"

// Changes returns the events after a revision that match q, in order, and the newest revision: there are no others up
// to that one. It waits for nothing. A revision that is no longer in the history is ErrExpired, one that was never
// written ErrFuture.
func (i *Image) Changes(q Query, after Revision) ([]Event, Revision, error) {
	if err := q.check(); err != nil {
		return nil, 0, err
	}
	name := resourceOf(q.Prefix)
	var out []Event
	for next, begun := uint64(0), false; ; {
		i.mu.RLock()
		r, now, floor := i.resources[name], i.last, i.base
		if r != nil {
			floor = r.history.floor
		}
		switch {
		case after > now:
			i.mu.RUnlock()
			return nil, 0, fmt.Errorf("changes of %s after revision %d, newest is %d: %w", q.Prefix, after, now, ErrFuture)
		case !begun && (after < floor || i.taken.has(after)), begun && next < r.history.first:
			i.mu.RUnlock()
			return nil, 0, fmt.Errorf("changes of %s after revision %d, history begins after %d: %w", q.Prefix, after, floor, ErrExpired)
		case r == nil:
			i.mu.RUnlock()
			return nil, now, nil
		}
		h := &r.history
		if !begun {
			next, begun = h.after(after), true
		}
		// Writers are held off for a part of the events at a time.
		for end := min(next+glance, h.next); next < end; next++ {
			if e := h.at(next); q.matches(e) {
				out = append(out, e.public())
			}
		}
		done := next == h.next
		i.mu.RUnlock()
		if done {
			return out, now, nil
		}
	}
}
