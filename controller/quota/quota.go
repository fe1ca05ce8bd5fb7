package quota

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/quotas"
	"github.com/sampan-io/sampan/internal/run"
)

const name = "resourcequota-controller"

// resourceQuotas is the resource whose status the controller writes.
func resourceQuotas() client.Resource[*corev1.ResourceQuota] {
	return client.Resource[*corev1.ResourceQuota]{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("resourcequotas"), Kind: "ResourceQuota", Namespaced: true}
}

// Options configures the controller. Client is required.
type Options struct {
	controller.Config

	// Resources are all resources that the cluster serves, without subresources.
	Resources []client.Resource[client.Object]

	// Custom has the objects of the custom resources and of the resources of other servers. It may be nil.
	Custom *cache.Dynamic
}

// statuses keeps the status of ResourceQuotas.
type statuses struct {
	client client.Interface
	quotas *cache.Cache[*corev1.ResourceQuota]
	kinds  []kind
	custom *cache.Dynamic // may be nil
	loop   *controller.Loop

	mu      sync.Mutex
	ledgers map[ledgerKey]*quotas.Ledger // guarded by mu
}

// A kind is a resource whose objects can be counted.
type kind struct {
	rules   quotas.Resource
	objects *cache.Cache[client.Object]
}

type ledgerKey struct {
	namespace string
	resource  schema.GroupResource
}

// Tasks returns the controller. Its tasks must run together, as one stage.
func Tasks(opts Options) []run.Task {
	var caches run.Task
	opts.Config, caches = opts.WithDefaults()
	opts.Config = opts.For("resourcequota-controller")
	s := &statuses{client: opts.Client, quotas: cache.Of(opts.Caches, resourceQuotas(), nil), ledgers: map[ledgerKey]*quotas.Ledger{}, custom: opts.Custom}
	needs := []<-chan struct{}{s.quotas.Ready()}
	for _, r := range opts.Resources {
		rules, ok := quotas.Of(r.GroupResource())
		if !ok || !r.Namespaced {
			continue
		}
		k := kind{rules, cache.Of(opts.Caches, r, nil)}
		k.objects.Subscribe(func(before, after client.Object) { s.changed(&k, before, after) })
		s.kinds, needs = append(s.kinds, k), append(needs, k.objects.Ready())
	}
	s.loop = controller.New(controller.Options{Name: name, Reconcile: s.reconcile, Workers: opts.Workers, Log: opts.Log, Needs: needs, Object: controller.ObjectOf(s.quotas), Quarantine: opts.Quarantine})
	s.quotas.Subscribe(func(before, after *corev1.ResourceQuota) { s.loop.Add(controller.KeyOfEither(before, after)) })
	if opts.Custom != nil {
		opts.Custom.Subscribe(func(r cache.Resource, before, after client.Object) {
			if rules, ok := rulesOf(r); ok {
				s.changed(&kind{rules: rules}, before, after)
			}
		}, s.moved)
	}
	return []run.Task{caches, s.loop.Task()}
}

// rulesOf returns the rules of a resource that comes and goes, and false if its objects are not counted. As with upstream's
// controller, these are the ones that clients can create.
func rulesOf(r cache.Resource) (quotas.Resource, bool) {
	rules, ok := quotas.Of(r.GroupResource())
	return rules, ok && r.Namespaced && r.Creatable
}

// moved makes the quotas that count a kind which came or went count again.
func (s *statuses) moved(r cache.Resource, _ bool) {
	rules, ok := rulesOf(r)
	if !ok {
		return
	}
	s.mu.Lock()
	maps.DeleteFunc(s.ledgers, func(key ledgerKey, _ *quotas.Ledger) bool { return key.resource == r.GroupResource() })
	s.mu.Unlock()
	for _, q := range s.quotas.List("") {
		if len(rules.Names(q.Spec.Hard)) > 0 {
			s.loop.Add(controller.KeyOf(q))
		}
	}
}

