package nft

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sampan-io/sampan/internal/sorting"
	"github.com/sampan-io/sampan/proxy"
)

// A content is the known content of the table, except the rules themselves.
type content struct {
	classes map[class]user     // classes that have chains, even those without frontends
	idle    []class            // classes without frontends, least recently used first; not the static ones
	numbers map[uint32]bool    // of the classes
	sources map[string]int     // number of classes that use a set of sources
	pods    map[netip.Addr]int // number of rules that lead to an address that may be a pod of this node
}

// A user is a class in use.
type user struct {
	number    uint32
	frontends int
}

func nothing() content {
	return content{classes: map[class]user{}, numbers: map[uint32]bool{}, sources: map[string]int{}, pods: map[netip.Addr]int{}}
}

// A delta is a list of changes translated to the table.
type delta struct {
	before      content
	remove, add map[string]*list // elements, by set

	frontends map[class]int             // change of the number of frontends of a class
	numbers   map[class]uint32          // of the classes in frontends
	taken     map[uint32]bool           // numbers of new classes
	sources   map[string][]netip.Prefix // networks in the sets of sources of these classes
	pods      map[netip.Addr]int        // change of the number of rules that lead to an address

	created, removed []class
	idle             []class
	users            map[string]int // change of the number of classes that use a set of sources
}

// plan translates changes for a table with a content. It modifies neither.
func plan(before content, changes []proxy.Change, o Options) (*delta, error) {
	d := &delta{
		before: before,
		remove: map[string]*list{}, add: map[string]*list{},
		frontends: map[class]int{}, numbers: map[class]uint32{}, taken: map[uint32]bool{},
		sources: map[string][]netip.Prefix{}, pods: map[netip.Addr]int{}, users: map[string]int{},
	}
	if len(before.classes) == 0 {
		d.startStatic(o)
	}
	for i := range changes {
		was, is := &changes[i].Was, &changes[i].Is
		if err := cmp.Or(check(was), check(is)); err != nil {
			return nil, err
		}
		old, now := classOf(was), classOf(is)
		if was.Port != 0 {
			d.count(was, old, -1, o)
		}
		if is.Port != 0 {
			d.count(is, now, +1, o)
		}
		if was.Port == 0 {
			now.elements(is, d.numbers[now], func(set string, e element) { listOf(d.add, set).add(e) })
		} else {
			d.difference(was, old, is, now)
		}
	}
	d.countClasses(o)
	d.countPods()
	return d, nil
}

func listOf(lists map[string]*list, set string) *list {
	l := lists[set]
	if l == nil {
		l = &list{}
		lists[set] = l
	}
	return l
}

// count adds n to what one rule has in common with others.
func (d *delta) count(r *proxy.Rule, c class, n int, o Options) {
	d.frontends[c] += n
	if c.sources != "" {
		d.sources[c.sources] = r.Sources
	}
	d.enumerate(c)
	if r.Relayed {
		return
	}
	all := !c.family().has(o.Pods)
	for _, backends := range [][]netip.AddrPort{r.Backends, r.Inside} {
		for _, a := range backends {
			if all || slices.ContainsFunc(o.Pods, func(p netip.Prefix) bool { return p.Contains(a.Addr()) }) {
				d.pods[a.Addr()] += n
			}
		}
	}
}

// enumerate gives a class a number if it has none.
func (d *delta) enumerate(c class) {
	if _, known := d.numbers[c]; known {
		return
	}
	u, used := d.before.classes[c]
	if !used {
		u.number = c.number()
		for d.before.numbers[u.number] || d.taken[u.number] {
			u.number += leaveMask + 1
		}
		d.taken[u.number] = true
	}
	d.numbers[c] = u.number
}

// startStatic adds the classes that exist independently of rules.
func (d *delta) startStatic(o Options) {
	for _, c := range staticClasses(o) {
		d.frontends[c] += 0
		d.enumerate(c)
	}
}

// difference finds the elements that change with a rule; is may be the zero Rule.
func (d *delta) difference(was *proxy.Rule, old class, is *proxy.Rule, now class) {
	type place struct{ set, key string }
	there := map[place][]byte{}
	old.elements(was, d.numbers[old], func(set string, e element) { there[place{set, string(e.key)}] = e.data })
	if is.Port != 0 {
		now.elements(is, d.numbers[now], func(set string, e element) {
			p := place{set, string(e.key)}
			data, found := there[p]
			if found {
				delete(there, p)
				if bytes.Equal(data, e.data) {
					return
				}
				listOf(d.remove, set).add(element{key: e.key})
			}
			listOf(d.add, set).add(e)
		})
	}
	for p := range there {
		listOf(d.remove, p.set).add(element{key: []byte(p.key)})
	}
}

// maxIdle is the number of classes without frontends that are kept. Making a class's chain again
// takes time, because the kernel then checks each element of the maps that it refers to, and
// Services that scale up and down come back to the same few classes.
const maxIdle = 64

