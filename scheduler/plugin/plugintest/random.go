package plugintest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// A World is the parts of a random cluster.
type World struct {
	Nodes      []*corev1.Node
	Pods       []*corev1.Pod // that run
	Pending    *corev1.Pod
	Namespaces map[string]map[string]string

	// Objects are of other kinds, and one of Changes can happen to them: an object that is new, replaces the one of its name, or takes
	// it away if it has a deletion timestamp.
	Objects, Changes []client.Object
}

// Cluster returns the world as a cluster; with backwards, put together in another order.
func (w World) Cluster(backwards bool) *plugin.Cluster {
	c := &plugin.Cluster{}
	steps := []func(){}
	for name, labels := range w.Namespaces {
		steps = append(steps, func() { c.SetNamespace(name, labels) })
	}
	for _, n := range w.Nodes {
		steps = append(steps, func() { c.SetNode(n) })
	}
	for _, p := range w.Pods {
		steps = append(steps, func() { c.Place(plugin.NewPod(p), p.Spec.NodeName) })
	}
	for _, obj := range w.Objects {
		steps = append(steps, func() { c.SetObject(resourceOf(obj), obj) })
	}
	if backwards {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		step()
	}
	return c
}

// String returns the world as text for the message of a failed test.
func (w World) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.Namespaces)) {
		fmt.Fprintf(&b, "namespace %s %v\n", name, w.Namespaces[name])
	}
	for _, n := range w.Nodes {
		fmt.Fprintf(&b, "node %s %v unschedulable=%v taints=%v\n", n.Name, n.Labels, n.Spec.Unschedulable, n.Spec.Taints)
	}
	for _, o := range w.Objects {
		fmt.Fprintf(&b, "%T %v\n", o, o)
	}
	for _, p := range append(slices.Clone(w.Pods), w.Pending) {
		fmt.Fprintf(&b, "pod %s/%s on=%s %v priority=%v %v\n", p.Namespace, p.Name, p.Spec.NodeName, p.Labels, p.Spec.Priority, p.Spec.String())
	}
	return b.String()
}

// Worlds generates small clusters in which everything that built-in plug-ins look at is likely to matter.
func Worlds() *rapid.Generator[World] {
	return rapid.Custom(func(t *rapid.T) World {
		w := World{Namespaces: map[string]map[string]string{"default": {"team": "a"}, "other": {"team": "b"}}}
		for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
			w.Nodes = append(w.Nodes, randomNode(t, fmt.Sprintf("n%d", i)))
		}
		for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
			p := randomPod(t, fmt.Sprintf("p%d", i))
			p.Spec.NodeName = rapid.SampledFrom(w.Nodes).Draw(t, "on").Name
			w.Pods = append(w.Pods, p)
		}
		w.Pending = randomPod(t, "pending")
		return w
	})
}

func randomNode(t *rapid.T, name string) *corev1.Node {
	words := []string{
		name,
		fmt.Sprintf("cpu=%d", rapid.IntRange(0, 3).Draw(t, "cpu")),
		fmt.Sprintf("memory=%dGi", rapid.IntRange(0, 3).Draw(t, "memory")),
		fmt.Sprintf("pods=%d", rapid.IntRange(1, 5).Draw(t, "pods")),
	}
	if zone := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "zone"); zone != "" {
		words = append(words, corev1.LabelTopologyZone+"="+zone)
	}
	for _, w := range []string{"cordoned", "taint=k=v:NoSchedule", "taint=k=v:PreferNoSchedule", "disk=ssd", "has=x.io/gpu:2", "image=i:latest:500000000"} {
		if rapid.IntRange(0, 4).Draw(t, w) == 0 {
			words = append(words, w)
		}
	}
	n := Node(words...)
	if rapid.Bool().Draw(t, "declares a feature") {
		n.Status.DeclaredFeatures = []string{"RestartAllContainersOnContainerExits"}
	}
	return n
}

