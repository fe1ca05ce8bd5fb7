package proxy

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A ruleTable holds, for each frontend, the rule that is wanted and the one that the kernel has. A
// frontend that several Services claim is the oldest Service's. One goroutine writes it; others may
// call owner and size.
type ruleTable struct {
	mu        sync.Mutex
	frontends map[Frontend]*entry   // guarded by mu
	touched   map[Frontend]struct{} // guarded by mu; frontends whose wanted rule may differ from the kernel's
}

type entry struct {
	is     *claim   // the kernel's state, or nil
	claims []*claim // oldest first; the first is wanted
}

// A claim is a rule that a Service wants. It is immutable.
type claim struct {
	service types.NamespacedName
	created time.Time
	port    string // its name
	rule    *Rule
}

// same reports whether two claims are for the same port of the same Service.
func (c *claim) same(o *claim) bool {
	return o != nil && c.service == o.service && c.port == o.port && c.created.Equal(o.created)
}

func newRuleTable() *ruleTable {
	return &ruleTable{frontends: map[Frontend]*entry{}, touched: map[Frontend]struct{}{}}
}

// A conflict is a frontend that a Service claims while another one has it.
type conflict struct {
	frontend Frontend
	loser    types.NamespacedName
	holds    types.NamespacedName
}

// put replaces the claims of a Service: had are the frontends that it claimed before, rules are its
// new rules, no two with the same frontend, and ports the names of their ports. It returns the
// frontends of rules, and the new conflicts.
func (t *ruleTable) put(service types.NamespacedName, created time.Time, rules []Rule, ports []string, had []Frontend) (has []Frontend, conflicts []conflict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(rules) > 0 {
		has = make([]Frontend, len(rules))
	}
	for i := range rules {
		has[i] = rules[i].Frontend
		if c, ok := t.claim(&claim{service, created, ports[i], &rules[i]}); ok {
			conflicts = append(conflicts, c)
		}
	}
	for _, d := range had {
		if !slices.Contains(has, d) {
			t.withdraw(service, d)
		}
	}
	return has, conflicts
}

// claim and withdraw are called with mu held.
func (t *ruleTable) claim(is *claim) (conflict, bool) {
	s := t.frontends[is.rule.Frontend]
	if s == nil {
		s = &entry{}
		t.frontends[is.rule.Frontend] = s
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
	t.touched[is.rule.Frontend] = struct{}{}
	if fresh && len(s.claims) > 1 {
		c := conflict{frontend: is.rule.Frontend, holds: s.claims[0].service, loser: is.service}
		if c.holds == is.service {
			c.loser = s.claims[1].service
		}
		return c, true
	}
	return conflict{}, false
}

func (t *ruleTable) withdraw(service types.NamespacedName, d Frontend) {
	s := t.frontends[d]
	if s == nil {
		return
	}
	s.claims = slices.DeleteFunc(s.claims, func(c *claim) bool { return c.service == service })
	t.touched[d] = struct{}{}
}

// wanted returns the claim that should be in the kernel, or nil.
func (s *entry) wanted() *claim {
	if len(s.claims) == 0 {
		return nil
	}
	return s.claims[0]
}

// owner returns the claim that the kernel has at a frontend, or nil.
func (t *ruleTable) owner(d Frontend) *claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.frontends[d]; s != nil {
		return s.is
	}
	return nil
}

// size returns the number of frontends.
func (t *ruleTable) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.frontends)
}

// changes returns the differences between the kernel's rules and the wanted ones.
func (t *ruleTable) changes() []Change {
	t.mu.Lock()
	defer t.mu.Unlock()
	var changes []Change
	for d := range t.touched {
		s := t.frontends[d]
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

// all returns all wanted rules.
func (t *ruleTable) all() []Rule {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Rule, 0, len(t.frontends))
	for _, s := range t.frontends {
		if w := s.wanted(); w != nil {
			all = append(all, *w.rule)
		}
	}
	return all
}

// done records that the kernel now has the wanted rules. It returns the frontends that were removed
// or have another owner, with their former claims.
func (t *ruleTable) done() (left map[Frontend]*claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for d := range t.touched {
		s := t.frontends[d]
		was := s.is
		if s.is = s.wanted(); s.is == nil {
			delete(t.frontends, d)
		}
		if was != nil && !was.same(s.is) {
			if left == nil {
				left = map[Frontend]*claim{}
			}
			left[d] = was
		}
	}
	if len(t.touched) > 1000 {
		t.touched = map[Frontend]struct{}{} // a map never shrinks
	}
	clear(t.touched)
	return left
}

// equal reports whether two rules are the same.
func (r *Rule) equal(o *Rule) bool {
	return r.Frontend == o.Frontend && r.Drop == o.Drop && r.Affinity == o.Affinity && r.Masquerade == o.Masquerade && r.Relayed == o.Relayed &&
		slices.Equal(r.Backends, o.Backends) && slices.Equal(r.Inside, o.Inside) && slices.Equal(r.Sources, o.Sources)
}
