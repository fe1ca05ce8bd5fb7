package endpoints

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/internal/sorting"
)

const (
	sliceManager     = "endpointslice-controller.k8s.io"
	endpointsManager = "endpoint-controller"

	// labelEndpointsManaged is the label with the name of the controller that writes an Endpoints object.
	labelEndpointsManaged = "endpoints.kubernetes.io/managed-by"

	maxPerSlice  = 100  // endpoints of one slice
	maxAddresses = 1000 // of one Endpoints object, which has to fit into one
)

// A slicePlan is the writes that make the slices of a service right.
type slicePlan struct {
	create []*discoveryv1.EndpointSlice
	update []*discoveryv1.EndpointSlice
	remove []*discoveryv1.EndpointSlice

	// hints says for each family why endpoints have no hints although the service
	// asks for those of its topology mode.
	hints map[discoveryv1.AddressType]string
}

// group is the endpoints of one family that have the same ports, which therefore may
// share slices.
type group struct {
	family discoveryv1.AddressType
	ports  []discoveryv1.EndpointPort
	want   map[endpointKey]discoveryv1.Endpoint
}

// An endpointKey identifies an endpoint. The address is not enough: pods in the network of their node share its address.
type endpointKey struct{ address, namespace, name string }

func keyOfEndpoint(e *discoveryv1.Endpoint) (k endpointKey) {
	if len(e.Addresses) > 0 {
		k.address = e.Addresses[0]
	}
	if e.TargetRef != nil {
		k.namespace, k.name = e.TargetRef.Namespace, e.TargetRef.Name
	}
	return k
}

func (k endpointKey) compare(other endpointKey) int {
	return cmp.Or(cmp.Compare(k.address, other.address), cmp.Compare(k.namespace, other.namespace), cmp.Compare(k.name, other.name))
}

func groupKey(family discoveryv1.AddressType, ports []discoveryv1.EndpointPort) string {
	return string(family) + " " + portKey(ports)
}

// planSlices compares the slices that a service has with its backends. Endpoints stay in
// the slice where they are, so that a change touches as few slices as possible. A family
// without endpoints keeps one empty slice.
func planSlices(svc *corev1.Service, backends []backend, have []*discoveryv1.EndpointSlice, where topology) slicePlan {
	groups := map[string]*group{}
	hints := map[discoveryv1.AddressType]string{}
	for _, family := range families(svc) {
		var ours []*group
		for _, b := range backends {
			address := addressOf(b.pod, family)
			if address == "" {
				continue
			}
			key := groupKey(family, b.ports)
			g := groups[key]
			if g == nil {
				g = &group{family, b.ports, map[endpointKey]discoveryv1.Endpoint{}}
				groups[key] = g
				ours = append(ours, g)
			}
			e := endpointOf(b, address, where.zone(b.pod.Spec.NodeName))
			g.want[keyOfEndpoint(&e)] = e
		}
		if len(ours) == 0 {
			groups[groupKey(family, nil)] = &group{family: family}
		}
		if why := giveHints(svc, ours, have, where); why != "" {
			hints[family] = why
		}
	}
	plan := arrange(groups, have, metav1.ObjectMeta{
		Namespace:    svc.Namespace,
		GenerateName: generated(svc.Name),
		Labels: labelsFor(svc, map[string]string{
			discoveryv1.LabelServiceName: svc.Name,
			discoveryv1.LabelManagedBy:   sliceManager,
		}),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(svc, corev1.SchemeGroupVersion.WithKind("Service"))},
	})
	plan.hints = hints
	return plan
}

// arrange compares the slices that there are with the groups that there shall be. New
// slices begin with head, and all have its labels; and its annotations, if it has any.
func arrange(groups map[string]*group, have []*discoveryv1.EndpointSlice, head metav1.ObjectMeta) (plan slicePlan) {
	byGroup := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range have {
		key := groupKey(s.AddressType, s.Ports)
		if groups[key] == nil || s.DeletionTimestamp != nil || !belongs(s, &head) {
			plan.remove = append(plan.remove, s)
			continue
		}
		byGroup[key] = append(byGroup[key], s)
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		slices.SortFunc(byGroup[key], byName)
		plan.fill(&head, groups[key], byGroup[key])
	}
	slices.SortFunc(plan.remove, byName)
	plan.recycle(&head)
	return plan
}

func byName(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) }

// belongs reports whether a slice has the owner in head. A service that was deleted and created again under the same name
// finds the slices of its predecessor.
func belongs(s *discoveryv1.EndpointSlice, head *metav1.ObjectMeta) bool {
	owner := head.OwnerReferences[0]
	return slices.ContainsFunc(s.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == owner.UID && o.Kind == owner.Kind })
}

// recycle turns slices that are not needed any more into slices that are missing, so that watchers get one event and not
// two.
func (plan *slicePlan) recycle(head *metav1.ObjectMeta) {
	var create []*discoveryv1.EndpointSlice
	for _, s := range plan.create {
		i := slices.IndexFunc(plan.remove, func(r *discoveryv1.EndpointSlice) bool {
			return r.AddressType == s.AddressType && r.DeletionTimestamp == nil && belongs(r, head)
		})
		if i < 0 {
			create = append(create, s)
			continue
		}
		f := plan.remove[i].DeepCopy()
		f.Labels, f.Ports, f.Endpoints = s.Labels, s.Ports, s.Endpoints
		if s.Annotations != nil {
			f.Annotations = s.Annotations
		}
		plan.remove = slices.Delete(plan.remove, i, i+1)
		plan.update = append(plan.update, f)
	}
	plan.create = create
}

// A draft is a slice as it is to become.
type draft struct {
	old       *discoveryv1.EndpointSlice
	endpoints []discoveryv1.Endpoint // shared with old if nothing is different
	changed   bool
}

