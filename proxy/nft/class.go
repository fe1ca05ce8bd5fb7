package nft

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/proxy"
)

// A class is the set of properties that frontends with the same rules share: there is one chain for
// each class that is in use. The frontends themselves are elements of maps.
type class struct {
	v6       bool
	node     bool // node port: the frontend is at every address of the node
	backends int
	split    bool          // clients inside have separate backends,
	inside   int           // and this is their number
	affinity time.Duration // in whole seconds
	sources  string        // name of a set of networks, or "" for all clients
	drop     bool
	leaving  leave
}

// leave selects the clients whose source address is replaced.
type leave string

const (
	leaveAll       leave = ""      // no client
	leaveLocal     leave = "local" // this node: what clients inside get where clients outside keep their addresses
	leaveForeign   leave = "foreign"
	leaveEverybody leave = "masquerade"
)

func leaveOf(r *proxy.Rule) leave {
	switch {
	case r.Masquerade == proxy.MasqueradeEverybody:
		return leaveEverybody
	case r.Masquerade == proxy.MasqueradeForeign:
		return leaveForeign
	case r.Inside != nil && !r.Relayed:
		return leaveLocal
	default:
		return leaveAll
	}
}

// leaveMask is the part of a class number that holds its leave.
const leaveMask = 3

func (l leave) number() uint32 {
	return uint32(slices.Index([]leave{leaveAll, leaveEverybody, leaveForeign, leaveLocal}, l))
}

// classOf returns the class of a rule's frontend.
func classOf(r *proxy.Rule) class {
	c := class{
		v6:       r.Address.Is6(),
		node:     r.Address.IsUnspecified(),
		backends: len(r.Backends),
		split:    r.Inside != nil,
		inside:   len(r.Inside),
		drop:     r.Drop && len(r.Backends) == 0,
	}
	if c.backends+c.inside > 0 {
		c.leaving = leaveOf(r)
	}
	if c.backends+c.inside > 0 && r.Affinity > 0 {
		c.affinity = max(r.Affinity.Truncate(time.Second), time.Second)
	}
	if len(r.Sources) > 0 {
		c.sources = sourcesName(familyOf(r.Address), r.Sources)
	}
	return c
}

func (c class) family() *family {
	if c.v6 {
		return v6
	}
	return v4
}

// chain returns the name of the class's chain. The chain for clients inside has a suffix.
func (c class) chain() string {
	parts := []string{"frontend" + c.family().digit}
	if c.node {
		parts = append(parts, "node")
	}
	parts = append(parts, strconv.Itoa(c.backends))
	if c.split {
		parts = append(parts, "inside", strconv.Itoa(c.inside))
	}
	if c.affinity > 0 {
		parts = append(parts, "affinity", strconv.Itoa(int(c.affinity/time.Second)))
	}
	if c.drop {
		parts = append(parts, "drop")
	}
	if c.leaving != leaveAll {
		parts = append(parts, string(c.leaving))
	}
	if c.sources != "" {
		parts = append(parts, c.sources)
	}
	return strings.Join(parts, "-")
}

func (c class) insideChain() string { return c.chain() + "-inside" }
func (c class) deniedChain() string { return c.chain() + "-denied" }

// chains returns the names of the class's chains.
func (c class) chains() []string {
	all := []string{c.chain()}
	if c.split {
		all = append(all, c.insideChain())
	}
	if c.sources != "" {
		all = append(all, c.deniedChain())
	}
	return all
}

func (c class) compare(d class) int { return strings.Compare(c.chain(), d.chain()) }

// staticBackends is the largest number of backends for which the classes of plain cluster IPs and
// node ports always exist, so that most changes need no new class.
const staticBackends = 8

func (c class) isStatic(o Options) bool {
	plain := class{v6: c.v6, node: c.node, backends: c.backends, leaving: leaveForeign}
	if c.node {
		plain.leaving = leaveEverybody
	}
	return c == plain && c.backends >= 1 && c.backends <= staticBackends && c.family().has(o.ServiceCIDRs)
}

