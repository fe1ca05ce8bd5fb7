package store

import "strings"

// A collector gathers a listing, record by record in key order.
type collector struct {
	q       Query
	p       Page
	undone  []undone // what differed at p.At, by key
	out     Listing
	visited int
}

// An undone is a key and what stood there at an earlier revision.
type undone struct {
	key string
	rec *record // nil: nothing
}

// readerBudget is the number of records that a list looks at while it holds off
// the writers; a longer one works on a frozen copy. Copying costs writers a few
// kilobytes per list, so that short lists do without.
const readerBudget = 256

// collect lists in. It gives up and reports false after budget records; 0 means
// no bound.
func (c *collector) collect(in *set, budget int) bool {
	c.out.Records, c.out.More, c.out.Left, c.visited = nil, false, 0, 0
	rest := c.undone
	take := func(key string, rec *record) bool {
		for len(rest) > 0 && rest[0].key < key {
			c.add(rest[0].rec)
			rest = rest[1:]
		}
		if len(rest) > 0 && rest[0].key == key {
			rec, rest = rest[0].rec, rest[1:]
		}
		c.add(rec)
		c.visited++
		return budget == 0 || c.visited < budget
	}
	whole := !strings.HasSuffix(c.q.Prefix, "/")
	start := c.q.Prefix
	if c.p.After >= start {
		start = c.p.After + "\x00"
	}
	complete := true
	switch {
	case whole:
		if rec, ok := in.live.Get(c.q.Prefix); ok && c.p.After < c.q.Prefix {
			take(rec.Key, rec)
		}
	case c.q.Term != "":
		in.terms.Ascend(termed{term: c.q.Term, key: start}, func(t termed) bool {
			if t.term != c.q.Term || !strings.HasPrefix(t.key, c.q.Prefix) {
				return false
			}
			complete = take(t.key, t.rec)
			return complete
		})
	default:
		if budget == 0 && c.q.Prefix == resourceOf(c.q.Prefix)+"/" {
			size := in.live.Len()
			if c.p.Limit > 0 {
				size = min(size, c.p.Limit)
			}
			c.out.Records = make([]Record, 0, size)
		}
		in.live.Ascend(start, func(key string, rec *record) bool {
			if !strings.HasPrefix(key, c.q.Prefix) {
				return false
			}
			complete = take(key, rec)
			return complete
		})
	}
	for _, u := range rest {
		c.add(u.rec)
	}
	return complete
}

func (c *collector) add(rec *record) {
	switch {
	case rec == nil || c.q.Term != "" && !rec.has(c.q.Term):
	case c.p.Limit > 0 && len(c.out.Records) == c.p.Limit:
		c.out.More = true
		c.out.Left++
	default:
		c.out.Records = append(c.out.Records, rec.Record)
	}
}

// covers reports whether a key lies under the prefix.
func (q Query) covers(key string) bool {
	if strings.HasSuffix(q.Prefix, "/") {
		return strings.HasPrefix(key, q.Prefix)
	}
	return key == q.Prefix
}

// matches reports whether the record before or after the write is asked for.
func (q Query) matches(e *event) bool {
	return q.covers(e.rec.Key) && (q.Term == "" || e.rec.has(q.Term) || e.prev.has(q.Term))
}
