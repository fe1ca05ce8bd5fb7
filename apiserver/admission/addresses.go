package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	corekinds "github.com/sampan-io/sampan/catalog/core"
	"github.com/sampan-io/sampan/internal/clusterip"
	"github.com/sampan-io/sampan/internal/reserved"
)

// AddressesOptions configures [ServiceAddresses]. Reader and Networks are required.
type AddressesOptions struct {
	Reader Reader

	// Networks are where service addresses come from: one, or two of different IP
	// families, of which the first is the one that a service gets that does not say.
	Networks []netip.Prefix

	// NodePorts is where node ports come from; zero means 30000 to 32767.
	NodePorts PortRange

	// Own are ports of the cluster's own servers, which no service gets: for its clients they count as allocated.
	Own reserved.Ports
}

// ServiceAddresses gives services their addresses and node ports, and keeps IPAddress objects in accordance with them.
//
// The addresses and ports of stored services are taken. They are claimed (see catalog.Kind.Sole): of several writes for
// the same address or port the store makes one, and the API server asks again for the others. The plug-in then sees the
// winner, and finds another value, or refuses the value that the user has named. The first
// address of each network belongs to the service default/kubernetes.
type ServiceAddresses struct {
	reader Reader
	order  []corev1.IPFamily
	pools  map[corev1.IPFamily]pool
	ports  PortRange
	own    map[int32]bool
	writer Writer // nil: others create the IPAddresses
}

