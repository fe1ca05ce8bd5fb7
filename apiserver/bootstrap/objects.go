package bootstrap

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/scheduling"
)

// Options configures a [Keeper]. API, ServiceNetwork and Port are required.
type Options struct {
	API API

	// ServiceNetwork is where service addresses come from; the service gets the
	// first.
	ServiceNetwork netip.Prefix

	// Endpoints are the addresses where pods reach the API server: not loopback,
	// and of the family of ServiceNetwork. Without any, where no pod runs that could
	// ask, the service has no endpoints.
	Endpoints []netip.Addr

	Port int32 // where the API server listens

	// DNS is where pods reach the cluster's name server; the zero value means that
	// there is none.
	DNS DNS

	Log *slog.Logger // nil means slog.Default
}

// DNS is where a name server is: at one address, and at ports that are its own.
type DNS struct {
	Address netip.Addr
	Port    int32 // over UDP and TCP
	Metrics int32 // over HTTP; 0 means nowhere
}

// DNSAddress returns the address of the service of the cluster's name server, the tenth
// of the service network, as Kubernetes has it, or the zero Addr if the network has no
// such.
func DNSAddress(services netip.Prefix) netip.Addr {
	a := services.Masked().Addr()
	for range 10 {
		a = a.Next()
	}
	if !services.Contains(a) || !services.Contains(a.Next()) { // the last may be the broadcast address
		return netip.Addr{}
	}
	return a
}

func (o Options) check() (Options, error) {
	switch {
	case o.API == nil:
		return o, errors.New("bootstrap: Options.API is nil")
	case !o.ServiceNetwork.IsValid():
		return o, errors.New("bootstrap: Options.ServiceNetwork is not a network")
	case o.Port < 1 || o.Port > 65535:
		return o, fmt.Errorf("bootstrap: Options.Port is %d, want a port", o.Port)
	}
	if a := o.DNS.Address; a.IsValid() && (a.IsLoopback() || a.Is4() != o.ServiceNetwork.Addr().Is4() || o.DNS.Port < 1 || o.DNS.Port > 65535) {
		return o, fmt.Errorf("bootstrap: Options.DNS is %v, want where pods reach a name server", o.DNS)
	}
	for _, a := range o.Endpoints {
		if a.Is4() != o.ServiceNetwork.Addr().Is4() {
			return o, fmt.Errorf("bootstrap: the API server's address %s is of another IP family than the service network %s", a, o.ServiceNetwork)
		}
		if a.IsLoopback() {
			return o, fmt.Errorf("bootstrap: the API server's address %s is a loopback address, which pods cannot reach", a)
		}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o, nil
}

// A remedy is what has to be done about an object.
type remedy int

const (
	asItShould remedy = iota
	update
	replace
)

// A thing is an object that is kept.
type thing struct {
	gvr    schema.GroupVersionResource
	object catalog.Object

	// fix returns what found should be, in a copy, and what has to be done. It
	// leaves alone what others may set.
	fix func(found runtime.Object) (runtime.Object, remedy)
}

func (t thing) String() string {
	if ns := t.object.GetNamespace(); ns != "" {
		return t.gvr.Resource + "/" + ns + "/" + t.object.GetName()
	}
	return t.gvr.Resource + "/" + t.object.GetName()
}

func namespaces() []thing {
	var things []thing
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease} {
		things = append(things, thing{
			gvr:    corev1.SchemeGroupVersion.WithResource("namespaces"),
			object: &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name}},
			fix:    func(found runtime.Object) (runtime.Object, remedy) { return found, asItShould },
		})
	}
	return things
}

// priorities returns the system's priority classes. Their numbers cannot be changed, so there is nothing to
// be mended.
func priorities() []thing {
	var things []thing
	for _, c := range scheduling.System() {
		things = append(things, thing{
			gvr:    schedulingv1.SchemeGroupVersion.WithResource("priorityclasses"),
			object: c,
			fix:    func(found runtime.Object) (runtime.Object, remedy) { return found, asItShould },
		})
	}
	return things
}

// A fixture is a service without pods: where it leads is known from the start.
type fixture struct {
	meta      metav1.ObjectMeta
	address   netip.Addr
	ports     []fixedPort
	endpoints []netip.Addr
}

type fixedPort struct {
	name     string
	protocol corev1.Protocol
	port     int32
	target   int32
}

// kubernetes is the service of the API server.
func (o Options) kubernetes() fixture {
	const servicePort = 443
	return fixture{
		meta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: "kubernetes",
			Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"},
		},
		address:   o.ServiceNetwork.Masked().Addr().Next(),
		ports:     []fixedPort{{"https", corev1.ProtocolTCP, servicePort, o.Port}},
		endpoints: o.Endpoints,
	}
}

