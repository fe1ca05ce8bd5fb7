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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/quotas"
)

// ResourceQuota refuses writes after which a namespace would use more than a ResourceQuota there allows. It is the last
// validator, so that nothing is counted that another plug-in refuses.
//
// It keeps an account of each resource in each namespace where a quota counts the resource. An account has the stored
// objects and the charges of the writes under way:
//
//	quota-Q1  A write is checked against the stored objects and all charges, and is charged, in one step. So any number
//	          of writes at once stay within the quota together.
//	quota-Q2  A charge ends when the object of its write is in the account, or the write was not made.
//	quota-Q3  After every write that can change what an object uses, the account reads the object again. A stored
//	          object is the newest one, so that accounts are right whatever the order in which writes end. Until then
//	          the account can have too much in it (an object that was deleted), never too little.
//	quota-Q4  Accounts are in memory only, and are made from the stored objects when they are needed. After a restart
//	          there is nothing to repair.
//
// The status of the quotas is not read: it is for users, and a controller writes it. So a quota has an effect from the
// moment of its creation.
type ResourceQuota struct {
	reader Reader

	mu       sync.Mutex
	accounts map[accountKey]*account // guarded by mu
}

type accountKey struct {
	namespace string
	resource  schema.GroupResource
}

// An account is the use of the objects of one resource in one namespace, and their use when the writes under way
// have been made.
type account struct {
	mu      sync.Mutex
	ledger  *quotas.Ledger       // guarded by mu
	charges map[*charge]struct{} // guarded by mu
}

// A charge is the addition of a write under way to quotas.
type charge struct {
	uid     types.UID                         // of the object
	version string                            // of the object before the write; empty if it is created
	amounts map[types.UID]corev1.ResourceList // by quota
}

// NewResourceQuota returns the plug-in.
func NewResourceQuota(r Reader) *ResourceQuota {
	return &ResourceQuota{reader: r, accounts: map[accountKey]*account{}}
}

// Name implements [Plugin].
func (*ResourceQuota) Name() string { return "ResourceQuota" }

// Validate implements [Validator].
func (p *ResourceQuota) Validate(ctx context.Context, a *Attributes) error {
	if a.Namespace == "" || !a.Kind.Namespaced || a.Kind.Answered() || !changesUsage(a) {
		return nil
	}
	rules, ok := quotas.Of(a.Kind.GR())
	if !ok {
		return nil
	}
	var charged *account
	var c *charge
	if checksUsage(a) {
		var err error
		if charged, c, err = p.charge(ctx, a, rules); err != nil {
			return err
		}
	}
	if !a.DryRun {
		ctx := context.WithoutCancel(ctx)
		name, kind, namespace := a.Name, a.Kind, a.Namespace
		a.Done = append(a.Done, func(committed bool) {
			p.settle(ctx, accountKey{namespace, kind.GR()}, kind, name, charged, c, committed)
		})
	}
	return nil
}

// changesUsage reports whether a write can change what its object uses of a quota.
func changesUsage(a *Attributes) bool {
	switch a.Operation {
	case Create, Delete:
		return a.Subresource == ""
	case Update:
		return hasUsage(a) || a.Old != nil && a.Old.GetDeletionTimestamp() != nil // then it can be the last one
	case Connect:
	}
	return false
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
		return true
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

// charge checks a write, and charges it. It returns no charge if no quota counts the write, and for a dry run.
func (p *ResourceQuota) charge(ctx context.Context, a *Attributes, rules quotas.Resource) (*account, *charge, error) {
	all, err := p.quotas(ctx, a.Namespace)
	if err != nil || len(all) == 0 {
		return nil, nil, err
	}
	now := time.Now()
	needs, err := needsOf(a, rules, all, now)
	if err != nil || len(needs) == 0 {
		return nil, nil, err
	}
	acc, err := p.open(ctx, accountKey{a.Namespace, a.Kind.GR()}, a.Kind, rules, now)
	if err != nil {
		return nil, nil, err
	}
	defer acc.mu.Unlock()
	acc.ledger.Keep(all)
	c := &charge{uid: a.Object.GetUID(), amounts: map[types.UID]corev1.ResourceList{}}
	if a.Old != nil {
		c.uid, c.version = a.Old.GetUID(), a.Old.GetResourceVersion()
	}
	for _, n := range needs {
		if err := within(n, acc.used(n.quota, now)); err != nil {
			return nil, nil, refuse(a, "%w", err)
		}
		c.amounts[n.quota.UID] = n.amount
	}
	if a.DryRun {
		return nil, nil, nil
	}
	acc.charges[c] = struct{}{}
	return acc, c, nil
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

// open returns the account of a resource, locked. It reads the objects if the account is new.
func (p *ResourceQuota) open(ctx context.Context, key accountKey, kind *catalog.Kind, rules quotas.Resource, now time.Time) (*account, error) {
	p.mu.Lock()
	acc := p.accounts[key]
	if acc == nil {
		acc = &account{charges: map[*charge]struct{}{}}
		p.accounts[key] = acc
	}
	p.mu.Unlock()
	acc.mu.Lock()
	if acc.ledger != nil {
		return acc, nil
	}
	objs, err := p.reader.List(ctx, kind.GVR(), key.namespace, nil)
	if err != nil {
		acc.mu.Unlock()
		return nil, err
	}
	acc.ledger = quotas.NewLedger(rules)
	for _, o := range objs {
		acc.ledger.Set(o, now)
	}
	return acc, nil
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

// settle ends a charge, which may be nil, in the account where it is, and brings the account of the object up to date.
func (p *ResourceQuota) settle(ctx context.Context, key accountKey, kind *catalog.Kind, name string, charged *account, c *charge, committed bool) {
	if charged != nil {
		charged.mu.Lock()
		if committed {
			p.refresh(ctx, charged, key, kind, name)
		}
		delete(charged.charges, c)
		charged.mu.Unlock()
	}
	if !committed {
		return
	}
	p.mu.Lock()
	acc := p.accounts[key]
	p.mu.Unlock()
	if acc != nil && acc != charged {
		acc.mu.Lock()
		p.refresh(ctx, acc, key, kind, name)
		acc.mu.Unlock()
	}
	if kind.Group == "" && kind.Resource == "resourcequotas" {
		p.closeUnused(ctx, key.namespace)
	}
}

// refresh brings an account up to date with the stored object of a name. The caller holds the account's mu.
func (p *ResourceQuota) refresh(ctx context.Context, acc *account, key accountKey, kind *catalog.Kind, name string) {
	if acc.ledger == nil {
		return // it is being made, or could not be
	}
	obj, err := p.reader.Get(ctx, kind.GVR(), key.namespace, name)
	switch {
	case apierrors.IsNotFound(err):
		acc.ledger.Remove(name)
	case err == nil:
		acc.ledger.Set(obj, time.Now())
		maps.DeleteFunc(acc.charges, func(c *charge, _ struct{}) bool {
			return c.uid == obj.GetUID() && c.version != obj.GetResourceVersion()
		})
	}
}

// closeUnused forgets the accounts of a namespace that has no quota any more.
func (p *ResourceQuota) closeUnused(ctx context.Context, namespace string) {
	if all, err := p.quotas(ctx, namespace); err != nil || len(all) > 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.accounts, func(key accountKey, _ *account) bool { return key.namespace == namespace })
}
