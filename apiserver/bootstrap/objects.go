package bootstrap

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/apiserver/rbac/bootstrappolicy"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/flowcontrol"
	"github.com/sampan-io/sampan/catalog/scheduling"
)

// Options configures a [Reconciler]. API, ServiceNetworks and Port are required.
type Options struct {
	API API

	// ServiceNetworks are where service addresses come from: one, or one of each IP
	// family, the primary one first. The service gets the first of that.
	ServiceNetworks []netip.Prefix

	// Endpoints are the addresses where pods reach the API server: not loopback,
	// and of the primary family. Without any, where no pod runs that could
	// ask, the service has no endpoints.
	Endpoints []netip.Addr

	Port int32 // where the API server listens

	// DNS is where pods reach the cluster's name server: at most one address for each IP family.
	// Without one the cluster has no name server.
	DNS []DNS

	// Authentication returns the data to authenticate users as the API server does, for the ConfigMap
	// extension-apiserver-authentication in kube-system: its keys and values. Nil means that there is none.
	Authentication func() map[string]string

	// Published are more ConfigMaps that others read.
	Published []Published

	// Roles are the changes to the stored roles and bindings with which the cluster starts.
	Roles []bootstrappolicy.Change

	Log *slog.Logger // nil means slog.Default
}

// Published is a ConfigMap that is kept. Keys that Data does not return are left alone.
type Published struct {
	Namespace, Name string
	Data            func() map[string]string
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
	case len(o.ServiceNetworks) == 0 || len(o.ServiceNetworks) > 2 || slices.ContainsFunc(o.ServiceNetworks, func(n netip.Prefix) bool { return !n.IsValid() }):
		return o, fmt.Errorf("bootstrap: Options.ServiceNetworks is not a network, or one of each IP family: %v", o.ServiceNetworks)
	case o.Port < 1 || o.Port > 65535:
		return o, fmt.Errorf("bootstrap: Options.Port is %d, want a port", o.Port)
	}
	for i, d := range o.DNS {
		twice := slices.ContainsFunc(o.DNS[:i], func(other DNS) bool { return other.Address.Is4() == d.Address.Is4() })
		if a := d.Address; !a.IsValid() || a.IsLoopback() || twice || o.network(a) == (netip.Prefix{}) || d.Port < 1 || d.Port > 65535 {
			return o, fmt.Errorf("bootstrap: Options.DNS is %v, want addresses of a name server", o.DNS)
		}
	}
	for _, a := range o.Endpoints {
		if primary := o.ServiceNetworks[0]; a.Is4() != primary.Addr().Is4() {
			return o, fmt.Errorf("bootstrap: the API server's address %s is of another IP family than the service network %s", a, primary)
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

// network returns the service network of the IP family of an address, or none.
func (o Options) network(a netip.Addr) netip.Prefix {
	for _, n := range o.ServiceNetworks {
		if n.Addr().Is4() == a.Is4() {
			return n
		}
	}
	return netip.Prefix{}
}

// A remedy is the write that an object needs.
type remedy int

const (
	asItShould remedy = iota
	update
	replace
)

// A thing is an object that is kept.
type thing struct {
	gvr     schema.GroupVersionResource
	object  catalog.Object
	manager string // of its fields; empty means that of the user

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

// flowControlManager is the manager of the objects of API Priority and Fairness, as upstream's.
const flowControlManager = "api-priority-and-fairness-config-producer-v1"

// levels returns the priority levels of every cluster, which exist before the [schemas] that refer to them. Mandatory ones
// are as they have to be. The specs of suggested ones are kept unless their annotation, or without one a change of their
// spec, says that they are the administrator's. Each has the annotation, so that the administrator sees which it is.
func levels() (things []thing) {
	for i, levels := range [][]*flowcontrolv1.PriorityLevelConfiguration{flowcontrol.MandatoryLevels(), flowcontrol.SuggestedLevels()} {
		for _, l := range levels {
			things = append(things, flowControl("prioritylevelconfigurations", l, i == 0))
		}
	}
	return things
}

// schemas returns the flow schemas of every cluster, which are kept as the levels are.
func schemas() (things []thing) {
	for i, schemas := range [][]*flowcontrolv1.FlowSchema{flowcontrol.MandatorySchemas(), flowcontrol.SuggestedSchemas()} {
		for _, s := range schemas {
			things = append(things, flowControl("flowschemas", s, i == 0))
		}
	}
	return things
}

func flowControl(resource string, object catalog.Object, mandatory bool) thing {
	return thing{
		gvr:     flowcontrolv1.SchemeGroupVersion.WithResource(resource),
		object:  object,
		manager: flowControlManager,
		fix:     func(found runtime.Object) (runtime.Object, remedy) { return fixFlowControl(object, found, mandatory) },
	}
}

// fixFlowControl returns what found, a level or schema, should be.
func fixFlowControl(want catalog.Object, found runtime.Object, mandatory bool) (runtime.Object, remedy) {
	fixed, ok := found.DeepCopyObject().(catalog.Object)
	if !ok {
		return found, asItShould
	}
	value, annotated := fixed.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey]
	ours, err := strconv.ParseBool(value)
	if mandatory {
		ours = true
	} else if err != nil {
		ours = fixed.GetGeneration() == 1
	}
	how := asItShould
	if is, err2 := strconv.ParseBool(value); !annotated || err2 != nil || is != ours {
		annotations := maps.Clone(fixed.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[flowcontrolv1.AutoUpdateAnnotationKey] = strconv.FormatBool(ours)
		fixed.SetAnnotations(annotations)
		how = update
	}
	if ours && replaceSpec(fixed, want) {
		how = update
	}
	return fixed, how
}

// replaceSpec gives an object the spec of another one of its kind, and reports whether that changed it.
func replaceSpec(into, from catalog.Object) bool {
	switch into := into.(type) {
	case *flowcontrolv1.FlowSchema:
		want := from.(*flowcontrolv1.FlowSchema)
		if equality.Semantic.DeepEqual(into.Spec, want.Spec) {
			return false
		}
		want.Spec.DeepCopyInto(&into.Spec)
	case *flowcontrolv1.PriorityLevelConfiguration:
		want := from.(*flowcontrolv1.PriorityLevelConfiguration).DeepCopy()
		if want.Spec.Exempt != nil && into.Spec.Exempt != nil { // its numbers are the administrator's
			want.Spec.Exempt = into.Spec.Exempt
		}
		if equality.Semantic.DeepEqual(into.Spec, want.Spec) {
			return false
		}
		want.Spec.DeepCopyInto(&into.Spec)
	default:
		return false
	}
	return true
}

// published are the ConfigMaps of Options.Authentication, from which servers of aggregated APIs learn whom to trust, and of
// Options.Published.
func (o Options) published() []thing {
	all := o.Published
	if o.Authentication != nil {
		all = append([]Published{{metav1.NamespaceSystem, "extension-apiserver-authentication", o.Authentication}}, all...)
	}
	var things []thing
	for _, p := range all {
		things = append(things, p.thing())
	}
	return things
}

func (p Published) thing() thing {
	object := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		Data:       p.Data(),
	}
	return thing{gvr: corev1.SchemeGroupVersion.WithResource("configmaps"), object: object, fix: func(found runtime.Object) (runtime.Object, remedy) {
		have, ok := found.(*corev1.ConfigMap)
		if !ok {
			return object, replace
		}
		fixed := have.DeepCopy()
		fixed.Data = merged(have.Data, p.Data())
		return compared(have, fixed)
	}}
}

// tokenTracking is the ConfigMap that says since when the use of tokens in Secrets is recorded.
func tokenTracking(now time.Time) thing {
	const since = "since"
	object := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-legacy-service-account-token-tracking"},
		Data:       map[string]string{since: now.UTC().Format(time.DateOnly)},
	}
	return thing{gvr: corev1.SchemeGroupVersion.WithResource("configmaps"), object: object, fix: func(found runtime.Object) (runtime.Object, remedy) {
		have, ok := found.(*corev1.ConfigMap)
		if !ok {
			return object, replace
		}
		if _, err := time.Parse(time.DateOnly, have.Data[since]); err == nil {
			return have, asItShould
		}
		fixed := have.DeepCopy()
		fixed.Data = merged(have.Data, object.Data)
		return fixed, update
	}}
}

// serviceCIDR is the default ServiceCIDR, which shows the service networks. Its controller reports that it is ready. If a cluster
// gets a second IP family, so does the object; otherwise its networks cannot be changed.
func (o Options) serviceCIDR() thing {
	want := &networkingv1.ServiceCIDR{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "ServiceCIDR"},
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
	}
	for _, n := range o.ServiceNetworks {
		want.Spec.CIDRs = append(want.Spec.CIDRs, n.Masked().String())
	}
	return thing{gvr: networkingv1.SchemeGroupVersion.WithResource("servicecidrs"), object: want, fix: func(found runtime.Object) (runtime.Object, remedy) {
		have, ok := found.(*networkingv1.ServiceCIDR)
		if !ok || len(have.Spec.CIDRs) != 1 || len(want.Spec.CIDRs) != 2 || have.Spec.CIDRs[0] != want.Spec.CIDRs[0] {
			return found, asItShould
		}
		fixed := have.DeepCopy()
		fixed.Spec.CIDRs = want.Spec.CIDRs
		return fixed, update
	}}
}

