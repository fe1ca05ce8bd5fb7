package nft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sampan-io/sampan/proxy"
	"github.com/sampan-io/sampan/proxy/conntrack"
)

// Options configures a [Kernel].
type Options struct {
	// Table is the name of the table; it is required.
	Table string

	// ServiceCIDRs are the networks of cluster IPs, of either family. Connections to addresses in
	// them without a rule are refused at once. [Kernel.SetServiceCIDRs] changes them later.
	ServiceCIDRs []netip.Prefix

	// Pods are the networks of the pods of this node or, where these are not known, of the cluster.
	// Clients there count as inside (see [proxy.Rule]) and not as foreign (see
	// [proxy.MasqueradeForeign]). Without networks of a family, only this node is inside, and no
	// client of that family is foreign.
	Pods []netip.Prefix

	// NodePortAddresses are the networks of the node's addresses that serve node ports. Without
	// networks of a family all its addresses do, except loopback.
	NodePortAddresses []netip.Prefix

	// Mark is the mark of packets of this node that rules ignore: those of a [proxy.Forwarder] to
	// backends, which must not be sent back to it. 0 is no mark.
	Mark uint32

	logResets bool // log connections that servers reset; not all kernels can
}

// A Kernel implements [proxy.Kernel] in the network namespace of the thread that calls it. It needs
// CAP_NET_ADMIN.
type Kernel struct {
	opts Options        // ServiceCIDRs are those of the table's rules
	nets []netip.Prefix // the ServiceCIDRs for the next Replace
	content
	tallies map[proxy.Frontend]*tally // used by the goroutine that calls Tallies or Forget
	begun   bool                      // the counters are ours
	wasOff  bool                      // see accountingWasOff

	drains conntrack.Drains
	watch  atomic.Pointer[watch] // nil while Watch does not run
}

// New returns a Kernel. It does not touch the kernel's rules yet.
func New(o Options) (*Kernel, error) {
	if o.Table == "" {
		return nil, errors.New("nft: Options.Table is empty")
	}
	for name, ps := range map[string][]netip.Prefix{"ServiceCIDRs": o.ServiceCIDRs, "Pods": o.Pods, "NodePortAddresses": o.NodePortAddresses} {
		for _, p := range ps {
			if !p.IsValid() || p.Addr().Is4In6() {
				return nil, fmt.Errorf("nft: Options.%s has %q, want networks of IPv4 or IPv6", name, p)
			}
		}
	}
	o.logResets = true
	return &Kernel{opts: o, nets: o.ServiceCIDRs, content: nothing(), tallies: map[proxy.Frontend]*tally{}}, nil
}

// SetServiceCIDRs replaces the ServiceCIDRs of the options from the next Replace on. It ignores
// networks that are neither IPv4 nor IPv6. It must not be called concurrently with Replace or
// Update.
func (k *Kernel) SetServiceCIDRs(nets []netip.Prefix) {
	k.nets = nil
	for _, n := range nets {
		if n.IsValid() && !n.Addr().Is4In6() {
			k.nets = append(k.nets, n)
		}
	}
}

// Replace implements [proxy.Kernel].
func (k *Kernel) Replace(ctx context.Context, all []proxy.Rule) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	changes := make([]proxy.Change, len(all))
	for i := range all {
		changes[i].Is = all[i]
	}
	o := k.opts
	o.ServiceCIDRs = k.nets
	d, err := plan(nothing(), changes, o)
	if err != nil {
		return err
	}
	left, elsewhere, err := leftovers(k.opts.Table)
	if err != nil {
		return err
	}
	// The chain accountingWasOff, which says that packets were not counted before, outlives the
	// table's contents; later Kernels copy it from the tables of earlier ones. Removing the table
	// removes it.
	wasOff := k.wasOff || conntrack.Accounting() == "0" || elsewhere || left.wasOff()
	if err := k.replace(left, wasOff, d, o); err != nil {
		return err
	}
	k.wasOff = wasOff
	if left != nil {
		k.drains.Replaced(time.Now())
	}
	k.content, k.begun, k.opts.ServiceCIDRs = d.commit(), true, k.nets
	conntrack.SetAccounting("1")
	return conntrack.ForgetUDP(changes)
}

// Update implements [proxy.Kernel].
func (k *Kernel) Update(ctx context.Context, changes []proxy.Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d, err := plan(k.content, changes, k.opts)
	if err != nil {
		return err
	}
	b := newBatch(k.opts.Table)
	d.write(b, k.opts)
	if err := k.send(b); err != nil {
		return err
	}
	k.content = d.commit()
	k.drains.Add(changes, time.Now())
	return conntrack.ForgetUDP(changes)
}

