package plugin

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// MostTerms bounds each list of a pod of which every element is compared with nodes or with all placed pods: topology spread
// constraints, terms of affinity and tolerations. The API has no limit, so that one pod could take seconds of each decision
// and keep thousands of counts. Pods that people and operators write have a dozen.
const MostTerms = 1000

// excess returns which list of a pod is longer than [MostTerms], or "".
func excess(p *corev1.Pod) string {
	spec := &p.Spec
	for _, list := range []struct {
		field string
		n     int
	}{
		{"spec.topologySpreadConstraints", len(spec.TopologySpreadConstraints)},
		{"spec.tolerations", len(spec.Tolerations)},
	} {
		if list.n > MostTerms {
			return tooMany(list.field, list.n)
		}
	}
	if spec.Affinity == nil {
		return ""
	}
	if a := spec.Affinity.NodeAffinity; a != nil {
		if r := a.RequiredDuringSchedulingIgnoredDuringExecution; r != nil && len(r.NodeSelectorTerms) > MostTerms {
			return tooMany("spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms", len(r.NodeSelectorTerms))
		}
		if n := len(a.PreferredDuringSchedulingIgnoredDuringExecution); n > MostTerms {
			return tooMany("spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution", n)
		}
	}
	const required, preferred = ".requiredDuringSchedulingIgnoredDuringExecution", ".preferredDuringSchedulingIgnoredDuringExecution"
	if a := spec.Affinity.PodAffinity; a != nil {
		if n := len(a.RequiredDuringSchedulingIgnoredDuringExecution); n > MostTerms {
			return tooMany("spec.affinity.podAffinity"+required, n)
		}
		if n := len(a.PreferredDuringSchedulingIgnoredDuringExecution); n > MostTerms {
			return tooMany("spec.affinity.podAffinity"+preferred, n)
		}
	}
	if a := spec.Affinity.PodAntiAffinity; a != nil {
		if n := len(a.RequiredDuringSchedulingIgnoredDuringExecution); n > MostTerms {
			return tooMany("spec.affinity.podAntiAffinity"+required, n)
		}
		if n := len(a.PreferredDuringSchedulingIgnoredDuringExecution); n > MostTerms {
			return tooMany("spec.affinity.podAntiAffinity"+preferred, n)
		}
	}
	return ""
}

func tooMany(field string, n int) string {
	return fmt.Sprintf("%s: %d items are more than the scheduler looks at, want at most %d", field, n, MostTerms)
}