// A fixture is a service without pods: where it leads is known from the start.
type fixture struct {
	meta  metav1.ObjectMeta
	ports []fixedPort
	faces []face // the primary one first
}

type fixedPort struct {
	name     string
	protocol corev1.Protocol
	port     int32
}

// A face is the part of a fixture in one IP family.
type face struct {
	address   netip.Addr   // of the service
	endpoints []netip.Addr // where it leads
	targets   []int32      // the ports there, one for each of the fixture
}

func (f face) family() corev1.IPFamily {
	if f.address.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// kubernetes is the service of the API server. It has the primary family alone, as upstream.
func (o Options) kubernetes() fixture {
	const servicePort = 443
	return fixture{
		meta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: "kubernetes",
			Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"},
		},
		ports: []fixedPort{{"https", corev1.ProtocolTCP, servicePort}},
		faces: []face{{o.ServiceNetworks[0].Masked().Addr().Next(), o.Endpoints, []int32{o.Port}}},
	}
}

// kubeDNS is the service of the name server, under the name that charts and people know. It
// has the families that the name server has or, if there is none (to be removed), could have.
func (o Options) kubeDNS() fixture {
	const (
		dnsPort     = 53
		metricsPort = 9153 // of CoreDNS
	)
	f := fixture{
		meta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "kube-dns",
			// By the second label kubectl cluster-info finds the services of the cluster itself.
			Labels: map[string]string{"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true"},
		},
		ports: []fixedPort{{"dns", corev1.ProtocolUDP, dnsPort}, {"dns-tcp", corev1.ProtocolTCP, dnsPort}},
	}
	measured := len(o.DNS) > 0 && !slices.ContainsFunc(o.DNS, func(d DNS) bool { return d.Metrics == 0 })
	if measured {
		f.ports = append(f.ports, fixedPort{"metrics", corev1.ProtocolTCP, metricsPort})
		// By these, which the manifests of CoreDNS have, Prometheus finds its targets.
		f.meta.Annotations = map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": strconv.Itoa(metricsPort)}
	}
	for _, n := range o.ServiceNetworks {
		one := face{address: DNSAddress(n)}
		i := slices.IndexFunc(o.DNS, func(d DNS) bool { return d.Address.Is4() == n.Addr().Is4() })
		switch {
		case !one.address.IsValid() || len(o.DNS) > 0 && i < 0:
			continue
		case i >= 0:
			d := o.DNS[i]
			one.endpoints, one.targets = []netip.Addr{d.Address}, []int32{d.Port, d.Port}
			if measured {
				one.targets = append(one.targets, d.Metrics)
			}
		default:
			one.targets = make([]int32, len(f.ports))
		}
		f.faces = append(f.faces, one)
	}
	return f
}

