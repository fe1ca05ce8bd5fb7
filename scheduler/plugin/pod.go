package plugin

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A Pod is a pod with counts made once. It does not change.
type Pod struct {
	*corev1.Pod
	Requests Resources
	Presumed Resources // as Requests, but a container that asks for no CPU or memory counts for a little
	Ports    []HostPort
	Owner    types.UID // of the controller; empty if it has none
	Affinity *Affinity // nil if it says nothing about other pods
	Spreads  []Spread  // its topology spread constraints
	Images   []string  // of its containers and image volumes, named as in [Node].Images

	// Excess says which list of the pod is too long to be looked at; see [MostTerms]. Such a pod is not scheduled. If it was
	// bound without a scheduler it counts on its node, but its terms about other pods do not.
	Excess string
}

// Priority returns the pod's priority, 0 if it has none.
func (p *Pod) Priority() int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// The presumed requests of a container without requests, for scores only. The numbers are
// upstream's.
const (
	presumedMilliCPU = 100
	presumedMemory   = 200 << 20
)

// NewPod returns a Pod with the values that plug-ins need. The argument must not change afterwards.
func NewPod(p *corev1.Pod) *Pod {
	out := &Pod{
		Pod:      p,
		Requests: podResources(p, func(*corev1.Container, *Resources) {}),
		Presumed: podResources(p, func(_ *corev1.Container, r *Resources) {
			if r.MilliCPU == 0 {
				r.MilliCPU = presumedMilliCPU
			}
			if r.Memory == 0 {
				r.Memory = presumedMemory
			}
		}),
	}
	if out.Excess = excess(p); out.Excess == "" {
		out.Affinity, out.Spreads = newAffinity(p), NewSpreads(p, p.Spec.TopologySpreadConstraints)
	}
	for i := range p.Spec.Containers {
		out.addPorts(&p.Spec.Containers[i])
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; sidecar(c) {
			out.addPorts(c)
		}
	}
	out.addImages()
	for i := range p.OwnerReferences {
		if o := &p.OwnerReferences[i]; o.Controller != nil && *o.Controller {
			out.Owner = o.UID
		}
	}
	return out
}

func (p *Pod) addImages() {
	p.Images = make([]string, 0, len(p.Spec.InitContainers)+len(p.Spec.Containers))
	for i := range p.Spec.InitContainers {
		p.Images = append(p.Images, ImageName(p.Spec.InitContainers[i].Image))
	}
	for i := range p.Spec.Containers {
		p.Images = append(p.Images, ImageName(p.Spec.Containers[i].Image))
	}
	for i := range p.Spec.Volumes {
		if v := p.Spec.Volumes[i].Image; v != nil {
			p.Images = append(p.Images, ImageName(v.Reference))
		}
	}
}

func (p *Pod) addPorts(c *corev1.Container) {
	for i := range c.Ports {
		port := &c.Ports[i]
		if port.HostPort <= 0 {
			continue
		}
		h := HostPort{IP: port.HostIP, Protocol: port.Protocol, Port: port.HostPort}
		if h.IP == "" {
			h.IP = anyIP
		}
		if h.Protocol == "" {
			h.Protocol = corev1.ProtocolTCP
		}
		p.Ports = append(p.Ports, h)
	}
}

// sidecar reports whether an init container goes on running beside the others.
func sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// podResources sums up the needs of a pod at its most demanding moment: all
// containers and sidecars together, or one init container beside the sidecars
// started before it. Requests of the pod as a whole go before those of its
// containers; the overhead comes on top.
func podResources(p *corev1.Pod, complete func(*corev1.Container, *Resources)) Resources {
	of := func(c *corev1.Container) Resources {
		r := NewResources(c.Resources.Requests)
		complete(c, &r)
		return r
	}
	var sidecars, peak Resources
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		r := of(c)
		if sidecar(c) {
			sidecars.Add(r)
		} else {
			peak.atLeast(r.beside(&sidecars))
		}
	}
	peak.atLeast(sidecars) // what an init container does not ask for itself is never more beside it
	sum := sidecars
	sum.own()
	for i := range p.Spec.Containers {
		sum.Add(of(&p.Spec.Containers[i]))
	}
	sum.atLeast(peak)
	if whole := p.Spec.Resources; whole != nil {
		r := NewResources(whole.Requests)
		if _, ok := whole.Requests[corev1.ResourceCPU]; ok {
			sum.MilliCPU = r.MilliCPU
		}
		if _, ok := whole.Requests[corev1.ResourceMemory]; ok {
			sum.Memory = r.Memory
		}
		for name, amount := range r.Other {
			if !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
				continue
			}
			if sum.Other == nil {
				sum.Other = map[corev1.ResourceName]int64{}
			}
			sum.Other[name] = amount
		}
	}
	if p.Spec.Overhead != nil {
		sum.Add(NewResources(p.Spec.Overhead))
	}
	return inUse(p, sum)
}

// inUse returns the largest of a pod's request, its node's grant and its present amount, while it is resized in place. A
// resize that the node cannot make is not counted.
func inUse(p *corev1.Pod, requests Resources) Resources {
	s := &p.Status
	if s.AllocatedResources == nil || s.Resources == nil || s.Resources.Requests == nil {
		return requests
	}
	used := NewResources(s.AllocatedResources)
	used.own()
	used.atLeast(NewResources(s.Resources.Requests))
	if !infeasible(s) {
		used.atLeast(requests)
	}
	// The status counts no container as more than it requests.
	requests.MilliCPU, requests.Memory, requests.Other = used.MilliCPU, used.Memory, used.Other
	return requests
}

// infeasible reports whether the node of a pod has refused its resize for good.
func infeasible(s *corev1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodResizePending && c.Reason == corev1.PodReasonInfeasible
	})
}
