package scheduler_test

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// A scene is a cluster as the model sees it: objects and nothing else. The model says in plain loops which placements
// the API's documentation allows. It shares no code with the plug-ins and is as slow as it wants.
type scene struct {
	spaces map[string]map[string]string
	nodes  []*corev1.Node
	pods   []*corev1.Pod // that count on the node which they name
}

// illegal says what is wrong with a pod on a node, beside the pods that are there; "" if nothing is.
func (s *scene) illegal(p *corev1.Pod, n *corev1.Node) string {
	for _, rule := range []func(*corev1.Pod, *corev1.Node) string{s.unwanted, s.full, s.lonely, s.hated, s.skewed} {
		if why := rule(p, n); why != "" {
			return why
		}
	}
	return ""
}

// without returns a copy of the scene without the pods for which gone returns true, and with more pods.
func (s *scene) without(gone func(*corev1.Pod) bool, more ...*corev1.Pod) *scene {
	return &scene{s.spaces, s.nodes, append(slices.DeleteFunc(slices.Clone(s.pods), gone), more...)}
}

func (s *scene) unwanted(p *corev1.Pod, n *corev1.Node) string {
	if n.Spec.Unschedulable && !bearsTaint(p, corev1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}) {
		return "cordoned"
	}
	if !bearsTaints(p, n) {
		return "tainted"
	}
	if !wantsNode(p, n) {
		return "not selected"
	}
	restarts := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	}
	if slices.ContainsFunc(p.Spec.Containers, restarts) && !slices.Contains(n.Status.DeclaredFeatures, "RestartAllContainersOnContainerExits") {
		return "without a feature"
	}
	return ""
}

func bearsTaints(p *corev1.Pod, n *corev1.Node) bool {
	return !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect != "PreferNoSchedule" && !bearsTaint(p, t) })
}

func bearsTaint(p *corev1.Pod, t corev1.Taint) bool {
	for _, o := range p.Spec.Tolerations {
		if (o.Effect == "" || o.Effect == t.Effect) && (o.Key == "" || o.Key == t.Key) && (o.Operator == "Exists" || o.Value == t.Value) {
			return true
		}
	}
	return false
}

func wantsNode(p *corev1.Pod, n *corev1.Node) bool {
	for k, v := range p.Spec.NodeSelector {
		if have, ok := n.Labels[k]; !ok || have != v {
			return false
		}
	}
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(t.MatchExpressions) > 0 && !slices.ContainsFunc(t.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return !holds(r, n) }) {
			return true
		}
	}
	return false
}

func holds(r corev1.NodeSelectorRequirement, n *corev1.Node) bool {
	v, ok := n.Labels[r.Key]
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return ok && slices.Contains(r.Values, v)
	case corev1.NodeSelectorOpNotIn:
		return !ok || !slices.Contains(r.Values, v)
	case corev1.NodeSelectorOpExists:
		return ok
	case corev1.NodeSelectorOpDoesNotExist:
		return !ok
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		have, err := strconv.Atoi(v)
		want, bad := strconv.Atoi(r.Values[0])
		return err == nil && bad == nil && (r.Operator == corev1.NodeSelectorOpGt && have > want || r.Operator == corev1.NodeSelectorOpLt && have < want)
	default:
		return false
	}
}

// full says what the node has too little of for one more pod.
func (s *scene) full(p *corev1.Pod, n *corev1.Node) string {
	used, count := map[corev1.ResourceName]int64{}, int64(1)
	for _, q := range s.pods {
		if q.Spec.NodeName != n.Name {
			continue
		}
		count++
		for name, amount := range needs(q) {
			used[name] += amount
		}
		for _, a := range hostPorts(p) {
			if slices.Contains(hostPorts(q), a) {
				return fmt.Sprintf("port %v is taken by %s", a, q.Name)
			}
		}
	}
	if has := n.Status.Allocatable.Pods().Value(); count > has {
		return fmt.Sprintf("%d pods of %d", count, has)
	}
	for name, amount := range needs(p) {
		has := n.Status.Allocatable[name]
		if amount > 0 && used[name]+amount > has.MilliValue() {
			return fmt.Sprintf("%d and %d of %d thousandths of %s", used[name], amount, has.MilliValue(), name)
		}
	}
	return ""
}

// needs returns thousandths of what a pod asks for at its most demanding moment.
func needs(p *corev1.Pod) map[corev1.ResourceName]int64 {
	all, peak := map[corev1.ResourceName]int64{}, map[corev1.ResourceName]int64{}
	for _, c := range p.Spec.InitContainers {
		for name, q := range c.Resources.Requests {
			if peak[name] = max(peak[name], all[name]+q.MilliValue()); c.RestartPolicy != nil {
				all[name] += q.MilliValue()
			}
		}
	}
	for _, c := range p.Spec.Containers {
		for name, q := range c.Resources.Requests {
			all[name] += q.MilliValue()
		}
	}
	for name := range peak {
		all[name] = max(all[name], peak[name])
	}
	return all
}

func hostPorts(p *corev1.Pod) (ports []int32) {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				ports = append(ports, port.HostPort)
			}
		}
	}
	return ports
}

