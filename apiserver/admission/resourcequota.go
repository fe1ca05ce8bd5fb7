package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/sampan-io/sampan/internal/quotas"
	"github.com/sampan-io/sampan/store"
)

// ResourceQuota refuses writes after which a namespace would use more than a ResourceQuota there allows. It is the last
// validator, so that nothing is counted that another plug-in refuses.
//
// It keeps an account of each resource in each namespace where a quota counts the resource. An account has the stored
// objects as of a revision, and the charges of the writes of this server that are under way:
//
//	quota-Q1  A write is checked against the stored objects and all charges, and is charged, in one step. So any number
//	          of writes of this server at once stay within the quota together.
//	quota-Q2  The store makes a write only if no other server has charged the account since the revision of the account.
//	          Otherwise the account is brought up to date and the write checked again. So the writes of all servers stay
//	          within the quota together.
//	quota-Q3  Before each check the account is brought up to date with the changes of stored objects by all servers. A
//	          charge ends when its write is in the account, or was not made. Until then the account can have too much
//	          in it (an object that is being deleted), never too little.
//	quota-Q4  Accounts are in memory only, and are made from the stored objects when they are needed. After a restart
//	          there is nothing to repair.
//
// The status of the quotas is not read: it is for users, and a controller writes it. So a quota has an effect from the
// moment of its creation.
type ResourceQuota struct {
	reader Reader
	server string // names this server in charges

	mu       sync.Mutex
	accounts map[accountKey]*account // guarded by mu
	sweep    int                     // guarded by mu; with so many accounts the unused ones are looked for
}

type accountKey struct {
	namespace string
	resource  schema.GroupResource
}

// An account is the use of the objects of one resource in one namespace, and their use when the writes under way
// have been made.
type account struct {
	mu      sync.Mutex
	ledger  *quotas.Ledger       // guarded by mu; nil: not made yet
	at      store.Revision       // guarded by mu; of the objects in the ledger
	charges map[*charge]struct{} // guarded by mu
	closed  bool                 // guarded by mu; another one has taken its place
}

// A charge is the addition of a write under way to quotas. It is the [Recounter] of the write.
type charge struct {
	plugin  *ResourceQuota
	account *account
	rules   quotas.Resource

	// These are guarded by the mu of the account.
	uid     types.UID                         // of the object
	version string                            // of the object before the write; empty if it is created
	amounts map[types.UID]corev1.ResourceList // by quota
	made    bool                              // the write has ended, and can be read
}

// minSweep is the least number of accounts with which unused ones are looked for.
const minSweep = 64

// NewResourceQuota returns the plug-in.
func NewResourceQuota(r Reader) *ResourceQuota {
	return &ResourceQuota{reader: r, server: string(uuid.NewUUID()), accounts: map[accountKey]*account{}, sweep: minSweep}
}

// Name implements [Plugin].
func (*ResourceQuota) Name() string { return "ResourceQuota" }

// Validate implements [Validator].
func (p *ResourceQuota) Validate(ctx context.Context, a *Attributes) error {
	if a.Namespace == "" || !a.Kind.Namespaced || a.Kind.Answered() {
		return nil
	}
	if a.is("resourcequotas", "") && a.Operation == Delete && !a.DryRun {
		ctx, namespace := context.WithoutCancel(ctx), a.Namespace
		a.Done = append(a.Done, func(committed bool) {
			if committed {
				p.closeUnused(ctx, namespace)
			}
		})
	}
	if !checksUsage(a) {
		return nil
	}
	rules, ok := quotas.Of(a.Kind.GR())
	if !ok {
		return nil
	}
	all, err := p.quotas(ctx, a.Namespace)
	if err != nil || len(all) == 0 {
		return err
	}
	c := &charge{plugin: p, rules: rules}
	since, err := p.charge(ctx, a, c, all)
	if err != nil || c.account == nil || a.DryRun {
		return err
	}
	a.Charge = &Charge{Charge: store.Charge{Account: a.Kind.Prefix(a.Namespace), By: p.server, Since: since}, Recounter: c}
	a.Done = append(a.Done, c.settle)
	return nil
}

// hasUsage reports whether objects of the resource use more than their number.
func hasUsage(a *Attributes) bool {
	if a.Kind.Group != "" {
		return false
	}
	return a.Kind.Resource == "pods" || a.Kind.Resource == "services" || a.Kind.Resource == "persistentvolumeclaims"
}