// things returns the service and its endpoints, in both forms; nothing if there is no
// address for it.
func (f fixture) things() []thing {
	if len(f.faces) == 0 {
		return nil
	}
	things := []thing{f.service(), f.endpointsThing()}
	for i, one := range f.faces {
		name := f.meta.Name
		if i > 0 {
			name += "-" + strings.ToLower(string(one.family()))
		}
		things = append(things, f.slice(name, one))
	}
	return things
}

func (f fixture) service() thing {
	policy, address := corev1.IPFamilyPolicySingleStack, f.faces[0].address.String()
	if len(f.faces) > 1 {
		policy = corev1.IPFamilyPolicyPreferDualStack
	}
	want := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: f.meta,
		Spec: corev1.ServiceSpec{
			Type:            corev1.ServiceTypeClusterIP,
			ClusterIP:       address,
			IPFamilyPolicy:  &policy,
			SessionAffinity: corev1.ServiceAffinityNone,
		},
	}
	for _, one := range f.faces {
		want.Spec.ClusterIPs = append(want.Spec.ClusterIPs, one.address.String())
		want.Spec.IPFamilies = append(want.Spec.IPFamilies, one.family())
	}
	for i, p := range f.ports {
		want.Spec.Ports = append(want.Spec.Ports, corev1.ServicePort{Name: p.name, Protocol: p.protocol, Port: p.port, TargetPort: intstr.FromInt32(f.faces[0].targets[i])})
	}
	return thing{gvr: corev1.SchemeGroupVersion.WithResource("services"), object: want, fix: func(found runtime.Object) (runtime.Object, remedy) {
		have, ok := found.(*corev1.Service)
		if !ok || have.Spec.ClusterIP != address {
			return want, replace // the address of a service cannot be changed
		}
		fixed := have.DeepCopy()
		fixed.Labels = merged(have.Labels, want.Labels)
		fixed.Spec.Type, fixed.Spec.Selector, fixed.Spec.SessionAffinity = want.Spec.Type, nil, want.Spec.SessionAffinity
		fixed.Spec.Ports = want.Spec.Ports
		if len(f.faces) > 1 {
			fixed.Spec.IPFamilyPolicy, fixed.Spec.IPFamilies, fixed.Spec.ClusterIPs = want.Spec.IPFamilyPolicy, want.Spec.IPFamilies, want.Spec.ClusterIPs
		}
		return compared(have, fixed)
	}}
}

