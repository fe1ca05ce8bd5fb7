package plugin

import (
	"encoding/binary"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// A Signature is the same for pods about which decisions in the same Snapshot are the same (plugin-P3). It covers: namespace,
// labels, controller, priority and preemption policy, nodeName, nodeSelector, affinity, tolerations,
// topology spread constraints, host network, operating system, scheduling gates, requests and overhead as [Pod]
// counts them, host ports, images, and volumes and resource claims by their names. It does not cover the pod's
// name, annotations and status, nor commands, environments and probes; see [Signer].
type Signature string

// Signature works out the pod's signature, with what signers add to it.
func (p *Pod) Signature(signers ...Signer) Signature {
	b := make([]byte, 0, 512)
	text := func(parts ...string) {
		for _, s := range parts {
			b = binary.AppendUvarint(b, uint64(len(s)))
			b = append(b, s...)
		}
	}
	number := func(numbers ...int64) {
		for _, n := range numbers {
			b = binary.AppendVarint(b, n)
		}
	}
	dict := func(m map[string]string) {
		number(int64(len(m)))
		for _, k := range slices.Sorted(maps.Keys(m)) {
			text(k, m[k])
		}
	}
	message := func(m interface{ Marshal() ([]byte, error) }) {
		raw, err := m.Marshal() // maps inside are written in order
		if err != nil {
			raw = []byte(err.Error() + string(p.UID)) // like no other pod
		}
		text(string(raw))
	}
	resources := func(r *Resources) {
		number(r.MilliCPU, r.Memory, r.Ephemeral, int64(len(r.Other)))
		if len(r.Other) > 0 {
			for _, k := range slices.Sorted(maps.Keys(r.Other)) {
				text(string(k))
				number(r.Other[k])
			}
		}
	}
	spec := &p.Spec
	text(p.Namespace, string(p.Owner), spec.NodeName, spec.SchedulerName)
	dict(p.Labels)
	dict(spec.NodeSelector)
	number(int64(p.Priority()))
	if spec.PreemptionPolicy != nil {
		text(string(*spec.PreemptionPolicy))
	} else {
		text("")
	}
	if spec.OS != nil {
		text(string(spec.OS.Name))
	} else {
		text("")
	}
	network := int64(0)
	if spec.HostNetwork {
		network = 1
	}
	number(network)
	resources(&p.Requests)
	resources(&p.Presumed)
	number(int64(len(p.Ports)))
	for _, h := range p.Ports {
		text(h.IP, string(h.Protocol))
		number(int64(h.Port))
	}
	number(int64(len(spec.Tolerations)))
	for i := range spec.Tolerations {
		t := &spec.Tolerations[i]
		text(t.Key, string(t.Operator), t.Value, string(t.Effect))
		if t.TolerationSeconds != nil {
			number(1, *t.TolerationSeconds)
		} else {
			number(0)
		}
	}
	if spec.Affinity != nil {
		message(spec.Affinity)
	} else {
		text("")
	}
	number(int64(len(spec.TopologySpreadConstraints)))
	for i := range spec.TopologySpreadConstraints {
		message(&spec.TopologySpreadConstraints[i])
	}
	number(int64(len(spec.SchedulingGates)))
	for _, g := range spec.SchedulingGates {
		text(g.Name)
	}
	number(int64(len(spec.InitContainers)), int64(len(spec.Containers)))
	for i := range spec.InitContainers {
		text(spec.InitContainers[i].Image)
	}
	for i := range spec.Containers {
		text(spec.Containers[i].Image)
	}
	number(int64(len(spec.ResourceClaims)))
	for i := range spec.ResourceClaims {
		message(&spec.ResourceClaims[i])
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		switch {
		case unplaced(v):
			// It can be had everywhere, and its name may be random.
		case v.Ephemeral != nil:
			text("ephemeral", v.Name, p.Name) // its claim has the pod's name
		default:
			message(v)
		}
	}
	for _, one := range signers {
		text(one.Sign(p))
	}
	return Signature(b)
}

// unplaced reports whether a volume says nothing about where a pod can run.
func unplaced(v *corev1.Volume) bool {
	return v.EmptyDir != nil || v.HostPath != nil || v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}
