package balancer

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

const name = "service-lb-controller"

// Options configures the controller. Client is required; Workers is ignored.
type Options struct {
	controller.Config

	// Pool is the addresses to give. Without any the controller takes back those it
	// gave, and says why services get no address.
	Pool Pool

	// Patience is how long another controller may take to give an address to a service without a class before an event
	// says that there is none; 0 means ten seconds.
	Patience time.Duration
}

// byAddress is the index of services by the addresses of their load balancers, and of nodes by theirs.
const byAddress = "load balancer address"

// balancer gives and takes back addresses.
type balancer struct {
	client   client.Interface
	services *cache.Cache[*corev1.Service]
	nodes    *cache.Cache[*corev1.Node]
	events   *client.Recorder
	loop     *controller.Loop
	patience time.Duration

	mu      sync.Mutex
	book    book                      // guarded by mu
	warned  map[controller.Key]warned // guarded by mu; about services whose wish is not met
	pending map[controller.Key]bool   // guarded by mu; services that wait for an address to become free
}

// A warned is the last event about a service, and the time since when its reason has existed.
type warned struct {
	since time.Time
	words string
}

// Tasks returns the controller, to be run together as one stage.
func Tasks(opts Options) []run.Task {
	if opts.Patience == 0 {
		opts.Patience = 10 * time.Second
	}
	var caches run.Task
	opts.Config, caches = opts.WithDefaults()
	opts.Config = opts.For("service-controller")
	b := &balancer{
		client: opts.Client,
		services: cache.Of(opts.Caches, client.Services, cache.Indexes[*corev1.Service]{byAddress: func(svc *corev1.Service) (all []string) {
			for _, a := range given(svc) {
				all = append(all, a.String())
			}
			return all
		}}),
		nodes: cache.Of(opts.Caches, client.Nodes, cache.Indexes[*corev1.Node]{byAddress: func(n *corev1.Node) (all []string) {
			for _, at := range n.Status.Addresses {
				if a, err := netip.ParseAddr(at.Address); err == nil {
					all = append(all, a.Unmap().String())
				}
			}
			return all
		}}),
		events:   client.NewRecorder(opts.Client, name, "", opts.Log),
		patience: opts.Patience,
		warned:   map[controller.Key]warned{},
		pending:  map[controller.Key]bool{},
	}
	b.book = book{pool: opts.Pool, holder: b.holder, node: b.node, full: map[corev1.IPFamily]netip.Addr{}}
	b.loop = controller.New(controller.Options{
		// One at a time: who has which address is read from the cache, which shows each
		// write before the next service is looked at.
		Name: name, Reconcile: b.reconcile, Workers: 1, Log: opts.Log,
		Needs: []<-chan struct{}{b.services.Ready(), b.nodes.Ready()}, Object: controller.ObjectOf(b.services), Quarantine: opts.Quarantine,
	})
	b.services.Subscribe(b.changed)
	return []run.Task{
		caches,
		{Name: name + "-events", Run: b.events.Run},
		b.loop.Task(),
	}
}

// changed wakes the loop for a service that is, or was, a load balancer, and for those
// that wait for its former addresses.
func (b *balancer) changed(before, after *corev1.Service) {
	svc := after
	if svc == nil {
		svc = before
	}
	if balanced(svc) || marked(svc) || before != nil && balanced(before) {
		b.loop.Add(controller.KeyOf(svc))
	}
	if before == nil {
		return
	}
	freed := after == nil && balanced(before)
	for _, a := range given(before) {
		freed = freed || after == nil || !slices.Contains(given(after), a)
	}
	if !freed {
		return
	}
	b.mu.Lock()
	clear(b.book.full)
	waiting := slices.Collect(maps.Keys(b.pending))
	b.mu.Unlock()
	for _, key := range waiting {
		b.loop.Add(key)
	}
}

// holder returns who has an address: of several that claim it, the oldest.
func (b *balancer) holder(a netip.Addr) (controller.Key, bool) {
	all := b.services.ByIndex(byAddress, a.String())
	if len(all) == 0 {
		return controller.Key{}, false
	}
	return controller.KeyOf(slices.MinFunc(all, func(x, y *corev1.Service) int {
		if c := x.CreationTimestamp.Compare(y.CreationTimestamp.Time); c != 0 {
			return c
		}
		return slices.Compare([]string{x.Namespace, x.Name}, []string{y.Namespace, y.Name})
	})), true
}

// node reports whether an address is that of a node.
func (b *balancer) node(a netip.Addr) bool { return len(b.nodes.ByIndex(byAddress, a.String())) > 0 }

