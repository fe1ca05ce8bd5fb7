package rbac

import (
	"context"
	"errors"
	"math"
	"math/bits"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// A rule grants each of its verbs on each of its resources in each of its groups with each of its names: a product. A role of
// 50 kB has one of a thousand million, so none of the functions below makes it. They compare lists instead: values of a list
// that the same held rules have are alike, and one of them stands for all. Real rules have a few classes of such values.

// The dimensions of a rule about resources; one about paths has the first two.
const (
	dimVerb = iota
	dimGroup
	dimResource
	dimName
	dimensions

	dimPath = dimGroup
)

// A coverage has held rules by their values. It is immutable once it is made.
type coverage struct {
	rules     int
	resources [dimensions]dimension
	paths     [2]dimension
	size      int // values in the rules
}

// A dimension has the numbers of rules by the values of one of their lists.
type dimension struct {
	of      map[string][]int32 // sorted
	all     []int32            // the rules that have every value; sorted
	lengths []int              // of the beginnings of paths that end with a star; sorted
	starred map[string][]int32 // by these beginnings
	scope   int                // one of the constants; -1 for paths
}

// newCoverage returns the index of held rules.
func newCoverage(held []rbacv1.PolicyRule) *coverage {
	c := &coverage{rules: len(held)}
	for i := range c.resources {
		c.resources[i] = dimension{of: map[string][]int32{}, scope: i}
	}
	for i := range c.paths {
		c.paths[i] = dimension{of: map[string][]int32{}, starred: map[string][]int32{}, scope: i}
	}
	c.paths[dimPath].scope = -1
	for i := range held {
		r, n := &held[i], int32(i) // there are not as many rules
		c.size += len(r.Verbs) + len(r.APIGroups) + len(r.Resources) + len(r.ResourceNames) + len(r.NonResourceURLs)
		if len(r.Resources) > 0 {
			c.resources[dimVerb].add(n, r.Verbs)
			c.resources[dimGroup].add(n, r.APIGroups)
			c.resources[dimResource].add(n, r.Resources)
			c.resources[dimName].add(n, r.ResourceNames)
		}
		if len(r.NonResourceURLs) > 0 {
			c.paths[dimVerb].add(n, r.Verbs)
			c.paths[dimPath].add(n, r.NonResourceURLs)
		}
	}
	return c
}

// add adds the values of rule n. A star is every value, and so is a rule without names.
func (d *dimension) add(n int32, values []string) {
	put := func(m map[string][]int32, value string) {
		if list := m[value]; len(list) == 0 || list[len(list)-1] != n {
			m[value] = append(list, n)
		}
	}
	if d.scope == dimName {
		if len(values) == 0 {
			d.all = append(d.all, n)
		}
		for _, v := range values {
			put(d.of, v)
		}
		return
	}
	for _, v := range values {
		switch beginning := strings.TrimRight(v, "*"); {
		case v == "*", d.scope < 0 && beginning == "" && v != "":
			if len(d.all) == 0 || d.all[len(d.all)-1] != n {
				d.all = append(d.all, n)
			}
		case d.scope < 0 && len(beginning) < len(v):
			if at, known := slices.BinarySearch(d.lengths, len(beginning)); !known {
				d.lengths = slices.Insert(d.lengths, at, len(beginning))
			}
			put(d.starred, beginning)
		default:
			put(d.of, v)
		}
	}
}

// lists returns the rules that have a value otherwise than by a star, in sorted lists.
func (d *dimension) lists(value string, s *search) [][]int32 {
	var lists [][]int32
	put := func(list []int32) {
		if len(list) > 0 {
			lists = append(lists, list)
		}
	}
	put(d.of[value])
	if d.scope == dimResource {
		if _, subresource, ok := strings.Cut(value, "/"); ok && value != "*/"+subresource {
			put(d.of["*/"+subresource])
		}
	}
	for _, n := range d.lengths {
		if n > len(value) {
			break
		}
		s.spend(1 + n/64)
		put(d.starred[value[:n]])
	}
	return lists
}

// errCosts says that rules cannot be compared at a cost that is in proportion to their size. No rules that people write have
// as many classes of values.
var errCosts = errors.New("the rules overlap the held ones in too many ways to be compared: grant them in several smaller roles")

// A search looks for a value in each list of a rule such that no held rule has all of them.
type search struct {
	ctx    context.Context
	left   int // steps
	all    []*dimension
	order  []int      // of the dimensions: the most selective comes first
	values [][]string // by dimension, without duplicates; of names none if the rule has none
	full   map[int32]uint8
	mark   []uint32 // by rule: the round in which it was active
	round  uint32
	found  []string // by dimension: values that no held rule has together
	err    error
}

// Bounds on the steps of a comparison. A step takes some nanoseconds.
const (
	stepsAtLeast = 1 << 20
	stepsOfValue = 16
)

// newSearch returns a search for rules of so many values.
func (c *coverage) newSearch(ctx context.Context, size int) *search {
	return &search{ctx: ctx, left: stepsAtLeast + stepsOfValue*(c.size+size), mark: make([]uint32, c.rules)}
}

func sizeOf(rules []rbacv1.PolicyRule) (size int) {
	for i := range rules {
		r := &rules[i]
		size += len(r.Verbs) + len(r.APIGroups) + len(r.Resources) + len(r.ResourceNames) + len(r.NonResourceURLs)
	}
	return size
}

// spend counts steps. It reports false once the search has ended without a result.
func (s *search) spend(steps int) bool {
	before := s.left
	s.left -= steps
	switch {
	case s.err != nil:
	case s.left < 0:
		s.err = errCosts
	case before>>16 != s.left>>16 && s.ctx.Err() != nil:
		s.err = context.Cause(s.ctx)
	}
	return s.err == nil
}

// resource returns a rule of one verb, group, resource and name that r grants and no held rule covers, or nil.
func (c *coverage) resource(s *search, r *rbacv1.PolicyRule) *rbacv1.PolicyRule {
	if len(r.Resources) == 0 || len(r.Verbs) == 0 || len(r.APIGroups) == 0 {
		return nil
	}
	all := make([]*dimension, dimensions)
	for i := range c.resources {
		all[i] = &c.resources[i]
	}
	found := s.look(all, [][]string{distinct(r.Verbs), distinct(r.APIGroups), distinct(r.Resources), distinct(r.ResourceNames)})
	if found == nil {
		return nil
	}
	one := &rbacv1.PolicyRule{Verbs: found[:1:1], APIGroups: found[1:2:2], Resources: found[2:3:3]}
	if len(r.ResourceNames) > 0 {
		one.ResourceNames = found[3:4:4]
	}
	return one
}

// path is resource for the paths of r.
func (c *coverage) path(s *search, r *rbacv1.PolicyRule) *rbacv1.PolicyRule {
	if len(r.NonResourceURLs) == 0 || len(r.Verbs) == 0 {
		return nil
	}
	found := s.look([]*dimension{&c.paths[dimVerb], &c.paths[dimPath]}, [][]string{distinct(r.Verbs), distinct(r.NonResourceURLs)})
	if found == nil {
		return nil
	}
	return &rbacv1.PolicyRule{Verbs: found[:1:1], NonResourceURLs: found[1:2:2]}
}

// distinct returns the values of a list once each, in their order.
func distinct(values []string) []string {
	if len(values) < 2 {
		return values
	}
	seen := make(map[string]struct{}, len(values))
	out := make([]string, 0, len(values))
	for _, v := range values {
		if _, again := seen[v]; !again {
			seen[v] = struct{}{}
			out = append(out, v)
		}
	}
	return out
}

// look returns a value of each dimension such that no held rule has all of them, or nil if there are none or the search ended.
func (s *search) look(all []*dimension, values [][]string) []string {
	s.all, s.values, s.full, s.found = all, values, map[int32]uint8{}, make([]string, len(all))
	weights := make([]int, len(all))
	s.order = s.order[:0]
	for i := range all {
		s.order = append(s.order, i)
		weights[i] = s.weight(i)
	}
	slices.SortStableFunc(s.order, func(a, b int) int { return weights[a] - weights[b] })
	first := s.order[0]
	if !s.spend(weights[first]) {
		return nil
	}
	s.round++
	var active []int32
	s.each(first, func(list []int32) {
		for _, n := range list {
			if s.mark[n] != s.round {
				s.mark[n] = s.round
				active = append(active, n)
			}
		}
	})
	slices.Sort(active)
	if s.uncovered(0, active) && s.err == nil {
		return s.found
	}
	return nil
}

// each calls f with the lists of rules that have any of the values in a dimension.
func (s *search) each(at int, f func([]int32)) {
	d := s.all[at]
	f(d.all)
	for _, v := range s.values[at] {
		for _, list := range d.lists(v, s) {
			f(list)
		}
	}
}

// weight returns about how many rules have any of the values in a dimension.
func (s *search) weight(at int) (n int) {
	s.each(at, func(list []int32) { n += 1 + len(list) })
	s.spend(len(s.values[at]))
	return n
}

// contains reports whether rule n has a value.
func (s *search) contains(d *dimension, n int32, value string) bool {
	for _, list := range d.lists(value, s) {
		s.spend(bits.Len(uint(len(list))))
		if _, ok := slices.BinarySearch(list, n); ok {
			return true
		}
	}
	return false
}

func (d *dimension) hasAll(n int32) bool {
	_, ok := slices.BinarySearch(d.all, n)
	return ok
}

// fullIn returns the dimensions, as bits, in which rule n has all values that are looked for.
func (s *search) fullIn(n int32) uint8 {
	if full, ok := s.full[n]; ok {
		return full
	}
	var full uint8
	for at, d := range s.all {
		s.spend(1)
		if d.hasAll(n) || len(s.values[at]) > 0 && !slices.ContainsFunc(s.values[at], func(v string) bool { return !s.contains(d, n, v) }) {
			full |= 1 << at
		}
	}
	s.full[n] = full
	return full
}

// uncovered reports whether there are values of the dimensions from the level on such that no active rule has all of them.
func (s *search) uncovered(level int, active []int32) bool {
	if !s.spend(1 + len(active)) {
		return false
	}
	if len(active) == 0 {
		for _, at := range s.order[level:] {
			if len(s.values[at]) > 0 {
				s.found[at] = s.values[at][0]
			}
		}
		return true
	}
	if level == len(s.order) {
		return false
	}
	var rest uint8
	for _, at := range s.order[level:] {
		rest |= 1 << at
	}
	if slices.ContainsFunc(active, func(n int32) bool { return s.fullIn(n)&rest == rest }) {
		return false
	}
	at := s.order[level]
	d := s.all[at]
	var common []int32
	for _, n := range active {
		if d.hasAll(n) {
			common = append(common, n)
		}
	}
	if len(s.values[at]) == 0 { // without a name: a rule with names does not cover it
		return s.uncovered(level+1, common)
	}
	seen := map[string]struct{}{}
	for _, v := range s.values[at] {
		having := s.having(d, v, active)
		key := signature(having)
		if _, again := seen[key]; again {
			continue
		}
		seen[key] = struct{}{}
		s.found[at] = v
		if s.uncovered(level+1, merge(common, having)) {
			return true
		}
		if s.err != nil {
			return false
		}
	}
	return false
}

// having returns which active rules have a value otherwise than by a star. It walks the shorter list.
func (s *search) having(d *dimension, value string, active []int32) []int32 {
	var out []int32
	lists := d.lists(value, s)
	for _, list := range lists {
		a, b := active, list
		if len(a) > len(b) {
			a, b = b, a
		}
		s.spend(1 + len(a)*bits.Len(uint(len(b))))
		for _, n := range a {
			if _, ok := slices.BinarySearch(b, n); ok {
				out = append(out, n)
			}
		}
	}
	if len(lists) > 1 {
		slices.Sort(out)
		out = slices.Compact(out)
	}
	return out
}

// signature returns a text that is the same for equal lists.
func signature(list []int32) string {
	b := make([]byte, 0, 4*len(list))
	for _, n := range list {
		b = append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	return string(b)
}

// merge returns the rules of two sorted lists.
func merge(a, b []int32) []int32 {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// covers reports whether one held rule grants all that a rule of one verb on one resource or path does.
func (c *coverage) covers(s *search, one *rbacv1.PolicyRule) bool {
	s.left = math.MaxInt // the work is that of one value of each list
	if len(one.NonResourceURLs) > 0 {
		return c.path(s, one) == nil
	}
	return c.resource(s, one) == nil
}
