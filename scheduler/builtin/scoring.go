package builtin

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/scheduler/plugin"
)

// A ResourceSpec is a resource with how much it counts among others.
type ResourceSpec struct {
	Name   corev1.ResourceName `json:"name"`
	Weight int64               `json:"weight,omitempty"` // from 1 to 100; 0 means 1
}

// A ScoringStrategyType says what share of its resources a node should have in use.
type ScoringStrategyType string

// The strategies.
const (
	LeastAllocated           ScoringStrategyType = "LeastAllocated"
	MostAllocated            ScoringStrategyType = "MostAllocated"
	RequestedToCapacityRatio ScoringStrategyType = "RequestedToCapacityRatio"
)

// A ScoringStrategy ranks nodes by the share of their resources that would be in use with the pod on them. The
// zero value is LeastAllocated of CPU and memory.
type ScoringStrategy struct {
	Type                     ScoringStrategyType `json:"type,omitempty"`
	Resources                []ResourceSpec      `json:"resources,omitempty"`
	RequestedToCapacityRatio *RatioParam         `json:"requestedToCapacityRatio,omitempty"`
}

// A RatioParam is the function of RequestedToCapacityRatio.
type RatioParam struct {
	Shape []UtilizationShapePoint `json:"shape,omitempty"`
}

// A UtilizationShapePoint is a corner of a function that is linear between corners.
type UtilizationShapePoint struct {
	Utilization int32 `json:"utilization"` // percent
	Score       int32 `json:"score"`       // from 0 to 10
}

// maxShapeScore is the best score of a point of a shape.
const maxShapeScore = 10

// defaultResources are the scored resources unless others are configured.
var defaultResources = []ResourceSpec{{corev1.ResourceCPU, 1}, {corev1.ResourceMemory, 1}}

// withDefaults fills in omitted fields.
func withDefaults(resources []ResourceSpec) []ResourceSpec {
	if len(resources) == 0 {
		return defaultResources
	}
	out := make([]ResourceSpec, len(resources))
	for i, r := range resources {
		if out[i] = r; r.Weight == 0 {
			out[i].Weight = 1
		}
	}
	return out
}

func validateResources(resources []ResourceSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.ResourceName]bool{}
	for i, r := range resources {
		if r.Name == "" {
			errs = append(errs, field.Required(at.Index(i).Child("name"), "want the name of a resource"))
		} else if seen[r.Name] {
			errs = append(errs, field.Duplicate(at.Index(i).Child("name"), r.Name))
		}
		seen[r.Name] = true
		if r.Weight < 0 || r.Weight > 100 {
			errs = append(errs, field.Invalid(at.Index(i).Child("weight"), r.Weight, "want a number from 1 to 100"))
		}
	}
	return errs
}

func (s ScoringStrategy) validate(at *field.Path) field.ErrorList {
	errs := validateResources(s.Resources, at.Child("resources"))
	switch s.Type {
	case "", LeastAllocated, MostAllocated:
		return errs
	case RequestedToCapacityRatio:
	default:
		return append(errs, field.NotSupported(at.Child("type"), s.Type, []ScoringStrategyType{LeastAllocated, MostAllocated, RequestedToCapacityRatio}))
	}
	at = at.Child("requestedToCapacityRatio", "shape")
	if s.RequestedToCapacityRatio == nil {
		return append(errs, field.Required(at, "want at least one point"))
	}
	return append(errs, validateShape(s.RequestedToCapacityRatio.Shape, at)...)
}

func validateShape(shape []UtilizationShapePoint, at *field.Path) (errs field.ErrorList) {
	if len(shape) == 0 {
		return field.ErrorList{field.Required(at, "want at least one point")}
	}
	last := int32(-1)
	for i, p := range shape {
		if p.Utilization < 0 || p.Utilization > 100 {
			errs = append(errs, field.Invalid(at.Index(i).Child("utilization"), p.Utilization, "want a percentage from 0 to 100"))
		} else if p.Utilization <= last {
			errs = append(errs, field.Invalid(at.Index(i).Child("utilization"), p.Utilization, fmt.Sprintf("want more than the %d of the point before", last)))
		}
		last = max(last, p.Utilization)
		if p.Score < 0 || p.Score > maxShapeScore {
			errs = append(errs, field.Invalid(at.Index(i).Child("score"), p.Score, fmt.Sprintf("want a number from 0 to %d", maxShapeScore)))
		}
	}
	return errs
}

// score ranks a node by one resource after the other. Containers that ask for no CPU or memory are presumed to
// use a little.
func (s ScoringStrategy) score(pod *plugin.Pod, node *plugin.Node) int64 {
	resources := s.Resources
	if len(resources) == 0 {
		resources = defaultResources
	}
	var sum, weights int64
	for _, r := range resources {
		u, ok := usageOf(r.Name, pod, node, true)
		if !ok {
			continue
		}
		var one int64
		switch s.Type {
		case MostAllocated:
			one = min(u.with, u.has) * plugin.MaxScore / u.has
		case RequestedToCapacityRatio:
			one = s.RequestedToCapacityRatio.at(u)
			if one == 0 {
				continue // as upstream: it has no weight either
			}
		default:
			one = max(u.has-u.with, 0) * plugin.MaxScore / u.has
		}
		sum += one * max(r.Weight, 1)
		weights += max(r.Weight, 1)
	}
	switch {
	case weights == 0:
		return 0
	case s.Type == RequestedToCapacityRatio:
		return int64(math.Round(float64(sum) / float64(weights)))
	}
	return sum / weights
}

// at is the value of the function, from 0 to MaxScore.
func (p *RatioParam) at(u usage) int64 {
	percent := int64(100)
	if u.with <= u.has {
		percent = u.with * 100 / u.has
	}
	const scale = plugin.MaxScore / maxShapeScore
	for i, to := range p.Shape {
		if percent > int64(to.Utilization) {
			continue
		}
		if i == 0 {
			return int64(to.Score) * scale
		}
		from := p.Shape[i-1]
		rise := int64(to.Score-from.Score) * scale
		return int64(from.Score)*scale + rise*(percent-int64(from.Utilization))/int64(to.Utilization-from.Utilization)
	}
	return int64(p.Shape[len(p.Shape)-1].Score) * scale
}

// usage is the used amount of one resource of a node, without and with a pod.
type usage struct{ without, with, has int64 }

// usageOf returns no usage of a resource that the node has not, or of one besides CPU, memory and storage that the pod does
// not ask for: it says nothing about the two.
func usageOf(name corev1.ResourceName, pod *plugin.Pod, node *plugin.Node, presume bool) (usage, bool) {
	taken, asks := &node.Requested, &pod.Requests
	if presume {
		taken, asks = &node.Presumed, &pod.Presumed
	}
	u := usage{without: taken.Amount(name), has: node.Allocatable.Amount(name)}
	asked := asks.Amount(name)
	u.with = u.without + asked
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
	default:
		if asked == 0 {
			return u, false
		}
	}
	return u, u.has > 0
}
