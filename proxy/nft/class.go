package nft

import (
	"encoding/binary"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/proxy"
)

// A class is what doors have in common that are dealt with by the same rules: there
// is a chain for each class that is in use. The doors themselves are elements of maps.
type class struct {
	v6       bool
	node     bool // the door is at every address of the node
	backends int
	split    bool          // clients inside have backends of their own,
	inside   int           // and that many
	affinity time.Duration // in whole seconds
	sources  string        // the name of a set, or "" for everybody
	drop     bool
}

// classOf returns the class of the door of a rule.
func classOf(r *proxy.Rule) class {
	c := class{
		v6:       r.Address.Is6(),
		node:     r.Address.IsUnspecified(),
		backends: len(r.Backends),
		split:    r.Inside != nil,
		inside:   len(r.Inside),
		drop:     r.Drop && len(r.Backends) == 0,
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

// chain is the name of the class's chain. That of clients inside has a suffix more.
func (c class) chain() string {
	parts := []string{"door" + c.family().digit}
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
	if c.sources != "" {
		parts = append(parts, c.sources)
	}
	return strings.Join(parts, "-")
}

func (c class) insideChain() string { return c.chain() + "-inside" }

// chains are those that belong to the class.
func (c class) chains() []string {
	if c.split {
		return []string{c.chain(), c.insideChain()}
	}
	return []string{c.chain()}
}

// number returns the number that a class has unless another one has it: the same in
// every process, so that a packet that is under way while one process takes over from another
// does not fall into the chain of another class.
func (c class) number() uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.chain()))
	return h.Sum32()
}

// insideSlots is the first slot of the backends for clients inside.
const insideSlots = 1 << 16

// addClass adds the chains of a class. A packet comes there by a verdict of the map
// of classes and never returns.
func (b *batch) addClass(c class, pods bool) {
	f, chain := c.family(), c.chain()
	for _, name := range c.chains() {
		b.addChain(name, nil)
		b.flushChain(name)
	}
	if c.sources != "" {
		b.addRule(chain, f.loadSource(regBackend), isNotIn(c.sources, regBackend), &expr.Verdict{Kind: expr.VerdictDrop})
	}
	if c.split {
		b.addRule(chain,
			&expr.Fib{Register: regBackend, FlagSADDR: true, ResultADDRTYPE: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: regBackend, Data: number(unix.RTN_LOCAL)},
			goTo(c.insideChain()))
		if pods {
			b.addRule(chain, f.loadSource(regBackend), isIn(f.pods(), regBackend), goTo(c.insideChain()))
		}
		b.addChoice(c, c.insideChain(), c.inside, true)
	}
	b.addChoice(c, chain, c.backends, false)
}

// addChoice adds rules that choose among backends, or refuse if there are none.
func (b *batch) addChoice(c class, chain string, backends int, inside bool) {
	if backends == 0 {
		if c.drop && !inside {
			b.addRule(chain, &expr.Verdict{Kind: expr.VerdictDrop})
		}
		b.addRule(chain, goTo(refuse))
		return
	}
	f := c.family()
	first := uint32(0)
	if inside {
		first = insideSlots
	}
	to := &expr.NAT{Type: expr.NATTypeDestNAT, Family: f.number, RegAddrMin: regBackend, RegProtoMin: regBackend + f.words()}
	remember := func(operation uint32) *expr.Dynset {
		return &expr.Dynset{
			SetName: f.affinity(), SrcRegKey: f.regDoor(), SrcRegData: regBackend, Operation: operation, Timeout: c.affinity,
		}
	}
	var slot expr.Any = &expr.Immediate{Register: f.regTail(), Data: number(first)}
	var any expr.Any = slot
	if backends > 1 {
		any = &expr.Numgen{Register: f.regTail(), Modulus: uint32(backends), Type: unix.NFT_NG_RANDOM, Offset: first}
	}
	door := func(more ...expr.Any) []expr.Any { return append(f.loadDoor(c.node), more...) }

	if c.affinity > 0 {
		b.addRule(chain, door(
			f.loadSource(f.regTail()),
			find(f.affinity(), f.regDoor(), regBackend),
			isIn(f.alive(inside), regBackend),
			remember(unix.NFT_DYNSET_OP_UPDATE),
			to,
		)...)
		// A backend that is gone is forgotten first: the kernel does not change the data of an element.
		b.addRule(chain, door(
			any,
			find(f.endpoints(), f.regDoor(), regBackend),
			f.loadSource(f.regTail()),
			remember(dynsetDelete),
			remember(unix.NFT_DYNSET_OP_UPDATE),
			to,
		)...)
	}
	b.addRule(chain, door(any, find(f.endpoints(), f.regDoor(), regBackend), to)...)
	if backends > 1 {
		// A packet that is under way during a change may look for a slot that was the last one.
		b.addRule(chain, door(slot, find(f.endpoints(), f.regDoor(), regBackend), to)...)
	}
	b.addRule(chain, goTo(refuse))
}

const dynsetDelete = 2 // NFT_DYNSET_OP_DELETE

// elements hands what stands in the maps for the door of a rule to add, in any order.
func (c class) elements(r *proxy.Rule, number uint32, add func(set string, e element)) {
	f := c.family()
	key := appendDoor(make([]byte, 0, 64), r.Door)
	key = key[:len(key):len(key)]
	value := binary.NativeEndian.AppendUint32(make([]byte, 0, 8), number)
	add(f.doors(), element{key: key, data: binary.NativeEndian.AppendUint32(value, uint32(r.Masquerade))})
	c.backendElements(r, func(set string, e element) { add(set, e) })
}

// backendElements are those of elements that are about backends.
func (c class) backendElements(r *proxy.Rule, add func(set string, e element)) {
	f := c.family()
	door := appendDoor(nil, r.Door)
	for _, inside := range []bool{false, true} {
		backends, slot := r.Backends, uint32(0)
		if inside {
			backends, slot = r.Inside, insideSlots
		}
		for i, a := range backends {
			backend := appendBackend(make([]byte, 0, 20+len(door)), a)
			add(f.endpoints(), element{
				key:  binary.NativeEndian.AppendUint32(append(make([]byte, 0, len(door)+4), door...), slot+uint32(i)),
				data: backend[:len(backend):len(backend)],
			})
			if c.affinity > 0 {
				add(f.alive(inside), element{key: append(backend, door...)})
			}
		}
	}
}