// checksUsage reports whether a write is refused if it uses too much. Updates of a pod are not, unless they resize the
// pod or move it to another scope, because nothing else makes it use more.
func checksUsage(a *Attributes) bool {
	switch {
	case a.Operation == Create:
		return a.Subresource == ""
	case a.Operation != Update:
		return false
	case a.is("pods", ""):
		pod, ok := a.Object.(*corev1.Pod)
		old, had := a.Old.(*corev1.Pod)
		return ok && had && quotas.HasDeadline(pod) != quotas.HasDeadline(old)
	case a.is("pods", "resize"):
		return true
	}
	return hasUsage(a) && a.Subresource == ""
}

// A need is the addition of a write to a quota.
type need struct {
	quota  *corev1.ResourceQuota
	amount corev1.ResourceList
}

// charge checks a write against quotas, and charges it in c, which is not charged before. It returns the revision of
// the account. It charges nothing if no quota counts the write, and for a dry run.
func (p *ResourceQuota) charge(ctx context.Context, a *Attributes, c *charge, all []*corev1.ResourceQuota) (store.Revision, error) {
	now := time.Now()
	needs, err := needsOf(a, c.rules, all, now)
	if err != nil || len(needs) == 0 {
		return 0, err
	}
	acc := p.open(ctx, accountKey{a.Namespace, a.Kind.GR()})
	defer acc.mu.Unlock()
	if err := p.update(ctx, acc, a, c.rules, now); err != nil {
		return 0, err
	}
	acc.ledger.Keep(all)
	amounts := map[types.UID]corev1.ResourceList{}
	for _, n := range needs {
		if err := within(n, acc.used(n.quota, now)); err != nil {
			return 0, refuse(a, "%w", err)
		}
		amounts[n.quota.UID] = n.amount
	}
	if a.DryRun {
		return 0, nil
	}
	c.account, c.amounts, c.uid = acc, amounts, a.Object.GetUID()
	if a.Old != nil {
		c.uid, c.version = a.Old.GetUID(), a.Old.GetResourceVersion()
	}
	acc.charges[c] = struct{}{}
	return acc.at, nil
}

// Recount implements [Recounter]: it checks the write as if for the first time.
func (c *charge) Recount(ctx context.Context, a *Attributes) (store.Revision, error) {
	c.settle(false)
	all, err := c.plugin.quotas(ctx, a.Namespace)
	if err != nil {
		return 0, err
	}
	since, err := c.plugin.charge(ctx, a, c, all)
	if since == 0 && err == nil {
		// The quotas are gone, so nothing is counted any more.
		changes, err := c.plugin.reader.Changes(ctx, a.Kind.GVR(), a.Namespace, 0)
		return changes.Now, err
	}
	return since, err
}

// settle ends the charge of a write that was not made, and lets the next look at the changes end that of another.
func (c *charge) settle(committed bool) {
	c.account.mu.Lock()
	defer c.account.mu.Unlock()
	if committed {
		c.made = true
		return
	}
	delete(c.account.charges, c)
}

