package endpoints

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/sorting"
)

const mirrorManager = "endpointslicemirroring-controller.k8s.io"

// mirror copies Endpoints that a user wrote into slices, because proxies read only slices. If the service was deleted (svc is
// nil) or has a selector, and so slices for its pods, the copies are deleted.
func (e *endpoints) mirror(ctx context.Context, key controller.Key, svc *corev1.Service) error {
	have := e.slicesOf(mirrorManager, key)
	written, ok := e.endpoints.Get(key.Namespace, key.Name)
	if !ok || svc == nil || len(svc.Spec.Selector) > 0 || written.DeletionTimestamp != nil || !mirrored(written) {
		return e.apply(ctx, key, slicePlan{remove: have}, time.Time{})
	}
	plan, skipped := planMirror(written, have)
	if changes := len(plan.create) + len(plan.update) + len(plan.remove); changes == 0 {
		return nil
	}
	if skipped > 0 {
		e.events.Event(written, corev1.EventTypeWarning, "TooManyAddressesToMirror", "Only the first %d addresses of a subset are mirrored to EndpointSlices; %d are left out", maxMirrored, skipped)
	}
	return e.apply(ctx, key, plan, time.Time{})
}

// maxMirrored is how many addresses of a subset are mirrored.
const maxMirrored = 1000

// leaderAnnotation is on Endpoints that stand for an election and lead nowhere.
const leaderAnnotation = "control-plane.alpha.kubernetes.io/leader"

// mirrored reports whether Endpoints are to be mirrored.
func mirrored(written *corev1.Endpoints) bool {
	_, election := written.Annotations[leaderAnnotation]
	return !election && written.Labels[discoveryv1.LabelSkipMirror] != "true"
}

// planMirror compares the slices that mirror an Endpoints object with it, and
// returns how many of its addresses are too many.
func planMirror(written *corev1.Endpoints, have []*discoveryv1.EndpointSlice) (plan slicePlan, skipped int) {
	groups := map[string]*group{}
	for i := range written.Subsets {
		s := &written.Subsets[i]
		ports := slicePorts(s.Ports)
		room := maxMirrored
		add := func(addresses []corev1.EndpointAddress, ready bool) {
			left := max(0, len(addresses)-room)
			skipped, room = skipped+left, max(0, room-len(addresses))
			for _, a := range addresses[:len(addresses)-left] {
				family := discoveryv1.AddressTypeIPv4
				if ip, err := netip.ParseAddr(a.IP); err != nil {
					continue // an endpoint without an address
				} else if ip.Is6() {
					family = discoveryv1.AddressTypeIPv6
				}
				key := groupKey(family, ports)
				if groups[key] == nil {
					groups[key] = &group{family, ports, map[endpointKey]discoveryv1.Endpoint{}}
				}
				endpoint := discoveryv1.Endpoint{
					Addresses: []string{a.IP}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
					NodeName: a.NodeName, TargetRef: a.TargetRef,
				}
				if a.Hostname != "" {
					endpoint.Hostname = &a.Hostname
				}
				groups[key].put(endpoint)
			}
		}
		add(s.Addresses, true)
		add(s.NotReadyAddresses, false)
	}
	labels := maps.Clone(written.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	delete(labels, corev1.IsHeadlessService)
	labels[discoveryv1.LabelServiceName] = written.Name
	labels[discoveryv1.LabelManagedBy] = mirrorManager
	annotations := maps.Clone(written.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, corev1.EndpointsLastChangeTriggerTime)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	return arrange(groups, have, metav1.ObjectMeta{
		Annotations:     annotations,
		Namespace:       written.Namespace,
		GenerateName:    generated(written.Name),
		Labels:          labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(written, corev1.SchemeGroupVersion.WithKind("Endpoints"))},
	}), skipped
}

// put adds an endpoint, unless it is there and ready: one in both lists is ready.
func (g *group) put(e discoveryv1.Endpoint) {
	key := keyOfEndpoint(&e)
	if old, ok := g.want[key]; !ok || !*old.Conditions.Ready {
		g.want[key] = e
	}
}

// slicePorts returns the ports of a subset as slices have them, sorted by name.
func slicePorts(plain []corev1.EndpointPort) (ports []discoveryv1.EndpointPort) {
	for i := range plain {
		p := &plain[i]
		ports = append(ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol, AppProtocol: p.AppProtocol})
	}
	sorting.Slice(ports, func(a, b discoveryv1.EndpointPort) int { return cmp.Compare(*a.Name, *b.Name) })
	return ports
}