func (f fixture) endpointsThing() thing {
	meta := *f.meta.DeepCopy()
	meta.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"}
	var subset corev1.EndpointSubset
	primary := f.faces[0] // this form has no other
	for i, p := range f.ports {
		subset.Ports = append(subset.Ports, corev1.EndpointPort{Name: p.name, Port: primary.targets[i], Protocol: p.protocol})
	}
	for _, a := range primary.endpoints {
		subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: a.String()})
	}
	want := &corev1.Endpoints{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Endpoints"}, ObjectMeta: meta}
	if len(subset.Addresses) > 0 {
		want.Subsets = []corev1.EndpointSubset{subset}
	}
	return thing{gvr: corev1.SchemeGroupVersion.WithResource("endpoints"), object: want, fix: func(found runtime.Object) (runtime.Object, remedy) {
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

func (f fixture) slice(name string, one face) thing {
	meta := *f.meta.DeepCopy()
	meta.Name = name
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: f.meta.Name}
	want := &discoveryv1.EndpointSlice{
		TypeMeta:    metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta:  meta,
		AddressType: discoveryv1.AddressType(one.family()),
	}
	for i, p := range f.ports {
		want.Ports = append(want.Ports, discoveryv1.EndpointPort{Name: &p.name, Protocol: &p.protocol, Port: &one.targets[i]})
	}
	ready := true
	for _, a := range one.endpoints {
		want.Endpoints = append(want.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{a.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return thing{gvr: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), object: want, fix: func(found runtime.Object) (runtime.Object, remedy) {
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