// all returns all kinds.
func (s *statuses) all() []kind {
	all := slices.Clone(s.kinds)
	for _, f := range s.custom.All() {
		if rules, ok := rulesOf(f.Resource); ok {
			all = append(all, kind{rules, f.Cache})
		}
	}
	return all
}

// changed adds a change to the ledger of its kind, if there is one, and wakes the quotas that count the kind.
func (s *statuses) changed(k *kind, before, after client.Object) {
	key := controller.KeyOfEither(before, after)
	if !s.record(ledgerKey{key.Namespace, k.rules.GroupResource}, key.Name, after) {
		return
	}
	for _, q := range s.quotas.List(key.Namespace) {
		if len(k.rules.Names(q.Spec.Hard)) > 0 {
			s.loop.Add(controller.KeyOf(q))
		}
	}
}

// record reports whether there is a ledger. After is nil if the object was deleted.
func (s *statuses) record(key ledgerKey, name string, after client.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.ledgers[key]
	switch {
	case l == nil:
		return false
	case after == nil:
		l.Remove(name)
	default:
		l.Set(after, time.Now())
	}
	return true
}

func (s *statuses) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	q, ok := s.quotas.Get(key.Namespace, key.Name)
	if !ok {
		s.forget(key.Namespace)
		return controller.Result{}, nil
	}
	now := time.Now()
	used, due := s.used(q, now)
	var result controller.Result
	if !due.IsZero() {
		result.After = due.Sub(now) + time.Millisecond // it counts until then, inclusive
	}
	status := statusOf(q, used)
	if equality.Semantic.DeepEqual(status, q.Status) {
		return result, nil
	}
	updated := q.DeepCopy()
	updated.Status = status
	written, err := resourceQuotas().Update(ctx, s.client, updated, "status")
	switch {
	case apierrors.IsNotFound(err):
		return controller.Result{}, nil
	case err != nil:
		return controller.Result{}, fmt.Errorf("write status of resourcequota %s: %w", key, err)
	}
	return result, s.quotas.Await(ctx, written.ResourceVersion)
}

// statusOf returns the status of a quota of which this is used. Names that are not in used keep their value.
func statusOf(q *corev1.ResourceQuota, used corev1.ResourceList) corev1.ResourceQuotaStatus {
	status := corev1.ResourceQuotaStatus{Hard: q.Spec.Hard, Used: maps.Clone(q.Status.Used)}
	if status.Used == nil && len(used) > 0 {
		status.Used = corev1.ResourceList{}
	}
	maps.Copy(status.Used, used)
	maps.DeleteFunc(status.Used, func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, ok := q.Spec.Hard[name]
		return !ok
	})
	return status
}

// used returns the use of a quota, and when that becomes less without a change of an object, or zero.
func (s *statuses) used(q *corev1.ResourceQuota, now time.Time) (used corev1.ResourceList, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used = corev1.ResourceList{}
	for _, one := range s.all() {
		k := &one
		if len(k.rules.Names(q.Spec.Hard)) == 0 {
			continue
		}
		l := s.ledger(k, q.Namespace, now)
		maps.Copy(used, l.Used(q, now))
		if d := l.Due(); !d.IsZero() && (due.IsZero() || d.Before(due)) {
			due = d
		}
	}
	return used, due
}

// ledger returns the ledger of a kind in a namespace, and makes it if there is none. The caller holds mu.
func (s *statuses) ledger(k *kind, namespace string, now time.Time) *quotas.Ledger {
	key := ledgerKey{namespace, k.rules.GroupResource}
	l := s.ledgers[key]
	if l == nil {
		l = quotas.NewLedger(k.rules)
		for _, obj := range k.objects.List(namespace) {
			l.Set(obj, now)
		}
		s.ledgers[key] = l
	}
	return l
}

// forget removes what only deleted quotas needed.
func (s *statuses) forget(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.quotas.List(namespace)
	maps.DeleteFunc(s.ledgers, func(key ledgerKey, l *quotas.Ledger) bool {
		if key.namespace != namespace {
			return false
		}
		l.Keep(left)
		return len(left) == 0
	})
}
