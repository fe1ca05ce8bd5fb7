package servicecidrs

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/clusterip"
)

const (
	ledgerName = "ipallocator-repair-controller"

	// byAddress is the index of Services by their cluster IPs.
	byAddress = "address"

	// patience is how long the API server is given to write the IPAddress of an address that it has just given.
	patience = 2 * time.Second
)

// ledger keeps the IPAddresses of Services.
type ledger struct {
	client    client.Interface
	services  *cache.Cache[*corev1.Service]
	addresses *cache.Cache[*networkingv1.IPAddress]
	events    *client.Recorder
	loop      *controller.Loop
}

// held returns the addresses that a Service has, in the form that is the name of their IPAddress.
func held(svc *corev1.Service) (all []string) {
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	for _, text := range svc.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(text); err == nil { // "None" is not an address
			all = append(all, ip.String())
		}
	}
	return all
}

func newLedger(config controller.Config) *ledger {
	l := &ledger{
		client:    config.Client,
		services:  cache.Of(config.Caches, client.Services, cache.Indexes[*corev1.Service]{byAddress: held}),
		addresses: cache.Of(config.Caches, client.IPAddresses, nil),
		events:    client.NewRecorder(config.Client, ledgerName, "", config.Log),
	}
	l.loop = controller.New(controller.Options{
		Name: ledgerName, Reconcile: l.reconcile, Workers: config.Workers, Log: config.Log,
		Needs: []<-chan struct{}{l.services.Ready(), l.addresses.Ready()},
	})
	l.services.Subscribe(func(before, after *corev1.Service) {
		was, has := held(before), held(after)
		for _, ip := range was {
			if !slices.Contains(has, ip) {
				l.loop.Add(controller.Key{Name: ip})
			}
		}
		for _, ip := range has {
			if !slices.Contains(was, ip) {
				// At the start, Services are older.
				l.loop.AddAfter(controller.Key{Name: ip}, patience-time.Since(after.CreationTimestamp.Time))
			}
		}
	})
	l.addresses.Subscribe(func(before, after *networkingv1.IPAddress) {
		switch {
		case after == nil:
			if len(l.services.ByIndex(byAddress, before.Name)) > 0 {
				l.loop.Add(controller.Key{Name: before.Name})
			}
		case clusterip.Allocated(after):
			l.loop.Add(controller.Key{Name: after.Name})
		}
	})
	return l
}

// reconcile makes the IPAddress of one address agree with the Services.
func (l *ledger) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	ip, err := netip.ParseAddr(key.Name)
	if err != nil {
		return controller.Result{}, nil
	}
	holders := l.services.ByIndex(byAddress, key.Name)
	have, exists := l.addresses.Get("", key.Name)
	if exists && (!clusterip.Allocated(have) || have.DeletionTimestamp != nil) {
		return controller.Result{}, nil // it is not of a Service, or is going
	}
	if exists && slices.ContainsFunc(holders, func(svc *corev1.Service) bool { return clusterip.Refers(have, svc) }) {
		return controller.Result{}, nil
	}
	if exists {
		if wrong, err := l.leaked(ctx, have); err != nil || !wrong {
			return controller.Result{}, err
		}
		if err := l.remove(ctx, have); err != nil {
			return controller.Result{}, err
		}
	}
	if len(holders) == 0 {
		return controller.Result{}, nil
	}
	svc := slices.MinFunc(holders, func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	return controller.Result{}, l.create(ctx, svc, ip, exists)
}

// leaked reports whether no Service has the address of an IPAddress. The server decides, because the cache of Services may not
// have the newest one yet.
func (l *ledger) leaked(ctx context.Context, have *networkingv1.IPAddress) (bool, error) {
	p := have.Spec.ParentRef
	if p == nil || p.Group != "" || p.Resource != client.Services.Resource {
		l.events.Event(have, corev1.EventTypeWarning, "IPAddressNotAllocated", "IPAddress %s appears to have been modified, not referencing a Service %v: cleaning up", have.Name, p)
		return true, nil
	}
	svc, err := client.Services.Get(ctx, l.client, p.Namespace, p.Name)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	}
	return !slices.Contains(held(svc), have.Name), nil
}

func (l *ledger) remove(ctx context.Context, have *networkingv1.IPAddress) error {
	err := client.IPAddresses.Delete(ctx, l.client, "", have.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(have.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete ipaddress %s: %w", have.Name, err)
	}
	return l.addresses.AwaitDeletion(ctx, have)
}

// create writes the IPAddress of a Service. There was another one if wrong is set.
func (l *ledger) create(ctx context.Context, svc *corev1.Service, ip netip.Addr, wrong bool) error {
	want := clusterip.AddressOf(svc, ip)
	made, err := client.IPAddresses.Create(ctx, l.client, want)
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil // the cache will report it
	case err != nil:
		return fmt.Errorf("create ipaddress %s: %w", want.Name, err)
	}
	family := want.Labels[networkingv1.LabelIPAddressFamily]
	if wrong {
		l.events.Event(svc, corev1.EventTypeWarning, "ClusterIPNotAllocated", "the ClusterIP [%v]: %s for Service %s/%s has a wrong reference; repairing", family, ip, svc.Namespace, svc.Name)
	} else {
		l.events.Event(svc, corev1.EventTypeWarning, "ClusterIPNotAllocated", "Cluster IP [%v]: %s is not allocated; repairing", family, ip)
	}
	return l.addresses.Await(ctx, made.ResourceVersion)
}
