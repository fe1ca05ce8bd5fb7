package plugin

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Resources are amounts of what nodes have and pods ask for.
type Resources struct {
	MilliCPU  int64
	Memory    int64 // bytes
	Ephemeral int64 // bytes of ephemeral storage
	Pods      int64 // of a node: how many may run; of a pod: nothing

	// Other resources (extended ones, huge pages) by name; nil if there are none.
	Other map[corev1.ResourceName]int64
}

// most bounds each amount of a list, so that the sums of the containers of a pod, and of the pods of a node, do not overflow. No node
// has as much: as bytes it is 256 TiB.
const most = 1 << 48

// NewResources reads a list of the API. CPU is rounded up to thousandths,
// everything else to whole units, as the API says. Larger amounts than 2^48 count as so much.
func NewResources(l corev1.ResourceList) Resources {
	var r Resources
	for name, q := range l {
		switch name {
		case corev1.ResourceCPU:
			r.MilliCPU = thousandths(&q)
		case corev1.ResourceMemory:
			r.Memory = bounded(&q)
		case corev1.ResourceEphemeralStorage:
			r.Ephemeral = bounded(&q)
		case corev1.ResourcePods:
			r.Pods = bounded(&q)
		default:
			if r.Other == nil {
				r.Other = map[corev1.ResourceName]int64{}
			}
			r.Other[name] = bounded(&q)
		}
	}
	return r
}

// bounded is [resource.Quantity.Value] for amounts that do not fit an int64 as well.
func bounded(q *resource.Quantity) int64 {
	if q.CmpInt64(most) >= 0 {
		return most
	}
	return q.Value()
}

// thousandths is [resource.Quantity.MilliValue] for amounts whose thousandths do not fit an int64 as well.
func thousandths(q *resource.Quantity) int64 {
	if q.CmpInt64(most/1000) >= 0 {
		return most
	}
	return q.MilliValue()
}

// Amount returns how much there is of one resource, CPU in thousandths.
func (r *Resources) Amount(name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU:
		return r.MilliCPU
	case corev1.ResourceMemory:
		return r.Memory
	case corev1.ResourceEphemeralStorage:
		return r.Ephemeral
	case corev1.ResourcePods:
		return r.Pods
	default:
		return r.Other[name]
	}
}

// Add adds o to r.
func (r *Resources) Add(o Resources) { r.add(o, 1) }

// Sub takes o away from r.
func (r *Resources) Sub(o Resources) { r.add(o, -1) }

func (r *Resources) add(o Resources, times int64) {
	r.MilliCPU += times * o.MilliCPU
	r.Memory += times * o.Memory
	r.Ephemeral += times * o.Ephemeral
	if len(o.Other) > 0 && r.Other == nil {
		r.Other = map[corev1.ResourceName]int64{}
	}
	for name, n := range o.Other {
		if r.Other[name] += times * n; r.Other[name] == 0 {
			delete(r.Other, name)
		}
	}
}

// atLeast raises r to o where o is more.
func (r *Resources) atLeast(o Resources) {
	r.MilliCPU = max(r.MilliCPU, o.MilliCPU)
	r.Memory = max(r.Memory, o.Memory)
	r.Ephemeral = max(r.Ephemeral, o.Ephemeral)
	if len(o.Other) > 0 && r.Other == nil {
		r.Other = map[corev1.ResourceName]int64{}
	}
	for name, n := range o.Other {
		r.Other[name] = max(r.Other[name], n)
	}
}

// beside returns r with others' amounts of the resources that r has itself. CPU, memory and storage count as such.
func (r *Resources) beside(others *Resources) Resources {
	sum := Resources{MilliCPU: r.MilliCPU + others.MilliCPU, Memory: r.Memory + others.Memory, Ephemeral: r.Ephemeral + others.Ephemeral}
	if len(r.Other) > 0 {
		sum.Other = make(map[corev1.ResourceName]int64, len(r.Other))
		for name, n := range r.Other {
			sum.Other[name] = n + others.Other[name]
		}
	}
	return sum
}

// own makes r share nothing.
func (r *Resources) own() { r.Other = maps.Clone(r.Other) }