func staticClasses(o Options) (all []class) {
	for _, v6 := range []bool{false, true} {
		for n := range staticBackends {
			for _, c := range []class{
				{v6: v6, backends: n + 1, leaving: leaveForeign},
				{v6: v6, node: true, backends: n + 1, leaving: leaveEverybody},
			} {
				if c.isStatic(o) {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// number returns the number that a class has unless another one has it. It is the same in every
// process, so that packets in flight while one process takes over from another do not reach the
// chain of another class.
func (c class) number() uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.chain()))
	return h.Sum32()&^leaveMask | c.leaving.number()
}

// insideSlots is the first slot of the backends for clients inside.
const insideSlots = 1 << 16

// addClass adds the chains of a class. A packet gets there by a verdict of the map of classes and
// never returns.
func (b *batch) addClass(c class, pods bool) {
	f, chain := c.family(), c.chain()
	for _, name := range c.chains() {
		b.addChain(name, nil)
		b.flushChain(name)
	}
	if c.sources != "" {
		b.addRule(chain, f.loadSource(regBackend), isNotIn(c.sources, regBackend), goTo(c.deniedChain()))
		b.addRule(c.deniedChain(), append(f.loadFrontend(c.node), f.count(countDenied)...)...)
		b.addRule(c.deniedChain(), &expr.Verdict{Kind: expr.VerdictDrop})
	}
	if c.split {
		b.addRule(chain, append(isLocal(&expr.Fib{FlagSADDR: true}), goTo(c.insideChain()))...)
		if pods {
			b.addRule(chain, f.loadSource(regBackend), isIn(f.pods(), regBackend), goTo(c.insideChain()))
		}
		b.addChoice(c, c.insideChain(), c.inside, true)
	}
	b.addChoice(c, chain, c.backends, false)
}

// addChoice adds rules that choose among backends, or refuse if there are none.
func (b *batch) addChoice(c class, chain string, backends int, inside bool) {
	f := c.family()
	frontend := func(more ...expr.Any) []expr.Any { return append(f.loadFrontend(c.node), more...) }
	if backends == 0 {
		b.addRule(chain, frontend(f.count(countRefused)...)...)
		if c.drop && !inside {
			b.addRule(chain, &expr.Verdict{Kind: expr.VerdictDrop})
		}
		b.addRule(chain, goTo(refuse))
		return
	}
	first := uint32(0)
	if inside {
		first = insideSlots
	}
	to := &expr.NAT{Type: expr.NATTypeDestNAT, Family: f.number, RegAddrMin: regBackend, RegProtoMin: regBackend + f.words()}
	remember := func(operation uint32) *expr.Dynset {
		return &expr.Dynset{
			SetName: f.affinity(), SrcRegKey: f.regFrontend(), SrcRegData: regName, Operation: operation, Timeout: c.affinity,
		}
	}
	var slot expr.Any = &expr.Immediate{Register: f.regTail(), Data: number(first)}
	chosen := slot
	if backends > 1 {
		chosen = &expr.Numgen{Register: f.regTail(), Modulus: uint32(backends), Type: unix.NFT_NG_RANDOM, Offset: first}
	}
	counted := f.count(countFirst, countIn, countOut)
	if c.affinity > 0 {
		b.addRule(chain, frontend(counted...)...)
		counted = nil
		// The affinity map holds the name of the client's backend. If that is no longer a backend
		// the rule ends there.
		known := frontend(f.loadSource(f.regTail()))
		known = append(known, findNumber(f.affinity(), f.regFrontend(), f.regTail(), regName)...)
		b.addRule(chain, append(known,
			find(f.endpoints(), f.regFrontend(), regBackend),
			f.loadSource(f.regTail()),
			remember(unix.NFT_DYNSET_OP_UPDATE),
			to,
		)...)
		// Delete the old name first: an update does not change the data of an element.
		unknown := frontend(chosen)
		unknown = append(unknown, findNumber(f.slots(), f.regFrontend(), f.regTail(), regName)...)
		b.addRule(chain, append(unknown,
			find(f.endpoints(), f.regFrontend(), regBackend),
			f.loadSource(f.regTail()),
			remember(dynsetDelete),
			remember(unix.NFT_DYNSET_OP_UPDATE),
			to,
		)...)
	}
	choose := func(counted []expr.Any, slot expr.Any) {
		b.addRule(chain, frontend(append(counted, slot, find(f.endpoints(), f.regFrontend(), regBackend), to)...)...)
	}
	choose(counted, chosen)
	// A packet in flight during a change may look up a slot that was the last one. It is not
	// counted, because the counters may be full.
	choose(nil, slot)
	b.addRule(chain, goTo(refuse))
}

const dynsetDelete = 2 // NFT_DYNSET_OP_DELETE

// nameOf returns the name of a backend among the backends of a frontend. It does not depend on the
// others and is never the number of a slot. If two backends have the same name, clients of one go
// to the other.
func nameOf(backend netip.AddrPort, inside bool) uint32 {
	h := fnv.New32a()
	_, _ = h.Write(appendBackend(nil, backend))
	const names, namesInside = 1 << 30, 1 << 31
	if inside {
		return h.Sum32()&(names-1) | namesInside
	}
	return h.Sum32()&(names-1) | names
}

// elements calls add with each element of the maps for a rule whose frontend is of the class.
func (c class) elements(r *proxy.Rule, class uint32, add func(set string, e element)) {
	f := c.family()
	frontend := appendFrontend(make([]byte, 0, 24), r.Frontend)
	key := func(n uint32) []byte {
		return binary.NativeEndian.AppendUint32(append(make([]byte, 0, len(frontend)+4), frontend...), n)
	}
	add(f.frontends(), element{key: frontend, data: number(class)})
	for _, inside := range []bool{false, true} {
		backends, slot := r.Backends, uint32(0)
		if inside {
			backends, slot = r.Inside, insideSlots
		}
		var names map[uint32]bool
		if c.affinity > 0 {
			names = map[uint32]bool{}
		}
		for i, a := range backends {
			backend := appendBackend(make([]byte, 0, 20), a)
			add(f.endpoints(), element{key: key(slot + uint32(i)), data: backend})
			if c.affinity == 0 {
				continue
			}
			name := nameOf(a, inside)
			add(f.slots(), element{key: key(slot + uint32(i)), data: number(name)})
			if !names[name] {
				names[name] = true
				add(f.endpoints(), element{key: key(name), data: backend})
			}
		}
	}
}