func randomPod(t *rapid.T, name string) *corev1.Pod {
	one := func(what string, from ...string) string { return rapid.SampledFrom(from).Draw(t, what) }
	words := []string{one("namespace", "default/", "default/", "other/") + name}
	for _, w := range []string{
		one("cpu", "", "", "cpu=500m", "cpu=1"), one("memory", "", "", "memory=500Mi"), one("port", "", "", "", "port=80", "port=81"),
		one("select", "", "", "", "", "select=disk=ssd"), one("tolerate", "", "tolerate=k"), one("app", "", "label=app=web", "label=app=db"),
		one("gpu", "", "", "", "", "asks=x.io/gpu:1"), one("priority", "", "", "priority=10", "priority=-5"), one("owner", "", "owner=rs"),
		one("version", "", "", "label=version=1", "label=version=2"),
	} {
		if w != "" {
			words = append(words, w)
		}
	}
	p := Pod(words...)
	if one("feature", "", "", "", "", "", "restart") != "" {
		p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
	}
	term := func(what string) corev1.PodAffinityTerm {
		term := corev1.PodAffinityTerm{
			TopologyKey:   one(what+" key", corev1.LabelHostname, corev1.LabelTopologyZone),
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": one(what+" app", "web", "db")}},
		}
		switch one(what+" namespaces", "own", "own", "other", "team", "team", "same version", "other version") {
		case "other":
			term.Namespaces = []string{"other"}
		case "same version":
			term.MatchLabelKeys = []string{"version"}
		case "other version":
			term.MismatchLabelKeys = []string{"version"}
		case "team":
			term.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": one(what+" team", "a", "b")}}
		}
		return term
	}
	var a corev1.Affinity
	switch one("affinity", "", "", "", "required", "preferred") {
	case "required":
		a.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term("affinity")}}
	case "preferred":
		a.PodAffinity = &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 7, PodAffinityTerm: term("affinity")}}}
	}
	switch one("anti-affinity", "", "", "", "required", "preferred") {
	case "required":
		a.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term("anti-affinity")}}
	case "preferred":
		a.PodAntiAffinity = &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 3, PodAffinityTerm: term("anti-affinity")}}}
	}
	if expr, some := map[string]corev1.NodeSelectorRequirement{
		"in":  {Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}},
		"not": {Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"a"}},
		"no":  {Key: "disk", Operator: corev1.NodeSelectorOpDoesNotExist},
	}[one("node affinity", "", "", "", "", "", "in", "not", "no")]; some {
		a.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{expr}}},
		}}
	}
	if a != (corev1.Affinity{}) {
		p.Spec.Affinity = &a
	}
	if a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 && one("second term", "", "yes") != "" {
		a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, term("second"))
	}
	if kind := one("init container", "", "", "", "", "plain", "sidecar"); kind != "" {
		init := corev1.Container{Name: "init", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("700m")}}}
		if kind == "sidecar" {
			init.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = []corev1.Container{init}
	}
	kinds := []string{"", "", "", "DoNotSchedule", "ScheduleAnyway"}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelHostname} {
		if how := one("spread over "+key, kinds...); how != "" {
			kinds = []string{"", how} // two of them are likely
			c := corev1.TopologySpreadConstraint{
				MaxSkew: int32(rapid.IntRange(1, 2).Draw(t, "skew")), TopologyKey: key, WhenUnsatisfiable: corev1.UnsatisfiableConstraintAction(how),
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": one("spread app", "web", "db")}},
			}
			switch one("twist", "", "domains", "affinity", "taints", "taints", "keys") {
			case "domains":
				if how == string(corev1.DoNotSchedule) {
					c.MinDomains = new(int32(rapid.IntRange(1, 4).Draw(t, "domains")))
				}
			case "affinity":
				c.NodeAffinityPolicy = new(corev1.NodeInclusionPolicyIgnore)
			case "taints":
				c.NodeTaintsPolicy = new(corev1.NodeInclusionPolicyHonor)
			case "keys":
				c.MatchLabelKeys = []string{"version"}
			}
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
		}
	}
	return p
}

// Pods generates pods that want to be placed, as those of [Worlds] do.
func Pods(name string) *rapid.Generator[*corev1.Pod] {
	return rapid.Custom(func(t *rapid.T) *corev1.Pod { return randomPod(t, name) })
}

// Nodes generates nodes as those of [Worlds].
func Nodes(name string) *rapid.Generator[*corev1.Node] {
	return rapid.Custom(func(t *rapid.T) *corev1.Node { return randomNode(t, name) })
}
