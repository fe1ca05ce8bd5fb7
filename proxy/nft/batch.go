package nft

import (
	"encoding/binary"
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/internal/netfilter"
)

// A batch is one transaction of nftables that is being built: messages in the order in which the
// kernel executes them. They are encoded here and not by the library, because that takes dozens of
// allocations per element, and there are a hundred thousand elements.
type batch struct {
	table string
	buf   []byte   // whole messages, beginning with the header that opens the transaction
	what  []string // descriptions of messages, by sequence number
	err   error    // the first error while building
	sets  uint32   // number of added sets, each of which has a number
}

// An attribute has at most 64 KiB, and so has the list of elements in a message.
const maxElements = 60_000

func newBatch(table string) *batch {
	b := &batch{table: table}
	b.control(unix.NFNL_MSG_BATCH_BEGIN, "the transaction")
	return b
}

// control opens or closes the transaction.
func (b *batch) control(kind uint16, what string) {
	at := b.open(kind, unix.NLM_F_REQUEST, unix.AF_UNSPEC, what)
	binary.BigEndian.PutUint16(b.buf[at+unix.SizeofNlMsghdr+2:], unix.NFNL_SUBSYS_NFTABLES) // res_id
	b.close(at)
}

// message appends a message of nftables about an object in the table; body appends its attributes.
func (b *batch) message(kind, flags uint16, what string, body func()) {
	at := b.open(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_REQUEST|flags, unix.NFPROTO_INET, what)
	body()
	b.close(at)
}

func (b *batch) open(kind, flags uint16, family byte, what string) (at int) {
	at = len(b.buf)
	b.buf = append(b.buf, 0, 0, 0, 0)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, kind)
	b.buf = binary.NativeEndian.AppendUint16(b.buf, flags)
	b.buf = binary.NativeEndian.AppendUint32(b.buf, uint32(len(b.what)))
	b.buf = append(b.buf, 0, 0, 0, 0, family, 0, 0, 0)
	b.what = append(b.what, what)
	return at
}

func (b *batch) close(at int) { binary.NativeEndian.PutUint32(b.buf[at:], uint32(len(b.buf)-at)) }

