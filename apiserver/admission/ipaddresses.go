package admission

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/internal/clusterip"
)

// A Writer creates and deletes objects as the API server itself.
type Writer interface {
	Create(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, obj runtime.Object, opts metav1.CreateOptions, subresource string) (runtime.Object, error)
	Delete(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error
}

// WriteWith makes the plug-in create the IPAddresses of Services before the writes of these are answered. Without it, and
// after a crash, the controller of IPAddresses does that. It must be called before the first request.
func (p *ServiceAddresses) WriteWith(w Writer) { p.writer = w }

// record writes the IPAddresses of the addresses that a Service got. An error is ignored: the stored Service holds its
// addresses, and the controller of IPAddresses tries again.
func (p *ServiceAddresses) record(ctx context.Context, svc *corev1.Service, addresses []netip.Addr) {
	if p.writer == nil {
		return
	}
	ctx = context.WithoutCancel(ctx)
	for _, ip := range addresses {
		object := clusterip.AddressOf(svc, ip)
		// The name may still be that of an earlier Service. Its deletion frees the address at once.
		if old, err := p.reader.Get(ctx, networkingResource("ipaddresses"), "", object.Name); err == nil {
			address, ok := old.(*networkingv1.IPAddress)
			if !ok || !clusterip.Allocated(address) || clusterip.Refers(address, svc) {
				continue
			}
			uid := address.UID
			if err := p.writer.Delete(ctx, networkingResource("ipaddresses"), "", object.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil {
				continue
			}
		}
		_, _ = p.writer.Create(ctx, networkingResource("ipaddresses"), "", "", object, metav1.CreateOptions{}, "")
	}
}

// admitIPAddress refuses an IPAddress of a user for an address that a Service has. Otherwise the IPAddress claims it.
func (p *ServiceAddresses) admitIPAddress(ctx context.Context, a *Attributes) error {
	address, ok := a.Object.(*networkingv1.IPAddress)
	ip, err := netip.ParseAddr(a.Name)
	if !ok || err != nil {
		return nil // validation refuses the name
	}
	holders, err := p.reader.Holders(ctx, core("services"), clusterip.Sole(ip))
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return err
	case slices.ContainsFunc(holders, func(o catalog.Object) bool {
		svc, ok := o.(*corev1.Service)
		return ok && clusterip.Refers(address, svc)
	}):
		return nil // it is the Service's own
	case len(holders) > 0:
		return apierrors.NewAlreadyExists(a.Kind.GR(), a.Name)
	}
	return nil
}

// foreign reports whether an address has an IPAddress that no Service is behind. IPAddresses that are labeled as allocated belong
// to Services, which hold the address themselves.
func (t *taken) foreign(ip netip.Addr) bool {
	o, err := t.p.reader.Get(t.ctx, networkingResource("ipaddresses"), "", ip.String())
	if err != nil {
		if !apierrors.IsNotFound(err) && t.err == nil {
			t.err = err
		}
		return false
	}
	address, ok := o.(*networkingv1.IPAddress)
	return ok && !clusterip.Allocated(address) && !clusterip.Refers(address, t.r.svc)
}