// keep returns what remains of a slice, and takes it from left.
func keep(s *discoveryv1.EndpointSlice, left map[endpointKey]discoveryv1.Endpoint) draft {
	d := draft{old: s}
	for i := range s.Endpoints {
		key := keyOfEndpoint(&s.Endpoints[i])
		want, ok := left[key]
		if ok && len(s.Endpoints[i].Addresses) == 1 && sameEndpoint(&s.Endpoints[i], &want) {
			if d.changed {
				d.endpoints = append(d.endpoints, want)
			}
			delete(left, key)
			continue
		}
		if !d.changed {
			d.endpoints, d.changed = slices.Clone(s.Endpoints[:i]), true
		}
		if ok {
			d.endpoints = append(d.endpoints, want)
			delete(left, key)
		}
	}
	if !d.changed {
		d.endpoints = s.Endpoints
	}
	return d
}

// add appends endpoints to a draft, whose slice is shared.
func (d *draft) add(more []discoveryv1.Endpoint) {
	if len(more) > 0 {
		d.endpoints, d.changed = slices.Concat(d.endpoints, more), true
	}
}

// fill plans the slices of one group. New endpoints go where something changes anyhow;
// then, if all of it has room there, into the slice that it fills most; and otherwise
// into slices of its own. So no slice is written for the sake of packing alone.
func (plan *slicePlan) fill(head *metav1.ObjectMeta, g *group, have []*discoveryv1.EndpointSlice) {
	left := maps.Clone(g.want)
	drafts := make([]draft, len(have))
	for i, s := range have {
		drafts[i] = keep(s, left)
	}
	fresh := make([]discoveryv1.Endpoint, 0, len(left))
	for _, key := range sorting.Sorted(maps.Keys(left), endpointKey.compare) {
		fresh = append(fresh, left[key])
	}
	take := func(n int) (some []discoveryv1.Endpoint) {
		n = max(0, min(n, len(fresh)))
		some, fresh = fresh[:n:n], fresh[n:]
		return some
	}
	order := make([]*draft, len(drafts)) // the fullest first
	for i := range drafts {
		order[i] = &drafts[i]
	}
	slices.SortStableFunc(order, func(a, b *draft) int { return len(b.endpoints) - len(a.endpoints) })
	for _, d := range order {
		if d.changed {
			d.add(take(maxPerSlice - len(d.endpoints)))
		}
	}
	var created [][]discoveryv1.Endpoint
	for len(fresh) >= maxPerSlice {
		created = append(created, take(maxPerSlice))
	}
	if len(fresh) > 0 {
		i := slices.IndexFunc(order, func(d *draft) bool { return !d.changed && len(d.endpoints)+len(fresh) <= maxPerSlice })
		if i >= 0 {
			order[i].add(take(len(fresh)))
		} else {
			created = append(created, take(len(fresh)))
		}
	}
	kept := len(created)
	for _, d := range drafts {
		if len(d.endpoints) > 0 {
			kept++
		}
	}
	for i := range drafts {
		d := &drafts[i]
		switch {
		case len(d.endpoints) == 0 && kept > 0:
			plan.remove = append(plan.remove, d.old)
			continue
		case len(d.endpoints) == 0:
			kept++ // one empty slice stays
		}
		if d.changed || !maps.Equal(head.Labels, d.old.Labels) || head.Annotations != nil && !maps.Equal(head.Annotations, d.old.Annotations) {
			f := d.old.DeepCopy()
			f.Labels, f.Endpoints = head.Labels, d.endpoints
			if head.Annotations != nil {
				f.Annotations = head.Annotations
			}
			plan.update = append(plan.update, f)
		}
	}
	if kept == 0 {
		created = append(created, nil)
	}
	for _, endpoints := range created {
		plan.create = append(plan.create, &discoveryv1.EndpointSlice{ObjectMeta: *head.DeepCopy(), AddressType: g.family, Ports: g.ports, Endpoints: endpoints})
	}
}

// sameEndpoint reports whether two endpoints of the same address say the same. It is
// asked of every endpoint of a service whenever one changes.
func sameEndpoint(a, b *discoveryv1.Endpoint) bool {
	return same(a.Conditions.Ready, b.Conditions.Ready) && same(a.Conditions.Serving, b.Conditions.Serving) &&
		same(a.Conditions.Terminating, b.Conditions.Terminating) && same(a.Hostname, b.Hostname) && same(a.NodeName, b.NodeName) &&
		same(a.Zone, b.Zone) && same(a.TargetRef, b.TargetRef) && len(a.DeprecatedTopology) == len(b.DeprecatedTopology) && sameHints(a.Hints, b.Hints)
}

func same[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

func sameHints(a, b *discoveryv1.EndpointHints) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.ForZones, b.ForZones) && slices.Equal(a.ForNodes, b.ForNodes)
}

// generated returns a prefix of names that leaves room for the server's suffix.
func generated(name string) string {
	return strings.TrimRight(name[:min(len(name), 57)], "-.") + "-"
}

func endpointOf(b backend, address, zone string) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses:  []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: &b.ready, Serving: &b.serving, Terminating: &b.terminating},
		TargetRef:  podReference(b.pod),
	}
	if b.pod.Spec.NodeName != "" {
		e.NodeName = &b.pod.Spec.NodeName
	}
	if zone != "" {
		e.Zone = &zone
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
	// Ready endpoints come first, so that they are not left out.
	for _, ready := range []bool{true, false} {
		for _, b := range backends {
			address := addressOf(b.pod, family)
			if address == "" || b.portless || b.ready != ready || b.terminating && !svc.Spec.PublishNotReadyAddresses {
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
		sorting.Slice(set.Addresses, byIP)
		sorting.Slice(set.NotReadyAddresses, byIP)
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
