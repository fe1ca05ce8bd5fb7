package housekeeping

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	sliceManager     = "endpointslice-controller.k8s.io"
	endpointsManager = "endpoint-controller"

	// labelEndpointsManaged says who writes an Endpoints object.
	labelEndpointsManaged = "endpoints.kubernetes.io/managed-by"

	maxPerSlice  = 100  // endpoints of one slice
	maxAddresses = 1000 // of one Endpoints object, which has to fit into one
)

// A slicePlan is what has to be written so that the slices of a service are right.
type slicePlan struct {
	create []*discoveryv1.EndpointSlice
	update []*discoveryv1.EndpointSlice
	remove []*discoveryv1.EndpointSlice
}

// group is the endpoints of one family that have the same ports, which therefore may
// share slices.
type group struct {
	family discoveryv1.AddressType
	ports  []discoveryv1.EndpointPort
	want   map[string]discoveryv1.Endpoint // by address
}

func groupKey(family discoveryv1.AddressType, ports []discoveryv1.EndpointPort) string {
	return string(family) + " " + portKey(ports)
}

// planSlices compares the slices that a service has with its backends. Endpoints stay in
// the slice where they are, so that a change touches as few slices as possible.
// A family without endpoints keeps one empty slice.
func planSlices(svc *corev1.Service, backends []backend, have []*discoveryv1.EndpointSlice) (plan slicePlan) {
	groups := map[string]*group{}
	for _, family := range families(svc) {
		empty := true
		for _, b := range backends {
			address := addressOf(b.pod, family)
			if address == "" {
				continue
			}
			empty = false
			key := groupKey(family, b.ports)
			g := groups[key]
			if g == nil {
				g = &group{family, b.ports, map[string]discoveryv1.Endpoint{}}
				groups[key] = g
			}
			g.want[address] = endpointOf(b, address)
		}
		if empty {
			groups[groupKey(family, nil)] = &group{family: family}
		}
	}
	return arrange(groups, have, metav1.ObjectMeta{
		Namespace:    svc.Namespace,
		GenerateName: generated(svc.Name),
		Labels: labelsFor(svc, map[string]string{
			discoveryv1.LabelServiceName: svc.Name,
			discoveryv1.LabelManagedBy:   sliceManager,
		}),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(svc, corev1.SchemeGroupVersion.WithKind("Service"))},
	})
}

