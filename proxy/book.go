package proxy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A book says which rule is to stand at each door, and which does. Doors that two
// Services have are the older one's.
type book struct {
	doors   map[Door]*standing
	touched map[Door]struct{} // where what is to stand and what does may differ
}

type standing struct {
	is     *Rule   // what stands in the kernel; nil is nothing
	claims []claim // the oldest first
}

type claim struct {
	service types.NamespacedName
	created time.Time
	rule    *Rule
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
// rules at the doors of had. It returns the doors that it has now, and the conflicts that
// came about by it.
func (b *book) put(service types.NamespacedName, created time.Time, rules []Rule, had []Door) (has []Door, conflicts []conflict) {
	if len(rules) > 0 {
		has = make([]Door, len(rules))
	}
	for i := range rules {
		has[i] = rules[i].Door
		if c, ok := b.claim(service, created, &rules[i]); ok {
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

func (b *book) claim(service types.NamespacedName, created time.Time, rule *Rule) (conflict, bool) {
	s := b.doors[rule.Door]
	if s == nil {
		s = &standing{}
		b.doors[rule.Door] = s
	}
	i := slices.IndexFunc(s.claims, func(c claim) bool { return c.service == service })
	fresh := i < 0
	switch {
	case fresh:
		s.claims = append(s.claims, claim{service, created, rule})
	case s.claims[i].rule.equal(rule) && s.claims[i].created.Equal(created):
		return conflict{}, false
	default:
		s.claims[i] = claim{service, created, rule}
	}
	if len(s.claims) > 1 {
		slices.SortFunc(s.claims, func(a, b claim) int {
			return cmp.Or(a.created.Compare(b.created), strings.Compare(a.service.String(), b.service.String()))
		})
	}
	b.touched[rule.Door] = struct{}{}
	if fresh && len(s.claims) > 1 {
		c := conflict{door: rule.Door, holds: s.claims[0].service, loser: service}
		if c.holds == service {
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
	s.claims = slices.DeleteFunc(s.claims, func(c claim) bool { return c.service == service })
	b.touched[d] = struct{}{}
}

// wanted is what is to stand.
func (s *standing) wanted() *Rule {
	if len(s.claims) == 0 {
		return nil
	}
	return s.claims[0].rule
}

// changes returns what has to become different in the kernel.
func (b *book) changes() []Change {
	var changes []Change
	for d := range b.touched {
		s := b.doors[d]
		var c Change
		if s.is != nil {
			c.Was = *s.is
		}
		if w := s.wanted(); w != nil {
			c.Is = *w
		}
		if !c.Was.equal(&c.Is) {
			changes = append(changes, c)
		}
	}
	return changes
}

// all returns everything that is to stand.
func (b *book) all() []Rule {
	all := make([]Rule, 0, len(b.doors))
	for _, s := range b.doors {
		if w := s.wanted(); w != nil {
			all = append(all, *w)
		}
	}
	return all
}

// done notes that what is to stand stands.
func (b *book) done() {
	for d := range b.touched {
		s := b.doors[d]
		if s.is = s.wanted(); s.is == nil {
			delete(b.doors, d)
		}
	}
	if len(b.touched) > 1000 {
		b.touched = map[Door]struct{}{} // a map never shrinks
	}
	clear(b.touched)
}

// equal reports whether two rules say the same.
func (r *Rule) equal(o *Rule) bool {
	return r.Door == o.Door && r.Drop == o.Drop && r.Affinity == o.Affinity && r.Masquerade == o.Masquerade && r.Relayed == o.Relayed &&
		slices.Equal(r.Backends, o.Backends) && slices.Equal(r.Inside, o.Inside) && slices.Equal(r.Sources, o.Sources)
}