func (b *balancer) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	svc, ok := b.services.Get(key.Namespace, key.Name)
	if !ok || !asks(svc) {
		b.settle(key)
		if !ok {
			return controller.Result{}, nil
		}
		return controller.Result{}, b.release(ctx, svc)
	}
	if b.book.pool.Empty() {
		if err := b.release(ctx, svc); err != nil {
			return controller.Result{}, err
		}
		return b.without(svc), nil
	}
	if len(svc.Status.LoadBalancer.Ingress) > 0 && !marked(svc) && !chosen(svc) {
		b.settle(key)
		return controller.Result{}, nil // another controller has given it
	}
	b.mu.Lock()
	addresses, trouble := b.book.plan(svc)
	if len(addresses) == 0 || trouble != "" {
		b.pending[key] = true
	}
	b.mu.Unlock()
	if err := b.write(ctx, svc, addresses); err != nil {
		return controller.Result{}, err
	}
	if trouble == "" {
		b.settle(key)
		return controller.Result{}, nil
	}
	b.warn(svc, trouble)
	return controller.Result{}, nil
}

// without says of a service that there is no pool, once others have had their time to
// give it an address.
func (b *balancer) without(svc *corev1.Service) controller.Result {
	key := controller.KeyOf(svc)
	if len(svc.Status.LoadBalancer.Ingress) > 0 {
		b.settle(key)
		return controller.Result{}
	}
	b.mu.Lock()
	t, known := b.warned[key]
	if !known {
		t.since = time.Now()
		b.warned[key] = t
	}
	b.mu.Unlock()
	if wait := b.patience - time.Since(t.since); !chosen(svc) && wait > 0 {
		return controller.Result{After: wait}
	}
	b.warn(svc, "the cluster has no load balancer addresses; set them with `sampan up --load-balancer-addresses=…`")
	return controller.Result{}
}

// warn writes an event about a service whose request is refused, unless the last event said the same.
func (b *balancer) warn(svc *corev1.Service, words string) {
	key := controller.KeyOf(svc)
	b.mu.Lock()
	t := b.warned[key]
	fresh := t.words != words
	t.words = words
	b.warned[key] = t
	b.mu.Unlock()
	if fresh {
		b.events.Event(svc, corev1.EventTypeWarning, "SyncLoadBalancerFailed", "No load balancer address: %s", words)
	}
}

// settle forgets the last event about a service.
func (b *balancer) settle(key controller.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.warned, key)
	delete(b.pending, key)
}

// write gives a service its addresses.
func (b *balancer) write(ctx context.Context, svc *corev1.Service, addresses []netip.Addr) error {
	fresh := svc.DeepCopy()
	fresh.Status.LoadBalancer = statusOf(svc, addresses)
	setMarks(fresh, len(addresses) > 0)
	if err := b.update(ctx, svc, fresh); err != nil {
		return err
	}
	if had := given(svc); len(addresses) > 0 && !slices.Equal(had, addresses) {
		b.events.Event(svc, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Assigned load balancer address %s", words(addresses))
	}
	return nil
}

// release takes back a service's addresses of the pool.
func (b *balancer) release(ctx context.Context, svc *corev1.Service) error {
	if !marked(svc) {
		return nil
	}
	fresh := svc.DeepCopy()
	setMarks(fresh, false)
	if svc.DeletionTimestamp == nil { // otherwise all of it goes
		fresh.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
	if err := b.update(ctx, svc, fresh); err != nil {
		return err
	}
	if svc.DeletionTimestamp == nil {
		b.events.Event(svc, corev1.EventTypeNormal, "DeletedLoadBalancer", "Released load balancer address")
	}
	return nil
}

// setMarks sets or takes away what says that there is something to be taken back.
func setMarks(svc *corev1.Service, on bool) {
	if !on {
		if marked(svc) {
			delete(svc.Annotations, mark)
			svc.Finalizers = slices.DeleteFunc(svc.Finalizers, func(f string) bool { return f == finalizer })
		}
		return
	}
	if svc.Annotations == nil {
		svc.Annotations = map[string]string{}
	}
	svc.Annotations[mark] = markedBy
	if !slices.Contains(svc.Finalizers, finalizer) {
		svc.Finalizers = append(svc.Finalizers, finalizer)
	}
}

// update writes the differences; the cache shows it afterwards. Its metadata may be
// changed together with the status.
func (b *balancer) update(ctx context.Context, svc, fresh *corev1.Service) error {
	if equality.Semantic.DeepEqual(svc, fresh) {
		return nil
	}
	now, err := client.Services.Update(ctx, b.client, fresh, "status")
	switch {
	case apierrors.IsNotFound(err):
		return nil // the cache will report it
	case err != nil:
		return fmt.Errorf("the load balancer address of service %s/%s: %w", svc.Namespace, svc.Name, err)
	case svc.DeletionTimestamp != nil:
		return nil // with its last finalizer it is gone
	}
	return b.services.Await(ctx, now.ResourceVersion)
}
