package endpoints

import (
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sampan-io/sampan/internal/sorting"
)

// A topology says where nodes are.
type topology struct {
	zone func(node string) string // "" if that is not known

	// shares returns the CPU of each zone, in thousandths of a core, or why that is not
	// known.
	shares func() (map[string]int64, string)
}

// byTopology reports whether a service asks for hints in proportion to the CPU of zones. That
// goes before its trafficDistribution, and the annotation's old name before its new one.
func byTopology(svc *corev1.Service) bool {
	mode, ok := svc.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if !ok {
		mode = svc.Annotations[corev1.AnnotationTopologyMode]
	}
	return mode == "Auto" || mode == "auto"
}

// giveHints sets the hints of endpoints, which say for clients in which zones or on which nodes each endpoint is. Only ready
// endpoints have hints. If the service asks for hints by its topology mode and cannot have them, giveHints returns the reason.
func giveHints(svc *corev1.Service, groups []*group, have []*discoveryv1.EndpointSlice, where topology) string {
	if byTopology(svc) {
		return giveShares(groups, have, where)
	}
	var zones, nodes bool
	switch distribution := svc.Spec.TrafficDistribution; {
	case distribution == nil:
		return ""
	case *distribution == corev1.ServiceTrafficDistributionPreferClose, *distribution == corev1.ServiceTrafficDistributionPreferSameZone:
		zones = true
	case *distribution == corev1.ServiceTrafficDistributionPreferSameNode:
		zones, nodes = true, true
	}
	for _, g := range groups {
		for key, e := range g.want {
			if !*e.Conditions.Ready {
				continue
			}
			var h discoveryv1.EndpointHints
			if zones && e.Zone != nil {
				h.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
			}
			if nodes && e.NodeName != nil {
				h.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
			}
			if h.ForZones != nil || h.ForNodes != nil {
				e.Hints = &h
				g.want[key] = e
			}
		}
	}
	return ""
}

// An apportioned endpoint is one that is ready, and the zone that it is for.
type apportioned struct {
	group *group
	key   endpointKey
	zone  string // where it is
	to    string
	kept  bool // it has been for that zone already
}

// giveShares gives each zone so many endpoints as it has of the CPU. Most are for the
// zone where they are, and for the one that they were for before.
func giveShares(groups []*group, have []*discoveryv1.EndpointSlice, where topology) string {
	var all []*apportioned
	for _, g := range groups {
		for _, key := range sorting.Sorted(maps.Keys(g.want), endpointKey.compare) {
			e := g.want[key]
			if !*e.Conditions.Ready {
				continue
			}
			if e.Zone == nil {
				return fmt.Sprintf("the zone of endpoint %s is not known", key.address)
			}
			all = append(all, &apportioned{group: g, key: key, zone: *e.Zone})
		}
	}
	if len(all) == 0 {
		return ""
	}
	cpu, why := where.shares()
	if why != "" {
		return why
	}
	quotas, why := divide(len(all), cpu)
	if why != "" {
		return why
	}
	apportion(all, quotas, hintsOf(have))
	for _, a := range all {
		e := a.group.want[a.key]
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: a.to}}}
		a.group.want[a.key] = e
	}
	return ""
}

// hintsOf returns the zone that each endpoint is for now.
func hintsOf(have []*discoveryv1.EndpointSlice) map[endpointKey]string {
	zones := map[endpointKey]string{}
	for _, s := range have {
		for i := range s.Endpoints {
			if h := s.Endpoints[i].Hints; h != nil && len(h.ForZones) == 1 {
				zones[keyOfEndpoint(&s.Endpoints[i])] = h.ForZones[0].Name
			}
		}
	}
	return zones
}

// overload is by how much more than its fair part of the traffic an endpoint may get.
const overload = 0.2

// A quota says how many endpoints a zone gets.
type quota struct {
	least, most int
	fair        float64
}

