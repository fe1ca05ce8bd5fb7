package admission

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// defaultServiceCIDR is the name of the ServiceCIDR with the networks that the API server was started with.
const defaultServiceCIDR = "kubernetes"

// errForeignNetwork refuses an address that is in no ServiceCIDR; the words are those of Kubernetes.
var errForeignNetwork = errors.New("the provided network does not match the current range")

// shortestIPv6Range is the longest IPv6 network that is used, in bits of its prefix. As in Kubernetes.
const shortestIPv6Range = 64

func networkingResource(resource string) schema.GroupVersionResource {
	return networkingv1.SchemeGroupVersion.WithResource(resource)
}

// rangesOf returns the ranges that addresses of a family may come from: the network that the server was started with, unless
// the default ServiceCIDR is going or is not ready, and the networks of all ServiceCIDRs that are ready.
func (p *ServiceAddresses) rangesOf(ctx context.Context, family corev1.IPFamily) ([]pool, error) {
	objects, err := p.reader.List(ctx, networkingResource("servicecidrs"), "", nil)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("looking for ServiceCIDRs: %w", err)
	}
	configured, ranges := true, []pool(nil)
	for _, o := range objects {
		c, ok := o.(*networkingv1.ServiceCIDR)
		if !ok {
			continue
		}
		if !usable(c) {
			configured = configured && c.Name != defaultServiceCIDR
			continue
		}
		for _, text := range c.Spec.CIDRs {
			prefix, err := netip.ParsePrefix(text)
			if err != nil || familyOf(prefix.Addr()) != family || prefix.Addr().Is6() && prefix.Bits() < shortestIPv6Range {
				continue
			}
			// A range with fewer than four addresses has none to give.
			if r, err := newPool(prefix); err == nil && !slices.Contains(ranges, r) {
				ranges = append(ranges, r)
			}
		}
	}
	if own, ok := p.pools[family]; ok && configured {
		ranges = slices.Insert(slices.DeleteFunc(ranges, func(r pool) bool { return r == own }), 0, own)
	}
	return ranges, nil
}

// usable reports whether new addresses may come from a ServiceCIDR. The default one is used before its controller says that
// it is ready.
func usable(c *networkingv1.ServiceCIDR) bool {
	if c.DeletionTimestamp != nil {
		return false
	}
	for _, condition := range c.Status.Conditions {
		if condition.Type == networkingv1.ServiceCIDRConditionReady {
			return condition.Status == metav1.ConditionTrue
		}
	}
	return c.Name == defaultServiceCIDR
}

// refusal returns why an address cannot come from any of the ranges, or nil.
func refusal(ranges []pool, ip netip.Addr) error {
	err := errForeignNetwork
	for _, r := range ranges {
		switch {
		case r.holds(ip):
			return nil
		case r.prefix.Contains(ip):
			err = r.refusal(ip) // the address of the network itself, or broadcast
		}
	}
	return err
}

// nextOf returns a free address of the first range that has one.
func nextOf(ranges []pool, taken func(netip.Addr) bool) (netip.Addr, error) {
	for _, r := range ranges {
		if ip, err := r.next(taken); err == nil {
			return ip, nil
		}
	}
	return netip.Addr{}, errFull
}
