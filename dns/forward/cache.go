package forward

import (
	"container/list"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// The longest times for which answers are cached, whatever their TTL; the same as CoreDNS's.
const (
	longest         = time.Hour
	longestNegative = 30 * time.Minute
)

// overhead is the approximate size of an entry beside its message and name, in bytes.
const overhead = 256

// A cache keeps answers in wire format.
type cache struct {
	room int

	mu      sync.Mutex
	entries map[Question]*list.Element // guarded by mu; of *entry
	order   list.List                  // guarded by mu; most recently used first
	bytes   int                        // guarded by mu
	denials int                        // guarded by mu; number of negative entries
}

type entry struct {
	q       Question
	wire    []byte // nil if there is only err
	err     error
	denial  bool // there is no record, or no answer
	kept    time.Time
	expires time.Time
}

func (e *entry) size() int { return len(e.wire) + len(e.q.Name) + overhead }

func newCache(room int) *cache { return &cache{room: room, entries: map[Question]*list.Element{}} }

// get returns the entry of a question if it is valid at a time.
func (c *cache) get(q Question, now time.Time) (*dns.Msg, error, bool) {
	c.mu.Lock()
	at := c.entries[q]
	if at == nil {
		c.mu.Unlock()
		return nil, nil, false
	}
	e := at.Value.(*entry)
	if !now.Before(e.expires) {
		c.drop(at)
		c.mu.Unlock()
		return nil, nil, false
	}
	c.order.MoveToFront(at)
	c.mu.Unlock()
	if e.err != nil {
		return nil, e.err, true
	}
	m := new(dns.Msg)
	if err := m.Unpack(e.wire); err != nil {
		return nil, nil, false // unreachable: it was packed by put
	}
	age := uint32(now.Sub(e.kept) / time.Second)
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, r := range section {
			if h := r.Header(); h.Rrtype != dns.TypeOPT {
				h.Ttl -= min(h.Ttl, age)
			}
		}
	}
	return m, nil, true
}

// put keeps an answer, or an error, for a time.
func (c *cache) put(q Question, m *dns.Msg, err error, ttl time.Duration, now time.Time) {
	if ttl <= 0 {
		return
	}
	e := &entry{q: q, err: err, kept: now, expires: now.Add(ttl), denial: denial(m)}
	if m != nil {
		clean := *m
		clean.Compress = true
		clean.Extra = nil // addresses of other names were not asked for
		var failed error
		if e.wire, failed = clean.Pack(); failed != nil {
			return
		}
	}
	if e.size() > c.room {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.entries[q]; old != nil {
		c.drop(old)
	}
	c.entries[q] = c.order.PushFront(e)
	c.bytes += e.size()
	if e.denial {
		c.denials++
	}
	for c.bytes > c.room {
		c.drop(c.order.Back())
	}
}

// drop removes an entry. mu is held.
func (c *cache) drop(at *list.Element) {
	e := c.order.Remove(at).(*entry)
	delete(c.entries, e.q)
	c.bytes -= e.size()
	if e.denial {
		c.denials--
	}
}

// stat returns the number of entries, of negative ones among them, and their bytes.
func (c *cache) stat() (entries, denials, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries), c.denials, c.bytes
}

// denial reports whether an answer, which may be nil, is negative.
func denial(m *dns.Msg) bool {
	return m == nil || m.Rcode != dns.RcodeSuccess || len(m.Answer) == 0
}

// lifetime returns for how long an answer is valid; 0 is not at all.
func lifetime(m *dns.Msg) time.Duration {
	switch {
	case m.Truncated:
		return 0
	case !helpful(m):
		return failureTTL
	}
	ttl := uint32(longest / time.Second)
	negative := m.Rcode == dns.RcodeNameError || !answered(m)
	if negative {
		// RFC 2308, 5: the SOA's MINIMUM, limited by its own TTL.
		known := false
		for _, r := range m.Ns {
			if soa, ok := r.(*dns.SOA); ok {
				ttl, known = min(soa.Hdr.Ttl, soa.Minttl, uint32(longestNegative/time.Second)), true
			}
		}
		if !known {
			return 0
		}
	}
	for _, r := range m.Answer {
		ttl = min(ttl, r.Header().Ttl)
	}
	return time.Duration(ttl) * time.Second
}

// answered reports whether there is a record of the type in question, and not only aliases.
func answered(m *dns.Msg) bool {
	for _, r := range m.Answer {
		if t := r.Header().Rrtype; t == m.Question[0].Qtype || m.Question[0].Qtype == dns.TypeANY {
			return true
		}
	}
	return false
}