// NewServiceAddresses returns the plug-in.
func NewServiceAddresses(o AddressesOptions) (*ServiceAddresses, error) {
	if o.Reader == nil || len(o.Networks) == 0 || len(o.Networks) > 2 {
		return nil, errors.New("admission: AddressesOptions needs a Reader and one or two Networks")
	}
	if o.NodePorts == (PortRange{}) {
		o.NodePorts = PortRange{30000, 32767}
	}
	if o.NodePorts.First < 1 || o.NodePorts.Last > 65535 || o.NodePorts.First > o.NodePorts.Last {
		return nil, fmt.Errorf("admission: %d-%d is not a range of ports", o.NodePorts.First, o.NodePorts.Last)
	}
	p := &ServiceAddresses{
		reader: o.Reader,
		pools:  map[corev1.IPFamily]pool{},
		ports:  o.NodePorts,
		own:    map[int32]bool{},
	}
	for _, port := range o.Own {
		p.own[port.Number] = true
	}
	for _, network := range o.Networks {
		pool, err := newPool(network)
		if err != nil {
			return nil, fmt.Errorf("admission: %w", err)
		}
		family := familyOf(network.Addr())
		if _, twice := p.pools[family]; twice {
			return nil, fmt.Errorf("admission: two service networks for %s", family)
		}
		p.pools[family], p.order = pool, append(p.order, family)
	}
	return p, nil
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() || a.Is4In6() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// Name implements [Plugin].
func (*ServiceAddresses) Name() string { return "ServiceAddresses" }

// Admit implements [Mutator].
func (p *ServiceAddresses) Admit(ctx context.Context, a *Attributes) error {
	if a.Kind.GR() == networkingResource("ipaddresses").GroupResource() && a.Operation == Create {
		return p.admitIPAddress(ctx, a)
	}
	if !a.is("services", "") || a.Operation != Create && a.Operation != Update {
		return nil
	}
	svc, ok := a.Object.(*corev1.Service)
	if !ok {
		return nil
	}
	old, _ := a.Old.(*corev1.Service)
	if old != nil {
		keepGranted(svc, old)
		dropUnneeded(svc, old)
	}
	alignClusterIPs(svc, old)
	// Written values must make sense before anything is concluded from them.
	if errs := corekinds.AddressFaults(svc, old); len(errs) > 0 {
		return invalid(ctx, a, errs)
	}
	if errs := p.setFamilies(svc, old); len(errs) > 0 {
		return invalid(ctx, a, errs)
	}
	return p.allocate(ctx, a, svc, old)
}

// invalid refuses a service because of a fault found here, and adds the faults that validation
// finds, so that the user sees all of them at once. A field that has a fault here is not listed a
// second time.
func invalid(ctx context.Context, a *Attributes, errs field.ErrorList) error {
	reported := map[string]bool{}
	for _, e := range errs {
		reported[e.Field] = true
	}
	more := catalog.ValidateMeta(a.Kind, a.Object, a.Old)
	if a.Kind.Validate != nil {
		more = append(more, a.Kind.Validate(ctx, a.Object, a.Old)...)
	}
	for _, e := range more {
		if !reported[e.Field] {
			errs = append(errs, e)
		}
	}
	return catalog.Invalid(schema.GroupKind{Kind: "Service"}, a.Object.GetName(), errs)
}

// A request is the addresses and ports of one service, wanted and found.
type request struct {
	svc, old  *corev1.Service
	addresses []netip.Addr // newly taken
	ports     []int32      // newly taken
	errs      field.ErrorList
}

// allocate finds the addresses and ports that the service needs and does not have yet.
func (p *ServiceAddresses) allocate(ctx context.Context, a *Attributes, svc, old *corev1.Service) error {
	r := &request{svc: svc, old: old}
	if !r.asks() {
		return nil
	}
	t := p.taken(ctx, r)
	err := p.findAddresses(ctx, r, t)
	if err == nil {
		err = p.findPorts(r, t)
	}
	if err = cmp.Or(t.err, err); err != nil {
		return err
	}
	if len(r.errs) > 0 {
		return invalid(ctx, a, r.errs)
	}
	if a.DryRun || len(r.addresses) == 0 {
		return nil
	}
	a.Done = append(a.Done, func(committed bool) {
		if committed {
			p.record(ctx, svc, r.addresses)
		}
	})
	return nil
}

// asks reports whether there may be anything to find, so that most updates cost
// nothing.
func (r *request) asks() bool {
	if hasAddress(r.svc) && (r.old == nil || !slices.Equal(r.old.Spec.ClusterIPs, r.svc.Spec.ClusterIPs) ||
		len(r.svc.Spec.ClusterIPs) < len(r.svc.Spec.IPFamilies)) {
		return true
	}
	if needsHealthPort(r.svc) && !r.owns(r.svc.Spec.HealthCheckNodePort) {
		return true
	}
	return hasNodePorts(r.svc) && slices.ContainsFunc(r.svc.Spec.Ports, func(sp corev1.ServicePort) bool { return !r.owns(sp.NodePort) })
}

// owns reports whether the service had the node port before.
func (r *request) owns(port int32) bool {
	return port != 0 && r.old != nil && slices.Contains(corekinds.NodePorts(r.old), port)
}

// hasAddress reports whether the service has an address of its own: it is neither
// headless nor another name for something.
func hasAddress(svc *corev1.Service) bool {
	return svc.Spec.Type != corev1.ServiceTypeExternalName && svc.Spec.ClusterIP != corev1.ClusterIPNone
}

func hasNodePorts(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeNodePort || svc.Spec.Type == corev1.ServiceTypeLoadBalancer
}

// wantsNodePorts reports whether the service gets a node port where it names none.
func wantsNodePorts(svc *corev1.Service) bool {
	switch svc.Spec.Type {
	case corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeLoadBalancer:
		return svc.Spec.AllocateLoadBalancerNodePorts == nil || *svc.Spec.AllocateLoadBalancerNodePorts
	default:
		return false
	}
}

func needsHealthPort(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// taken answers that a service cannot have a value, because others have it in the store, or it has just been given it.
type taken struct {
	ctx  context.Context //nolint:containedctx // of the request, as long as values are looked for
	p    *ServiceAddresses
	r    *request
	held func(what string) bool // by another service in the store
	err  error                  // of the first question that could not be answered
}

func (p *ServiceAddresses) taken(ctx context.Context, r *request) *taken {
	t := &taken{ctx: ctx, p: p, r: r}
	t.held = func(what string) bool {
		holders, err := p.reader.Holders(ctx, core("services"), what)
		if err != nil && t.err == nil {
			t.err = fmt.Errorf("looking for services with %s: %w", what, err)
		}
		return slices.ContainsFunc(holders, func(o catalog.Object) bool {
			return o.GetNamespace() != r.svc.Namespace || o.GetName() != r.svc.Name
		})
	}
	return t
}

func (t *taken) address(ip netip.Addr) bool {
	if slices.Contains(t.r.addresses, ip) {
		return true
	}
	if !apiServer(t.r.svc) {
		for _, pool := range t.p.pools {
			if pool.first == ip {
				return true
			}
		}
	}
	return t.held(clusterip.Sole(ip)) || t.foreign(ip)
}

// apiServer reports whether a service is that of the API server.
func apiServer(svc *corev1.Service) bool {
	return svc.Namespace == metav1.NamespaceDefault && svc.Name == "kubernetes"
}

func (t *taken) port(port int32) bool {
	return t.p.own[port] || slices.Contains(t.r.ports, port) || t.held(corekinds.ServiceNodePort(port))
}

// findAddresses fills in and checks the service's addresses, one for each of its
// families.
func (p *ServiceAddresses) findAddresses(ctx context.Context, r *request, t *taken) error {
	if !hasAddress(r.svc) {
		return nil
	}
	spec := &r.svc.Spec
	asked := slices.Clone(spec.ClusterIPs) // as errors show them
	for i, family := range spec.IPFamilies {
		if i >= len(spec.ClusterIPs) {
			spec.ClusterIPs = append(spec.ClusterIPs, "")
		}
		own, ok := p.pools[family]
		if !ok {
			continue // refused by setFamilies, unless the service had it before
		}
		ranges, err := p.rangesOf(ctx, family)
		if err != nil {
			return err
		}
		if apiServer(r.svc) {
			ranges = []pool{own} // it has to start even if the range is not to be used any more
		}
		if s := spec.ClusterIPs[i]; s != "" {
			if r.old != nil && r.old.Spec.Type != corev1.ServiceTypeExternalName && i < len(r.old.Spec.ClusterIPs) {
				continue // it is the one that it had, or validation says that it must be
			}
			ip, err := netip.ParseAddr(s)
			switch {
			case err != nil:
				continue // validation says so
			default:
				if err = refusal(ranges, ip); err == nil && t.address(ip) {
					err = errAddressTaken
				}
			}
			if err != nil {
				r.errs = append(r.errs, field.Invalid(field.NewPath("spec", "clusterIPs"), asked, fmt.Sprintf("failed to allocate IP %v: %v", s, err)))
				continue
			}
			r.addresses = append(r.addresses, ip)
			continue
		}
		ip, err := nextOf(ranges, t.address)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP for Service %q: %w; delete services that are not needed, or create a ServiceCIDR with another network than %s", r.svc.Name, err, own.prefix))
		}
		r.addresses = append(r.addresses, ip)
		spec.ClusterIPs[i] = ip.String()
	}
	if len(spec.ClusterIPs) > 0 {
		spec.ClusterIP = spec.ClusterIPs[0]
	}
	return nil
}

// findPorts fills in and checks the service's node ports.
func (p *ServiceAddresses) findPorts(r *request, t *taken) error {
	spec := &r.svc.Spec
	if hasNodePorts(r.svc) {
		if err := p.findServicePorts(r, t); err != nil {
			return err
		}
	}
	if !needsHealthPort(r.svc) {
		return nil
	}
	if spec.HealthCheckNodePort != 0 {
		p.claim(r, t, spec.HealthCheckNodePort, field.NewPath("spec", "healthCheckNodePort"))
		return nil
	}
	port, err := p.nextPort(r, t)
	spec.HealthCheckNodePort = port
	return err
}

func (p *ServiceAddresses) findServicePorts(r *request, t *taken) error {
	spec := &r.svc.Spec
	// Ports with the same number and different protocols (DNS) share a node port.
	shared := map[int32]int32{} // by port
	uses := func(port int32, protocol corev1.Protocol) bool {
		return slices.ContainsFunc(spec.Ports, func(sp corev1.ServicePort) bool { return sp.NodePort == port && sp.Protocol == protocol })
	}
	for i, sp := range spec.Ports {
		if sp.NodePort != 0 && shared[sp.Port] != sp.NodePort {
			p.claim(r, t, sp.NodePort, field.NewPath("spec", "ports").Index(i).Child("nodePort"))
			shared[sp.Port] = sp.NodePort
		}
	}
	if !wantsNodePorts(r.svc) {
		return nil
	}
	for i := range spec.Ports {
		sp := &spec.Ports[i]
		if sp.NodePort != 0 {
			continue
		}
		if same := shared[sp.Port]; same != 0 && !uses(same, sp.Protocol) {
			sp.NodePort = same
			continue
		}
		port, err := p.nextPort(r, t)
		if err != nil {
			return err
		}
		sp.NodePort = port
		shared[sp.Port] = port
	}
	return nil
}

// claim takes a port that was asked for.
func (p *ServiceAddresses) claim(r *request, t *taken, port int32, path *field.Path) {
	var err error
	switch {
	case r.owns(port):
		return
	case !p.ports.holds(port):
		err = p.ports.refusal()
	case t.port(port):
		err = errPortTaken
	}
	if err != nil {
		r.errs = append(r.errs, field.Invalid(path, port, err.Error()))
		return
	}
	r.ports = append(r.ports, port)
}

func (p *ServiceAddresses) nextPort(r *request, t *taken) (int32, error) {
	port, err := p.ports.next(func(port int32) bool { return r.owns(port) || t.port(port) })
	if err != nil {
		return 0, apierrors.NewInternalError(fmt.Errorf("failed to allocate a nodePort: %w; delete services that are not needed", err))
	}
	r.ports = append(r.ports, port)
	return port, nil
}