// matches reports whether a selector of owner selects q; the values of some of owner's labels have to be q's, those of others not.
func matches(owner, q *corev1.Pod, selector *metav1.LabelSelector, same, other []string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || selector == nil || !s.Matches(labels.Set(q.Labels)) {
		return false
	}
	differs := func(k string) bool { v, ok := q.Labels[k]; return !ok || v != owner.Labels[k] }
	for _, k := range same {
		if _, ok := owner.Labels[k]; ok && differs(k) {
			return false
		}
	}
	for _, k := range other {
		if _, ok := owner.Labels[k]; ok && !differs(k) {
			return false
		}
	}
	return true
}

// means reports whether a term of owner selects q.
func (s *scene) means(owner *corev1.Pod, t corev1.PodAffinityTerm, q *corev1.Pod) bool {
	in := slices.Contains(t.Namespaces, q.Namespace)
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		in = q.Namespace == owner.Namespace
	}
	if t.NamespaceSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector)
		in = in || err == nil && selector.Matches(labels.Set(s.spaces[q.Namespace]))
	}
	return in && matches(owner, q, t.LabelSelector, t.MatchLabelKeys, t.MismatchLabelKeys)
}

// beside reports whether a pod of the scene that is chosen runs where the label has the value that it has on n.
func (s *scene) beside(n *corev1.Node, key string, chosen func(*corev1.Pod) bool) bool {
	value, ok := n.Labels[key]
	return ok && s.some(key, func(q *corev1.Pod, v string) bool { return v == value && chosen(q) })
}

// some looks for a pod on an existing node that has the label.
func (s *scene) some(key string, chosen func(q *corev1.Pod, value string) bool) bool {
	return slices.ContainsFunc(s.pods, func(q *corev1.Pod) bool {
		i := slices.IndexFunc(s.nodes, func(m *corev1.Node) bool { return m.Name == q.Spec.NodeName })
		if i < 0 {
			return false
		}
		v, ok := s.nodes[i].Labels[key]
		return ok && chosen(q, v)
	})
}

func nearTerms(p *corev1.Pod) []corev1.PodAffinityTerm {
	if a := p.Spec.Affinity; a != nil && a.PodAffinity != nil {
		return a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

func awayTerms(p *corev1.Pod) []corev1.PodAffinityTerm {
	if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// lonely returns the required affinity term of p that no pod in the domain of n matches, or "".
func (s *scene) lonely(p *corev1.Pod, n *corev1.Node) string {
	terms := nearTerms(p)
	all := func(q *corev1.Pod) bool {
		return !slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return !s.means(p, t, q) })
	}
	nobody, missing := true, ""
	for _, t := range terms {
		if _, ok := n.Labels[t.TopologyKey]; !ok {
			return "no label " + t.TopologyKey
		}
		nobody = nobody && !s.some(t.TopologyKey, func(q *corev1.Pod, _ string) bool { return all(q) })
		if !s.beside(n, t.TopologyKey, all) {
			missing = "nobody near by " + t.TopologyKey
		}
	}
	if nobody && all(p) {
		return ""
	}
	return missing
}

// hated returns the required anti-affinity term, of p or of another pod, that keeps p away from n, or "".
func (s *scene) hated(p *corev1.Pod, n *corev1.Node) (why string) {
	for _, t := range awayTerms(p) {
		if s.beside(n, t.TopologyKey, func(q *corev1.Pod) bool { return s.means(p, t, q) }) {
			return "it hates somebody by " + t.TopologyKey
		}
	}
	for _, q := range s.pods {
		for _, t := range awayTerms(q) {
			if s.means(q, t, p) && s.beside(n, t.TopologyKey, func(o *corev1.Pod) bool { return o == q }) {
				return q.Name + " hates it by " + t.TopologyKey
			}
		}
	}
	return ""
}

// skewed says which constraint a domain would be too far ahead of others by.
func (s *scene) skewed(p *corev1.Pod, n *corev1.Node) string {
	var hard []corev1.TopologySpreadConstraint
	for _, c := range p.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			hard = append(hard, c)
		}
	}
	hasKeys := func(m *corev1.Node) bool {
		return !slices.ContainsFunc(hard, func(c corev1.TopologySpreadConstraint) bool { _, ok := m.Labels[c.TopologyKey]; return !ok })
	}
	if !hasKeys(n) {
		return "a topology label is missing"
	}
	for _, c := range hard {
		domains := map[string]int32{}
		for _, m := range s.nodes {
			ignore := c.NodeAffinityPolicy != nil && *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyIgnore
			honor := c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
			if !hasKeys(m) || !ignore && !wantsNode(p, m) || honor && !bearsTaints(p, m) {
				continue
			}
			domains[m.Labels[c.TopologyKey]] += 0
			for _, q := range s.pods {
				if q.Spec.NodeName == m.Name && q.Namespace == p.Namespace && q.DeletionTimestamp == nil && matches(p, q, c.LabelSelector, c.MatchLabelKeys, nil) {
					domains[m.Labels[c.TopologyKey]]++
				}
			}
		}
		here, least := domains[n.Labels[c.TopologyKey]], int32(0)
		if c.MinDomains == nil || len(domains) >= int(*c.MinDomains) {
			for _, pods := range domains {
				least = pods
			}
			for _, pods := range domains {
				least = min(least, pods)
			}
		}
		if matches(p, p, c.LabelSelector, c.MatchLabelKeys, nil) {
			here++
		}
		if here-least > c.MaxSkew {
			return fmt.Sprintf("%d pods by %s, elsewhere %d", here, c.TopologyKey, least)
		}
	}
	return ""
}