// quotas returns the quotas of a namespace, by name.
func (p *ResourceQuota) quotas(ctx context.Context, namespace string) ([]*corev1.ResourceQuota, error) {
	objs, err := p.reader.List(ctx, core("resourcequotas"), namespace, nil)
	if err != nil || len(objs) == 0 {
		return nil, err
	}
	var all []*corev1.ResourceQuota
	for _, o := range objs {
		if q, ok := o.(*corev1.ResourceQuota); ok {
			all = append(all, q)
		}
	}
	slices.SortFunc(all, func(a, b *corev1.ResourceQuota) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// needsOf returns what a write adds to each of the quotas, without those to which it adds nothing, or why a quota does
// not allow such an object.
func needsOf(a *Attributes, rules quotas.Resource, all []*corev1.ResourceQuota, now time.Time) ([]need, error) {
	var counting []*corev1.ResourceQuota
	for _, q := range all {
		names := rules.Names(q.Spec.Hard)
		if len(names) == 0 || !rules.Includes(&q.Spec, a.Object) {
			continue
		}
		if err := rules.Missing(names, a.Object); err != nil {
			return nil, refuse(a, "failed quota: %s: %w", q.Name, err)
		}
		counting = append(counting, q)
	}
	if len(counting) == 0 {
		return nil, nil
	}
	usage := rules.Usage(a.Object, now)
	var negative []string
	for name, q := range usage {
		if q.Sign() < 0 {
			negative = append(negative, string(name))
		}
	}
	if len(negative) > 0 {
		slices.Sort(negative)
		return nil, refuse(a, "quota usage is negative for resource(s): %s", strings.Join(negative, ","))
	}
	var before corev1.ResourceList
	if a.Old != nil {
		before = rules.Usage(a.Old, now)
	}
	var needs []need
	for _, q := range counting {
		n := need{q, corev1.ResourceList{}}
		was := before
		if a.Old != nil && !rules.Includes(&q.Spec, a.Old) {
			was = nil
		}
		for _, name := range rules.Names(q.Spec.Hard) {
			more := usage[name].DeepCopy()
			more.Sub(was[name])
			if more.Sign() > 0 {
				n.amount[name] = more
			}
		}
		if len(n.amount) > 0 {
			needs = append(needs, n)
		}
	}
	return needs, nil
}

// within returns an error if a quota of which this is used already does not allow what is needed.
func within(n need, used corev1.ResourceList) error {
	var exceeded []corev1.ResourceName
	for name, more := range n.amount {
		sum := used[name].DeepCopy()
		sum.Add(more)
		if sum.Cmp(n.quota.Spec.Hard[name]) > 0 {
			exceeded = append(exceeded, name)
		}
	}
	if len(exceeded) == 0 {
		return nil
	}
	slices.Sort(exceeded)
	return fmt.Errorf("exceeded quota: %s, requested: %s, used: %s, limited: %s",
		n.quota.Name, amounts(exceeded, n.amount), amounts(exceeded, used), amounts(exceeded, n.quota.Spec.Hard))
}

// amounts formats a part of a list: cpu=1,pods=2.
func amounts(names []corev1.ResourceName, list corev1.ResourceList) string {
	var parts []string
	for _, name := range names {
		q := list[name]
		parts = append(parts, string(name)+"="+q.String())
	}
	return strings.Join(parts, ",")
}

// open returns the account of a resource, locked.
func (p *ResourceQuota) open(ctx context.Context, key accountKey) *account {
	for {
		p.mu.Lock()
		acc, crowded := p.accounts[key], false
		if acc == nil {
			crowded = len(p.accounts) >= p.sweep
			acc = &account{charges: map[*charge]struct{}{}}
			p.accounts[key] = acc
		}
		p.mu.Unlock()
		if crowded {
			p.closeAllUnused(ctx, key.namespace)
		}
		acc.mu.Lock()
		if !acc.closed {
			return acc
		}
		acc.mu.Unlock()
	}
}

// update brings an account up to date with the changes of stored objects, and ends the charges of the writes that are
// among them. The caller holds the account's mu.
func (p *ResourceQuota) update(ctx context.Context, acc *account, a *Attributes, rules quotas.Resource, now time.Time) error {
	changes, err := p.reader.Changes(ctx, a.Kind.GVR(), a.Namespace, acc.at)
	if err != nil {
		return err
	}
	if changes.Whole {
		acc.ledger = quotas.NewLedger(rules)
	}
	for _, change := range changes.List {
		if change.Gone {
			acc.ledger.Remove(change.Object.GetName())
		} else {
			acc.ledger.Set(change.Object, now)
		}
	}
	acc.at = changes.Now
	if len(acc.charges) == 0 {
		return nil
	}
	seen := map[types.UID]string{} // the newest version
	for _, change := range changes.List {
		seen[change.Object.GetUID()] = change.Object.GetResourceVersion()
	}
	maps.DeleteFunc(acc.charges, func(c *charge, _ struct{}) bool {
		version, found := seen[c.uid]
		return c.made || found && version != c.version
	})
	return nil
}

// used returns the use and charges of a quota. The caller holds mu.
func (acc *account) used(q *corev1.ResourceQuota, now time.Time) corev1.ResourceList {
	used := acc.ledger.Used(q, now)
	for c := range acc.charges {
		for name, more := range c.amounts[q.UID] {
			if sum, ok := used[name]; ok {
				sum.Add(more)
				used[name] = sum
			}
		}
	}
	return used
}

// closeUnused forgets the accounts of a namespace that has no quota any more, unless a write is charged there.
func (p *ResourceQuota) closeUnused(ctx context.Context, namespace string) {
	if all, err := p.quotas(ctx, namespace); err != nil || len(all) > 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.accounts, func(key accountKey, acc *account) bool { return key.namespace == namespace && acc.close() })
}

// closeAllUnused is closeUnused for all namespaces but one: quotas may have been deleted with their namespace, or by
// another server.
func (p *ResourceQuota) closeAllUnused(ctx context.Context, but string) {
	p.mu.Lock()
	namespaces := map[string]bool{}
	for key := range p.accounts {
		namespaces[key.namespace] = key.namespace != but
	}
	p.mu.Unlock()
	for namespace, look := range namespaces {
		if look {
			p.closeUnused(ctx, namespace)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep = max(minSweep, 2*len(p.accounts))
}

// close closes an account without charges of writes under way. It reports whether it has.
func (acc *account) close() bool {
	acc.mu.Lock()
	defer acc.mu.Unlock()
	for c := range acc.charges {
		if !c.made {
			return false
		}
	}
	acc.closed = true
	return true
}
