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

	Log *slog.Logger // nil means slog.Default
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

const (
	serviceName = "kubernetes"
	portName    = "https"
	servicePort = 443
)

// service returns the service of the API server and its endpoints, in both forms.
func (o Options) service() []thing {
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: serviceName}
	return []thing{o.kubernetesService(meta), o.endpoints(meta), o.endpointSlice(meta)}
}

func (o Options) kubernetesService(meta metav1.ObjectMeta) thing {
	family := corev1.IPv4Protocol
	if !o.ServiceNetwork.Addr().Is4() {
		family = corev1.IPv6Protocol
	}
	single, address := corev1.IPFamilyPolicySingleStack, o.ServiceNetwork.Masked().Addr().Next().String()
	meta.Labels = map[string]string{"component": "apiserver", "provider": "kubernetes"}
	want := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: meta,
		Spec: corev1.ServiceSpec{
			Type:            corev1.ServiceTypeClusterIP,
			ClusterIP:       address,
			ClusterIPs:      []string{address},
			IPFamilies:      []corev1.IPFamily{family},
			IPFamilyPolicy:  &single,
			SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{
				Name: portName, Protocol: corev1.ProtocolTCP, Port: servicePort, TargetPort: intstr.FromInt32(o.Port),
			}},
		},
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

func (o Options) endpoints(meta metav1.ObjectMeta) thing {
	meta.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"}
	subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: portName, Port: o.Port, Protocol: corev1.ProtocolTCP}}}
	for _, a := range o.Endpoints {
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

func (o Options) endpointSlice(meta metav1.ObjectMeta) thing {
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: serviceName}
	ready, name, protocol, port := true, portName, corev1.ProtocolTCP, o.Port
	want := &discoveryv1.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta:  meta,
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &protocol, Port: &port}},
	}
	if !o.ServiceNetwork.Addr().Is4() {
		want.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, a := range o.Endpoints {
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