// kubeDNS is the service of the name server, under the name that charts and people know.
func (o Options) kubeDNS() fixture {
	const (
		dnsPort     = 53
		metricsPort = 9153 // of CoreDNS
	)
	f := fixture{
		meta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "kube-dns", Labels: map[string]string{"k8s-app": "kube-dns"},
		},
		address: DNSAddress(o.ServiceNetwork),
		ports: []fixedPort{
			{"dns", corev1.ProtocolUDP, dnsPort, o.DNS.Port},
			{"dns-tcp", corev1.ProtocolTCP, dnsPort, o.DNS.Port},
		},
		endpoints: []netip.Addr{o.DNS.Address},
	}
	if o.DNS.Metrics != 0 {
		f.ports = append(f.ports, fixedPort{"metrics", corev1.ProtocolTCP, metricsPort, o.DNS.Metrics})
	}
	return f
}

// things returns the service and its endpoints, in both forms.
func (f fixture) things() []thing { return []thing{f.service(), f.endpointsThing(), f.slice()} }

func (f fixture) service() thing {
	family := corev1.IPv4Protocol
	if !f.address.Is4() {
		family = corev1.IPv6Protocol
	}
	single, address := corev1.IPFamilyPolicySingleStack, f.address.String()
	want := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: f.meta,
		Spec: corev1.ServiceSpec{
			Type:            corev1.ServiceTypeClusterIP,
			ClusterIP:       address,
			ClusterIPs:      []string{address},
			IPFamilies:      []corev1.IPFamily{family},
			IPFamilyPolicy:  &single,
			SessionAffinity: corev1.ServiceAffinityNone,
		},
	}
	for _, p := range f.ports {
		want.Spec.Ports = append(want.Spec.Ports, corev1.ServicePort{Name: p.name, Protocol: p.protocol, Port: p.port, TargetPort: intstr.FromInt32(p.target)})
	}
	return thing{corev1.SchemeGroupVersion.WithResource("services"), want, func(found runtime.Object) (runtime.Object, remedy) {
		have, ok := found.(*corev1.Service)
		if !ok || have.Spec.ClusterIP != address {
			return want, replace // the address of a service cannot be changed
		}
		fixed := have.DeepCopy()
		fixed.Labels = merged(have.Labels, want.Labels)
		fixed.Spec.Type, fixed.Spec.Selector, fixed.Spec.SessionAffinity = want.Spec.Type, nil, want.Spec.SessionAffinity
		fixed.Spec.Ports = want.Spec.Ports
		return compared(have, fixed)
	}}
}

func (f fixture) endpointsThing() thing {
	meta := *f.meta.DeepCopy()
	meta.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"}
	var subset corev1.EndpointSubset
	for _, p := range f.ports {
		subset.Ports = append(subset.Ports, corev1.EndpointPort{Name: p.name, Port: p.target, Protocol: p.protocol})
	}
	for _, a := range f.endpoints {
		subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: a.String()})
	}
	want := &corev1.Endpoints{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Endpoints"}, ObjectMeta: meta}
	if len(subset.Addresses) > 0 {
		want.Subsets = []corev1.EndpointSubset{subset}
	}
	return thing{corev1.SchemeGroupVersion.WithResource("endpoints"), want, func(found runtime.Object) (runtime.Object, remedy) {
		have, ok := found.(*corev1.Endpoints)
		if !ok {
			return want, replace
		}
		fixed := have.DeepCopy()
		fixed.Labels = merged(have.Labels, want.Labels)
		fixed.Subsets = want.Subsets
		return compared(have, fixed)
	}}
}

func (f fixture) slice() thing {
	meta := *f.meta.DeepCopy()
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: f.meta.Name}
	want := &discoveryv1.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta:  meta,
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	if !f.address.Is4() {
		want.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, p := range f.ports {
		want.Ports = append(want.Ports, discoveryv1.EndpointPort{Name: &p.name, Protocol: &p.protocol, Port: &p.target})
	}
	ready := true
	for _, a := range f.endpoints {
		want.Endpoints = append(want.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{a.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return thing{discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), want, func(found runtime.Object) (runtime.Object, remedy) {
		have, ok := found.(*discoveryv1.EndpointSlice)
		if !ok || have.AddressType != want.AddressType {
			return want, replace // the type of a slice cannot be changed
		}
		fixed := have.DeepCopy()
		fixed.Labels = merged(have.Labels, want.Labels)
		fixed.Ports, fixed.Endpoints = want.Ports, want.Endpoints
		return compared(have, fixed)
	}}
}

func merged(have, want map[string]string) map[string]string {
	labels := maps.Clone(have)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, want)
	return labels
}

func compared(have, fixed runtime.Object) (runtime.Object, remedy) {
	if equality.Semantic.DeepEqual(have, fixed) {
		return fixed, asItShould
	}
	return fixed, update
}