// divide returns how many of n endpoints each zone gets, or why they cannot be divided
// without overloading some.
func divide(n int, cpu map[string]int64) (map[string]quota, string) {
	if len(cpu) < 2 {
		return nil, "the nodes that are ready are in a single zone"
	}
	if len(cpu) > n {
		return nil, fmt.Sprintf("there are fewer endpoints than zones (endpoints: %d, zones: %d)", n, len(cpu))
	}
	var total int64
	for _, c := range cpu {
		total += c
	}
	quotas, spare := map[string]quota{}, n
	for zone, c := range cpu {
		fair := float64(n) * float64(c) / float64(total)
		least := int(math.Ceil(fair / (1 + overload)))
		quotas[zone] = quota{least: least, fair: max(fair, float64(least))}
		spare -= least
	}
	if spare < 0 {
		return nil, fmt.Sprintf("too few endpoints to divide them without overloading any (endpoints: %d, zones: %d)", n, len(cpu))
	}
	for zone, q := range quotas {
		q.most = q.least + spare
		quotas[zone] = q
	}
	return quotas, ""
}

// apportion sets the zone that each endpoint is for. New endpoints are moved first; others are moved only if a zone would
// otherwise have too few.
func apportion(all []*apportioned, quotas map[string]quota, before map[endpointKey]string) {
	count := map[string]int{}
	for _, a := range all {
		if zone, had := before[a.key]; had && count[zone] < quotas[zone].most {
			a.to, a.kept = zone, true
			count[zone]++
		}
	}
	for _, a := range all {
		if !a.kept {
			a.to = a.zone
			count[a.zone]++
		}
	}
	balance(all, quotas, count)
	// One that is new and for another zone changes places with one of there that is for
	// its zone.
	for _, a := range all {
		if a.kept || a.to == a.zone {
			continue
		}
		i := slices.IndexFunc(all, func(b *apportioned) bool { return b.zone == a.to && b.to == a.zone })
		if i >= 0 {
			a.to, all[i].to = a.zone, all[i].zone
		}
	}
}

// balance moves endpoints from zones that, by count, have too many to zones that have too few.
func balance(all []*apportioned, quotas map[string]quota, count map[string]int) {
	zones := slices.Sorted(maps.Keys(quotas))
	for _, a := range all {
		if _, known := quotas[a.to]; !known && !slices.Contains(zones, a.to) {
			zones = append(zones, a.to) // no node there is ready
		}
	}
	for range all {
		rich, poor := zones[0], zones[0]
		excess := func(zone string) float64 { return float64(count[zone]) - quotas[zone].fair }
		for _, zone := range zones {
			if excess(zone) > excess(rich) {
				rich = zone
			}
			if excess(zone) < excess(poor) {
				poor = zone
			}
		}
		gives, takes := excess(rich), -excess(poor)
		_, known := quotas[rich]
		if known && (gives < 0.5 || takes < 0.5 || gives < 1 && takes < 1) || rich == poor {
			return
		}
		i := slices.IndexFunc(all, func(a *apportioned) bool { return a.to == rich && !a.kept })
		if i < 0 && count[poor] < quotas[poor].least {
			i = slices.IndexFunc(all, func(a *apportioned) bool { return a.to == rich })
		}
		if i < 0 {
			return
		}
		all[i].to = poor
		count[rich]--
		count[poor]++
	}
}

// sharesOf returns the CPU of each zone that pods can be in, or why it is not known. Nodes
// of the control plane do not count.
func sharesOf(nodes []*corev1.Node) (map[string]int64, string) {
	cpu := map[string]int64{}
	for _, n := range nodes {
		_, plane := n.Labels["node-role.kubernetes.io/control-plane"]
		_, master := n.Labels["node-role.kubernetes.io/master"]
		if plane || master || !nodeReady(n) {
			continue
		}
		zone, c := n.Labels[corev1.LabelTopologyZone], n.Status.Allocatable.Cpu().MilliValue()
		if zone == "" || c == 0 {
			return nil, fmt.Sprintf("the zone or the allocatable CPU of node %s is not known", n.Name)
		}
		cpu[zone] += c
	}
	return cpu, ""
}

// nodeReady reports whether the condition Ready of a node is true.
func nodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