// countClasses finds the classes, and sets of sources, that become used or unused.
func (d *delta) countClasses(o Options) {
	d.idle = slices.Clone(d.before.idle)
	for _, c := range sorting.Sorted(maps.Keys(d.frontends), class.compare) {
		u, known := d.before.classes[c]
		after := u.frontends + d.frontends[c]
		switch {
		case !known && (after > 0 || c.isStatic(o)):
			d.created = append(d.created, c)
			listOf(d.add, classes).add(element{key: number(d.numbers[c]), verdict: goTo(c.chain())})
			if c.sources != "" {
				d.users[c.sources]++
			}
		case c.isStatic(o):
		case u.frontends == 0 && after > 0:
			d.idle = slices.DeleteFunc(d.idle, func(i class) bool { return i == c })
		case u.frontends > 0 && after == 0:
			d.idle = append(d.idle, c)
		}
	}
	for len(d.idle) > maxIdle {
		c := d.idle[0]
		d.idle, d.removed = d.idle[1:], append(d.removed, c)
		listOf(d.remove, classes).add(element{key: number(d.before.classes[c].number)})
		if c.sources != "" {
			d.users[c.sources]--
		}
	}
}

// countPods finds the addresses that become, or no longer are, backends of a pod that may reach
// itself.
func (d *delta) countPods() {
	for a, n := range d.pods {
		before := d.before.pods[a]
		e := element{key: append(a.AsSlice(), a.AsSlice()...)}
		switch {
		case before == 0 && n > 0:
			listOf(d.add, familyOf(a).hairpin()).add(e)
		case before > 0 && before+n == 0:
			listOf(d.remove, familyOf(a).hairpin()).add(e)
		}
	}
}

// write appends the changes to a transaction.
func (d *delta) write(b *batch, o Options) {
	for name, n := range d.users {
		if d.before.sources[name] == 0 && n > 0 {
			b.addSources(name, d.sources[name])
		}
	}
	for _, c := range d.created {
		b.addClass(c, c.family().has(o.Pods))
	}
	for _, set := range slices.Sorted(maps.Keys(d.remove)) {
		b.elements(set, true, d.remove[set])
	}
	for _, set := range slices.Sorted(maps.Keys(d.add)) {
		b.elements(set, false, d.add[set])
	}
	for _, c := range d.removed {
		for _, name := range c.chains() {
			b.deleteChain(name)
		}
	}
	for name, n := range d.users {
		if before := d.before.sources[name]; before > 0 && before+n == 0 {
			b.deleteSet(name)
		}
	}
}

// commit returns the content after the changes, which replaces the one before.
func (d *delta) commit() content {
	c := d.before
	for class, n := range d.frontends {
		number := d.numbers[class]
		c.classes[class], c.numbers[number] = user{number, c.classes[class].frontends + n}, true
	}
	for _, class := range d.removed {
		delete(c.numbers, c.classes[class].number)
		delete(c.classes, class)
	}
	c.idle = d.idle
	addCounts(c.sources, d.users)
	addCounts(c.pods, d.pods)
	return c
}

// addCounts adds counts to others, and deletes zeros.
func addCounts[K comparable](to, more map[K]int) {
	for k, n := range more {
		if to[k] += n; to[k] == 0 {
			delete(to, k)
		}
	}
}

// check returns an error if a rule is invalid; the zero Rule is valid.
func check(r *proxy.Rule) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("nft: the rule for %s port %d of %s: %s", r.Protocol, r.Port, r.Address, fmt.Sprintf(format, args...))
	}
	switch {
	case r.Port == 0 && !r.Address.IsValid() && r.Backends == nil:
		return nil
	case r.Port == 0:
		return wrong("Port is 0, want 1 to 65535")
	case !r.Address.IsValid() || r.Address.Is4In6() || r.Address.Zone() != "":
		return wrong("Address is %s, want an IPv4 or IPv6 address", r.Address)
	case protocolNumbers[r.Protocol] == 0:
		return wrong("Protocol is %q, want TCP, UDP or SCTP", r.Protocol)
	case r.Affinity < 0:
		return wrong("Affinity is %s, want >= 0", r.Affinity)
	case r.Masquerade < proxy.MasqueradeNobody || r.Masquerade > proxy.MasqueradeEverybody:
		return wrong("Masquerade is %d, want one of the constants of package proxy", r.Masquerade)
	case len(r.Backends) > insideSlots || len(r.Inside) > insideSlots:
		return wrong("more than %d Backends", insideSlots)
	}
	for _, backends := range [][]netip.AddrPort{r.Backends, r.Inside} {
		for _, a := range backends {
			if a.Port() == 0 || a.Addr().Is4In6() || a.Addr().Zone() != "" || a.Addr().BitLen() != r.Address.BitLen() {
				return wrong("backend %s, want an address of the same family and a port", a)
			}
		}
	}
	for _, p := range r.Sources {
		if !p.IsValid() || p.Addr().Is4In6() {
			return wrong("source %s, want an IPv4 or IPv6 network", p)
		}
	}
	return nil
}