// Settle implements [proxy.Kernel].
func (k *Kernel) Settle(ctx context.Context) { k.drains.Settle(ctx) }

// Run implements [proxy.Kernel]: it deletes connections that their server has reset from conntrack.
func (k *Kernel) Run(ctx context.Context) error {
	return conntrack.ForgetResets(ctx, resetGroup(k.opts.Table))
}

// Close implements [proxy.Kernel].
func (k *Kernel) Close() error {
	k.content, k.wasOff = nothing(), false
	return Remove(k.opts.Table)
}

// replace replaces the contents of the table. If the kernel refuses, it may not be able to log, or
// there is a table of another version of this program: then the same transaction deletes that
// table, and with it the affinity of clients.
func (k *Kernel) replace(left *remains, wasOff bool, d *delta, o Options) (err error) {
	silent := o
	silent.logResets = false
	for _, try := range []struct {
		left *remains
		o    Options
	}{{left, o}, {left, silent}, {nil, o}, {nil, silent}} {
		refused := k.send(k.replacement(try.left, wasOff, d, try.o))
		if refused == nil {
			k.opts.logResets = try.o.logResets
			return nil
		}
		err = cmp.Or(err, refused)
	}
	return err
}

// replacement returns a transaction that replaces the contents of the table, which are left.
func (k *Kernel) replacement(left *remains, wasOff bool, d *delta, o Options) *batch {
	b := newBatch(k.opts.Table)
	b.addTable()
	if left == nil {
		b.deleteTable()
		b.addTable()
		left = &remains{}
	}
	if wasOff {
		b.addChain(accountingWasOff, nil)
	}
	wanted := map[string]bool{accountingWasOff: true}
	for name := range hooks {
		wanted[name] = true
	}
	for _, name := range plainChains() {
		wanted[name] = true
	}
	for c := range d.frontends {
		for _, name := range c.chains() {
			wanted[name] = true
		}
	}
	for name := range d.sources {
		wanted[name] = true
	}
	for _, s := range staticSets() {
		wanted[s.name] = true
	}
	for _, name := range left.chains {
		b.flushChain(name)
	}
	for _, name := range left.sets {
		affinity := name == v4.affinity() || name == v6.affinity()
		counts := name == v4.counts() || name == v6.counts()
		if !affinity && !(counts && k.begun) {
			b.flushSet(name)
		}
	}
	for _, name := range left.chains {
		if !wanted[name] {
			b.deleteChain(name)
		}
	}
	for _, name := range left.sets {
		if !wanted[name] {
			b.deleteSet(name)
		}
	}
	b.addStatic(o)
	d.write(b, o)
	return b
}

// accountingWasOff is a chain that records that the setting was off before the first Kernel; later
// Kernels copy it. It exists as long as the table: it survives every process but not a reboot.
const accountingWasOff = "nf_conntrack_acct-was-0"

// A remains is the contents of an existing table.
type remains struct{ chains, sets []string }

func (r *remains) wasOff() bool { return r != nil && slices.Contains(r.chains, accountingWasOff) }

// leftovers reads the contents of a table, or returns nil if there is none. Elsewhere is true if
// the table of another [Kernel] in this network namespace has the chain accountingWasOff.
func leftovers(table string) (r *remains, elsewhere bool, err error) {
	chains, err := dump(unix.NFT_MSG_GETCHAIN, unix.NFPROTO_INET)
	if err != nil {
		return nil, false, err
	}
	sets, err := dump(unix.NFT_MSG_GETSET, unix.NFPROTO_INET)
	if err != nil {
		return nil, false, err
	}
	for _, x := range chains {
		switch {
		case x.table == table && r == nil:
			r = &remains{chains: []string{x.name}}
		case x.table == table:
			r.chains = append(r.chains, x.name)
		case x.name == accountingWasOff:
			elsewhere = true
		}
	}
	if r == nil {
		return nil, elsewhere, nil
	}
	for _, x := range sets {
		if x.table == table {
			r.sets = append(r.sets, x.name)
		}
	}
	return r, elsewhere, nil
}

// Remove removes the table of that name; it is not an error if there is none.
func Remove(table string) error {
	b := newBatch(table)
	b.addTable() // so that deleting it can't fail because it does not exist
	b.deleteTable()
	left, elsewhere, err := leftovers(table)
	if err != nil {
		return err
	}
	if left.wasOff() && !elsewhere {
		conntrack.SetAccounting("0") // first, so that a process that is killed in between can be repeated
	}
	return send(b)
}
