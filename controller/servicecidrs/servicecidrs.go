package servicecidrs

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/clusterip"
	"github.com/sampan-io/sampan/internal/run"
)

const (
	name    = "service-cidr-controller"
	account = "service-cidrs-controller"

	// finalizer keeps a ServiceCIDR while Services have addresses of it alone.
	finalizer = "networking.k8s.io/service-cidr-finalizer"

	// deletionGrace is how long a deleted ServiceCIDR stays at least, as in Kubernetes: requests that began before the
	// deletion may still give an address of it.
	deletionGrace = 10 * time.Second

	blocked = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
)

// networks keeps ServiceCIDRs.
type networks struct {
	client    client.Interface
	cidrs     *cache.Cache[*networkingv1.ServiceCIDR]
	addresses *cache.Cache[*networkingv1.IPAddress]
	loop      *controller.Loop
}

// Tasks returns the controller of ServiceCIDRs, to be run together as one stage.
func Tasks(config controller.Config) []run.Task {
	config, caches := config.WithDefaults()
	config = config.For(account)
	addresses := cache.Of(config.Caches, client.IPAddresses, nil)
	n := &networks{
		client:    config.Client,
		cidrs:     cache.Of(config.Caches, client.ServiceCIDRs, nil),
		addresses: addresses,
	}
	n.loop = controller.New(controller.Options{
		Name: name, Reconcile: n.reconcile, Workers: config.Workers, Log: config.Log,
		Needs: []<-chan struct{}{n.cidrs.Ready(), addresses.Ready()},
	})
	n.cidrs.Subscribe(func(before, after *networkingv1.ServiceCIDR) {
		n.loop.Add(controller.KeyOfEither(before, after))
		if before == nil || after == nil {
			n.wakeDeleted(func(*networkingv1.ServiceCIDR) bool { return true }) // it may contain the networks of another
		}
	})
	addresses.Subscribe(func(before, after *networkingv1.IPAddress) {
		if before != nil && after != nil {
			return
		}
		if ip, err := netip.ParseAddr(controller.KeyOfEither(before, after).Name); err == nil {
			n.wakeDeleted(func(c *networkingv1.ServiceCIDR) bool { return contains(c, ip) })
		}
	})
	return []run.Task{caches, n.loop.Task()}
}

// RepairTasks returns the controller of the IPAddresses of Services, to be run together as one stage. It is for API servers that
// do not keep them themselves, as upstream's does.
func RepairTasks(config controller.Config) []run.Task {
	config, caches := config.WithDefaults()
	l := newLedger(config.For(account))
	return []run.Task{caches, {Name: ledgerName + "-events", Run: l.events.Run}, l.loop.Task()}
}

// wakeDeleted queues the chosen ServiceCIDRs that are being deleted.
func (n *networks) wakeDeleted(chosen func(*networkingv1.ServiceCIDR) bool) {
	for _, c := range n.cidrs.List("") {
		if c.DeletionTimestamp != nil && chosen(c) {
			n.loop.Add(controller.KeyOf(c))
		}
	}
}

// networksOf returns the networks of a ServiceCIDR that can be read.
func networksOf(c *networkingv1.ServiceCIDR) (all []netip.Prefix) {
	for _, text := range c.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, p.Masked())
		}
	}
	return all
}

func contains(c *networkingv1.ServiceCIDR, ip netip.Addr) bool {
	return slices.ContainsFunc(networksOf(c), func(p netip.Prefix) bool { return p.Contains(ip) })
}

func (n *networks) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	c, ok := n.cidrs.Get("", key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	if c.DeletionTimestamp == nil {
		if !slices.Contains(c.Finalizers, finalizer) {
			kept := c.DeepCopy()
			kept.Finalizers = append(kept.Finalizers, finalizer)
			var err error
			if c, err = n.write(ctx, kept, ""); err != nil || c == nil {
				return controller.Result{}, err
			}
		}
		return controller.Result{}, n.setReady(ctx, c, metav1.ConditionTrue, "", "Kubernetes Service CIDR is ready")
	}
	if !slices.Contains(c.Finalizers, finalizer) {
		return controller.Result{}, nil
	}
	if inUse(c, n.cidrs.List(""), n.addresses.List("")) {
		return controller.Result{}, n.setReady(ctx, c, metav1.ConditionFalse, networkingv1.ServiceCIDRReasonTerminating, blocked)
	}
	if left := deletionGrace - time.Since(c.DeletionTimestamp.Time); left > 0 {
		return controller.Result{After: left}, nil
	}
	free := c.DeepCopy()
	free.Finalizers = slices.DeleteFunc(free.Finalizers, func(f string) bool { return f == finalizer })
	_, err := n.write(ctx, free, "")
	return controller.Result{}, err
}

// covers reports whether another ServiceCIDR than c keeps an address of c. One that is being deleted itself does so only if its network
// is larger, or else by its name: of two that are deleted at the same time, one stays.
func covers(other, c *networkingv1.ServiceCIDR, ip netip.Addr) bool {
	if other.Name == c.Name || !contains(other, ip) {
		return false
	}
	return other.DeletionTimestamp == nil || cmp.Or(cmp.Compare(bits(other, ip), bits(c, ip)), cmp.Compare(other.Name, c.Name)) < 0
}

// bits returns the length of the prefix of the network with an address.
func bits(c *networkingv1.ServiceCIDR, ip netip.Addr) int {
	for _, p := range networksOf(c) {
		if p.Contains(ip) {
			return p.Bits()
		}
	}
	return 0
}

// inUse reports whether there is an IPAddress of a Service in a ServiceCIDR that no other one contains.
func inUse(c *networkingv1.ServiceCIDR, all []*networkingv1.ServiceCIDR, addresses []*networkingv1.IPAddress) bool {
	return slices.ContainsFunc(addresses, func(a *networkingv1.IPAddress) bool {
		ip, err := netip.ParseAddr(a.Name)
		return err == nil && clusterip.Allocated(a) && contains(c, ip) &&
			!slices.ContainsFunc(all, func(other *networkingv1.ServiceCIDR) bool { return covers(other, c, ip) })
	})
}

// setReady sets the condition Ready. The time of the transition changes with the status.
func (n *networks) setReady(ctx context.Context, c *networkingv1.ServiceCIDR, status metav1.ConditionStatus, reason, message string) error {
	updated := c.DeepCopy()
	want := metav1.Condition{
		Type: networkingv1.ServiceCIDRConditionReady, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)),
	}
	i := slices.IndexFunc(updated.Status.Conditions, func(c metav1.Condition) bool { return c.Type == want.Type })
	if i < 0 {
		updated.Status.Conditions = append(updated.Status.Conditions, want)
	} else {
		if have := updated.Status.Conditions[i]; have.Status == want.Status {
			want.LastTransitionTime = have.LastTransitionTime
		}
		updated.Status.Conditions[i] = want
	}
	if equality.Semantic.DeepEqual(updated.Status, c.Status) {
		return nil
	}
	_, err := n.write(ctx, updated, "status")
	return err
}

// write writes a ServiceCIDR and waits until the cache has it. It returns nil if the object is gone.
func (n *networks) write(ctx context.Context, c *networkingv1.ServiceCIDR, part string) (*networkingv1.ServiceCIDR, error) {
	now, err := client.ServiceCIDRs.UpdateBy(ctx, n.client, c, part, name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("write servicecidr %s: %w", c.Name, err)
	case now.DeletionTimestamp != nil && len(now.Finalizers) == 0:
		return nil, n.cidrs.AwaitDeletion(ctx, now)
	}
	return now, n.cidrs.Await(ctx, now.ResourceVersion)
}