// finish closes the transaction and requests an answer to its last message, so that there is one on
// success.
func (b *batch) finish() (messages []byte, last uint32, err error) {
	at := 0
	for next := at; next < len(b.buf); next += int(binary.NativeEndian.Uint32(b.buf[next:])) {
		at = next
	}
	flags := b.buf[at+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
	last = uint32(len(b.what) - 1)
	b.control(unix.NFNL_MSG_BATCH_END, "the end of the transaction")
	return b.buf, last, b.err
}

func (b *batch) name(kind uint16, name string) { b.buf = netfilter.AppendName(b.buf, kind, name) }

func (b *batch) number(kind uint16, value uint32) { b.buf = netfilter.AppendAttr32(b.buf, kind, value) }

func (b *batch) nest(kind uint16, body func([]byte) []byte) {
	b.buf = netfilter.AppendNest(b.buf, kind, body)
}

func (b *batch) addTable() {
	b.message(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, "table "+b.table, func() {
		b.name(unix.NFTA_TABLE_NAME, b.table)
	})
}

func (b *batch) deleteTable() {
	b.message(unix.NFT_MSG_DELTABLE, 0, "table "+b.table, func() {
		b.name(unix.NFTA_TABLE_NAME, b.table)
	})
}

// A hook is the place in the path of a packet where a chain begins. A chain of type nat sees only
// the first packet of a connection, one of type filter all packets.
type hook struct {
	kind     string
	number   uint32
	priority int32
}

// addChain adds a chain if it does not exist.
func (b *batch) addChain(name string, at *hook) {
	b.message(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, "chain "+name, func() {
		b.name(unix.NFTA_CHAIN_TABLE, b.table)
		b.name(unix.NFTA_CHAIN_NAME, name)
		if at == nil {
			return
		}
		b.nest(unix.NFTA_CHAIN_HOOK, func(to []byte) []byte {
			to = netfilter.AppendAttr32(to, unix.NFTA_HOOK_HOOKNUM, at.number)
			return netfilter.AppendAttr32(to, unix.NFTA_HOOK_PRIORITY, uint32(at.priority))
		})
		b.name(unix.NFTA_CHAIN_TYPE, at.kind)
	})
}

func (b *batch) deleteChain(name string) {
	b.message(unix.NFT_MSG_DELCHAIN, 0, "chain "+name, func() {
		b.name(unix.NFTA_CHAIN_TABLE, b.table)
		b.name(unix.NFTA_CHAIN_NAME, name)
	})
}

// flushChain deletes the rules of a chain.
func (b *batch) flushChain(name string) {
	b.message(unix.NFT_MSG_DELRULE, 0, "chain "+name, func() {
		b.name(unix.NFTA_RULE_TABLE, b.table)
		b.name(unix.NFTA_RULE_CHAIN, name)
	})
}

// addRule appends a rule to a chain.
func (b *batch) addRule(chain string, exprs ...expr.Any) {
	b.message(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, "a rule of chain "+chain, func() {
		b.name(unix.NFTA_RULE_TABLE, b.table)
		b.name(unix.NFTA_RULE_CHAIN, chain)
		b.nest(unix.NFTA_RULE_EXPRESSIONS, func(to []byte) []byte {
			for _, e := range exprs {
				data, err := marshal(e)
				if err != nil && b.err == nil {
					b.err = fmt.Errorf("nftables: a rule of chain %s: %w", chain, err)
				}
				to = netfilter.AppendAttr(to, unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, data...)
			}
			return to
		})
	})
}

// marshal encodes an expression like the library, which omits the direction of keys that it does
// not know.
func marshal(e expr.Any) ([]byte, error) {
	ct, ok := e.(*expr.Ct)
	if !ok || ct.Key != v4.originalAddress && ct.Key != v6.originalAddress {
		return expr.Marshal(unix.NFPROTO_INET, e)
	}
	return netfilter.AppendNest(netfilter.AppendName(nil, unix.NFTA_EXPR_NAME, "ct"), unix.NFTA_EXPR_DATA, func(to []byte) []byte {
		to = netfilter.AppendAttr32(to, unix.NFTA_CT_DREG, ct.Register)
		to = netfilter.AppendAttr32(to, unix.NFTA_CT_KEY, uint32(ct.Key))
		return netfilter.AppendAttr(to, unix.NFTA_CT_DIRECTION, byte(ct.Direction))
	}), nil
}

// addSet adds a set or map if it does not exist.
func (b *batch) addSet(s set) {
	b.sets++
	b.message(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, "set "+s.name, func() {
		b.name(unix.NFTA_SET_TABLE, b.table)
		b.name(unix.NFTA_SET_NAME, s.name)
		b.number(unix.NFTA_SET_FLAGS, s.flags)
		b.number(unix.NFTA_SET_KEY_TYPE, s.key.number)
		b.number(unix.NFTA_SET_KEY_LEN, s.key.bytes)
		if s.flags&unix.NFT_SET_MAP != 0 {
			b.number(unix.NFTA_SET_DATA_TYPE, s.data.number)
			b.number(unix.NFTA_SET_DATA_LEN, s.data.bytes)
		}
		b.number(unix.NFTA_SET_ID, b.sets)
		if s.size != 0 {
			b.nest(unix.NFTA_SET_DESC, func(to []byte) []byte { return netfilter.AppendAttr32(to, unix.NFTA_SET_DESC_SIZE, s.size) })
		}
	})
}

func (b *batch) deleteSet(name string) {
	b.message(unix.NFT_MSG_DELSET, 0, "set "+name, func() {
		b.name(unix.NFTA_SET_TABLE, b.table)
		b.name(unix.NFTA_SET_NAME, name)
	})
}

// flushSet deletes the elements of a set.
func (b *batch) flushSet(name string) {
	b.message(unix.NFT_MSG_DELSETELEM, 0, "set "+name, func() {
		b.name(unix.NFTA_SET_ELEM_LIST_TABLE, b.table)
		b.name(unix.NFTA_SET_ELEM_LIST_SET, name)
	})
}

// elements appends messages that add elements to a set or delete them, in chunks.
func (b *batch) elements(set string, remove bool, l *list) {
	if l == nil {
		return
	}
	kind, flags, what := uint16(unix.NFT_MSG_NEWSETELEM), uint16(unix.NLM_F_CREATE|unix.NLM_F_EXCL), "adding to set "+set
	if remove {
		kind, flags, what = unix.NFT_MSG_DELSETELEM, 0, "deleting from set "+set
	}
	from := 0
	for _, end := range append(l.cuts, len(l.buf)) {
		b.message(kind, flags, what, func() {
			b.name(unix.NFTA_SET_ELEM_LIST_TABLE, b.table)
			b.name(unix.NFTA_SET_ELEM_LIST_SET, set)
			b.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(to []byte) []byte { return append(to, l.buf[from:end]...) })
		})
		from = end
	}
}

// A list is elements of a set, in the kernel's encoding.
type list struct {
	buf  []byte
	cuts []int // offsets where a message ends and the next one begins
	cut  int   // the last of these
}

// An element of a set or, with data or a verdict, of a map.
type element struct {
	key, data   []byte
	verdict     *expr.Verdict
	intervalEnd bool // the key is the first one after an interval
}

func (l *list) add(e element) {
	at := len(l.buf)
	l.buf = netfilter.AppendNest(l.buf, unix.NFTA_LIST_ELEM, func(to []byte) []byte {
		to = netfilter.AppendNest(to, unix.NFTA_SET_ELEM_KEY, func(to []byte) []byte { return netfilter.AppendAttr(to, unix.NFTA_DATA_VALUE, e.key...) })
		switch {
		case e.intervalEnd:
			to = netfilter.AppendAttr32(to, unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
		case e.verdict != nil:
			to = netfilter.AppendNest(to, unix.NFTA_SET_ELEM_DATA, func(to []byte) []byte {
				return netfilter.AppendNest(to, unix.NFTA_DATA_VERDICT, func(to []byte) []byte {
					to = netfilter.AppendAttr32(to, unix.NFTA_VERDICT_CODE, uint32(e.verdict.Kind))
					if e.verdict.Chain != "" {
						to = netfilter.AppendName(to, unix.NFTA_VERDICT_CHAIN, e.verdict.Chain)
					}
					return to
				})
			})
		case e.data != nil:
			to = netfilter.AppendNest(to, unix.NFTA_SET_ELEM_DATA, func(to []byte) []byte { return netfilter.AppendAttr(to, unix.NFTA_DATA_VALUE, e.data...) })
		}
		return to
	})
	if len(l.buf)-l.cut > maxElements {
		l.cuts, l.cut = append(l.cuts, at), at
	}
}
