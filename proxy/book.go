package proxy

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A book says which rule is to stand at each door, and which does. Doors that two
// Services have are the older one's. It is written by one goroutine, and others may ask whose a
// door is.
type book struct {
	mu      sync.Mutex
	doors   map[Door]*standing // guarded by mu
	touched map[Door]struct{}  // guarded by mu; where what is to stand and what does may differ
}

type standing struct {
	is     *claim   // what stands in the kernel; nil is nothing
	claims []*claim // the oldest first
}

// A claim is a rule that a Service wants. It is never changed.
type claim struct {
	service types.NamespacedName
	created time.Time
	port    string // its name
	rule    *Rule
}

// same reports whether two claims are those of one and the same port of a Service.
func (c *claim) same(o *claim) bool {
	return o != nil && c.service == o.service && c.port == o.port && c.created.Equal(o.created)
}

func newBook() *book {
	return &book{doors: map[Door]*standing{}, touched: map[Door]struct{}{}}
}

// A conflict is a door that a Service wants, and another one has.
type conflict struct {
	door  Door
	loser types.NamespacedName
	holds types.NamespacedName
}

// put makes rules, of which no two have the same door, those of a Service that had
// rules at the doors of had; ports are the names of those that they are for. It returns the doors that
// it has now, and the conflicts that came about by it.
func (b *book) put(service types.NamespacedName, created time.Time, rules []Rule, ports []string, had []Door) (has []Door, conflicts []conflict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(rules) > 0 {
		has = make([]Door, len(rules))
	}
	for i := range rules {
		has[i] = rules[i].Door
		if c, ok := b.claim(&claim{service, created, ports[i], &rules[i]}); ok {
			conflicts = append(conflicts, c)
		}
	}
	for _, d := range had {
		if !slices.Contains(has, d) {
			b.withdraw(service, d)
		}
	}
	return has, conflicts
}

// claim and withdraw are called with mu held.
func (b *book) claim(is *claim) (conflict, bool) {
	s := b.doors[is.rule.Door]
	if s == nil {
		s = &standing{}
		b.doors[is.rule.Door] = s
	}
	i := slices.IndexFunc(s.claims, func(c *claim) bool { return c.service == is.service })
	fresh := i < 0
	switch {
	case fresh:
		s.claims = append(s.claims, is)
	case s.claims[i].rule.equal(is.rule) && s.claims[i].same(is):
		return conflict{}, false
	default:
		s.claims[i] = is
	}
	if len(s.claims) > 1 {
		slices.SortFunc(s.claims, func(a, b *claim) int {
			return cmp.Or(a.created.Compare(b.created), strings.Compare(a.service.String(), b.service.String()))
		})
	}
	b.touched[is.rule.Door] = struct{}{}
	if fresh && len(s.claims) > 1 {
		c := conflict{door: is.rule.Door, holds: s.claims[0].service, loser: is.service}
		if c.holds == is.service {
			c.loser = s.claims[1].service
		}
		return c, true
	}
	return conflict{}, false
}

func (b *book) withdraw(service types.NamespacedName, d Door) {
	s := b.doors[d]
	if s == nil {
		return
	}
	s.claims = slices.DeleteFunc(s.claims, func(c *claim) bool { return c.service == service })
	b.touched[d] = struct{}{}
}

// wanted is what is to stand.
func (s *standing) wanted() *claim {
	if len(s.claims) == 0 {
		return nil
	}
	return s.claims[0]
}

// owner returns what stands at a door, or nil if nothing does.
func (b *book) owner(d Door) *claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.doors[d]; s != nil {
		return s.is
	}
	return nil
}

// size returns how many doors there are.
func (b *book) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.doors)
}

// changes returns what has to become different in the kernel.
func (b *book) changes() []Change {
	b.mu.Lock()
	defer b.mu.Unlock()
	var changes []Change
	for d := range b.touched {
		s := b.doors[d]
		var c Change
		if s.is != nil {
			c.Was = *s.is.rule
		}
		if w := s.wanted(); w != nil {
			c.Is = *w.rule
		}
		if !c.Was.equal(&c.Is) {
			changes = append(changes, c)
		}
	}
	return changes
}

// all returns everything that is to stand.
func (b *book) all() []Rule {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]Rule, 0, len(b.doors))
	for _, s := range b.doors {
		if w := s.wanted(); w != nil {
			all = append(all, *w.rule)
		}
	}
	return all
}

// done notes that what is to stand stands. It returns the doors that went or changed hands, with whose
// they were.
func (b *book) done() (left map[Door]*claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for d := range b.touched {
		s := b.doors[d]
		was := s.is
		if s.is = s.wanted(); s.is == nil {
			delete(b.doors, d)
		}
		if was != nil && !was.same(s.is) {
			if left == nil {
				left = map[Door]*claim{}
			}
			left[d] = was
		}
	}
	if len(b.touched) > 1000 {
		b.touched = map[Door]struct{}{} // a map never shrinks
	}
	clear(b.touched)
	return left
}

// equal reports whether two rules say the same.
func (r *Rule) equal(o *Rule) bool {
	return r.Door == o.Door && r.Drop == o.Drop && r.Affinity == o.Affinity && r.Masquerade == o.Masquerade && r.Relayed == o.Relayed &&
		slices.Equal(r.Backends, o.Backends) && slices.Equal(r.Inside, o.Inside) && slices.Equal(r.Sources, o.Sources)
}