// arrange compares the slices that there are with the groups that there shall be. New
// slices begin with head, and all have its labels.
func arrange(groups map[string]*group, have []*discoveryv1.EndpointSlice, head metav1.ObjectMeta) (plan slicePlan) {
	byGroup := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range have {
		key := groupKey(s.AddressType, s.Ports)
		if groups[key] == nil || s.DeletionTimestamp != nil {
			plan.remove = append(plan.remove, s)
			continue
		}
		byGroup[key] = append(byGroup[key], s)
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		g := groups[key]
		slices.SortFunc(byGroup[key], func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
		plan.fill(&head, g, byGroup[key])
	}
	slices.SortFunc(plan.remove, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	return plan
}

// fill plans the slices of one group.
func (plan *slicePlan) fill(head *metav1.ObjectMeta, g *group, have []*discoveryv1.EndpointSlice) {
	left := maps.Clone(g.want)
	fresh := make([]*discoveryv1.EndpointSlice, len(have))
	for i, s := range have {
		f := s.DeepCopy()
		f.Labels = head.Labels
		f.Endpoints = nil
		for _, e := range s.Endpoints {
			for _, address := range e.Addresses {
				if want, ok := left[address]; ok {
					f.Endpoints = append(f.Endpoints, want)
					delete(left, address)
				}
			}
		}
		fresh[i] = f
	}
	// The new ones go where something changes anyhow, then where there is room, then
	// into slices of their own.
	addresses := slices.Sorted(maps.Keys(left))
	add := func(f *discoveryv1.EndpointSlice) {
		n := min(len(addresses), maxPerSlice-len(f.Endpoints))
		for _, a := range addresses[:max(n, 0)] {
			f.Endpoints = append(f.Endpoints, left[a])
		}
		addresses = addresses[max(n, 0):]
	}
	for _, touched := range []bool{true, false} {
		for i, f := range fresh {
			if equality.Semantic.DeepEqual(f.Endpoints, have[i].Endpoints) != touched {
				add(f)
			}
		}
	}
	kept := 0
	for _, f := range fresh {
		if len(f.Endpoints) > 0 {
			kept++
		}
	}
	for i, f := range fresh {
		switch {
		case len(f.Endpoints) == 0 && (kept > 0 || len(addresses) > 0):
			plan.remove = append(plan.remove, have[i])
			continue
		case len(f.Endpoints) == 0:
			kept++ // one empty slice stays
		}
		if !equality.Semantic.DeepEqual(f.Endpoints, have[i].Endpoints) || !maps.Equal(head.Labels, have[i].Labels) {
			plan.update = append(plan.update, f)
		}
	}
	for len(addresses) > 0 || kept == 0 {
		f := &discoveryv1.EndpointSlice{ObjectMeta: *head.DeepCopy(), AddressType: g.family, Ports: g.ports}
		add(f)
		plan.create = append(plan.create, f)
		kept++
	}
}

// generated returns a prefix of names that leaves room for what the server adds.
func generated(name string) string {
	return strings.TrimRight(name[:min(len(name), 57)], "-.") + "-"
}

func endpointOf(b backend, address string) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses:  []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: &b.ready, Serving: &b.serving, Terminating: &b.terminating},
		TargetRef:  podReference(b.pod),
	}
	if b.pod.Spec.NodeName != "" {
		e.NodeName = &b.pod.Spec.NodeName
	}
	if b.hostname != "" {
		e.Hostname = &b.hostname
	}
	return e
}

// planEndpoints returns the subsets of the Endpoints object, and whether some addresses
// had to be left out. Pods that are being deleted are not in it, unless the
// service wants to see pods that are not ready.
func planEndpoints(svc *corev1.Service, backends []backend) (subsets []corev1.EndpointSubset, truncated bool) {
	family := families(svc)[0]
	byPorts := map[string]*corev1.EndpointSubset{}
	total := 0
	// Those that are ready come first, so that they are not the ones left out.
	for _, ready := range []bool{true, false} {
		for _, b := range backends {
			address := addressOf(b.pod, family)
			if address == "" || b.ready != ready || b.terminating && !svc.Spec.PublishNotReadyAddresses {
				continue
			}
			if total++; total > maxAddresses {
				truncated = true
				continue
			}
			key := portKey(b.ports)
			set := byPorts[key]
			if set == nil {
				set = &corev1.EndpointSubset{Ports: plainPorts(b.ports)}
				byPorts[key] = set
			}
			a := corev1.EndpointAddress{IP: address, Hostname: b.hostname, TargetRef: podReference(b.pod)}
			if b.pod.Spec.NodeName != "" {
				a.NodeName = &b.pod.Spec.NodeName
			}
			if ready {
				set.Addresses = append(set.Addresses, a)
			} else {
				set.NotReadyAddresses = append(set.NotReadyAddresses, a)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byPorts)) {
		set := byPorts[key]
		byIP := func(a, b corev1.EndpointAddress) int { return cmp.Compare(a.IP, b.IP) }
		slices.SortFunc(set.Addresses, byIP)
		slices.SortFunc(set.NotReadyAddresses, byIP)
		subsets = append(subsets, *set)
	}
	return subsets, truncated
}

func plainPorts(ports []discoveryv1.EndpointPort) (plain []corev1.EndpointPort) {
	for _, p := range ports {
		plain = append(plain, corev1.EndpointPort{Name: deref(p.Name), Port: deref(p.Port), Protocol: deref(p.Protocol), AppProtocol: p.AppProtocol})
	}
	return plain
}
