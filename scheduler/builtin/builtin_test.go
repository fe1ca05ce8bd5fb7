package builtin_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

func amounts(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func node(obj corev1.Node, pods ...*plugin.Pod) *plugin.Node {
	var c plugin.Cluster
	c.SetNode(&obj)
	for i, p := range pods {
		p := *p
		p.Pod = p.DeepCopy()
		p.UID = types.UID(fmt.Sprint(i))
		c.Place(&p, obj.Name)
	}
	return c.Snapshot.Node(obj.Name)
}

func asking(pairs ...string) *plugin.Pod {
	return plugin.NewPod(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Resources: corev1.ResourceRequirements{Requests: amounts(pairs...)}},
	}}})
}

func TestTheDefaultSetIsValid(t *testing.T) {
	if err := builtin.Default().Validate(); err != nil {
		t.Error(err)
	}
}

func TestNodeResourcesFit(t *testing.T) {
	n := node(corev1.Node{Status: corev1.NodeStatus{Allocatable: amounts("cpu", "1", "memory", "1Gi", "pods", "3", "x.io/gpu", "2", "ephemeral-storage", "1Gi")}},
		asking("cpu", "700m", "x.io/gpu", "1"))
	tests := []struct {
		name  string
		asks  []string
		want  string
		also  []string
		final bool
	}{
		{"asks nothing", nil, "", nil, false},
		{"fits exactly", []string{"cpu", "300m", "memory", "1Gi", "x.io/gpu", "1"}, "", nil, false},
		{"one too many", []string{"cpu", "301m"}, "Insufficient cpu", nil, false},
		{"fits an empty node only", []string{"cpu", "1"}, "Insufficient cpu", nil, false},
		{"never fits", []string{"cpu", "1001m"}, "Insufficient cpu", nil, true},
		{"several are lacking", []string{"cpu", "1", "memory", "2Gi", "ephemeral-storage", "2Gi"}, "Insufficient cpu", []string{"Insufficient memory", "Insufficient ephemeral-storage"}, true},
		{"an extended resource", []string{"x.io/gpu", "2"}, "Insufficient x.io/gpu", nil, false},
		{"one that the node has not", []string{"x.io/tpu", "1"}, "Insufficient x.io/tpu", nil, true},
		{"none of it", []string{"x.io/tpu", "0"}, "", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := builtin.NodeResourcesFit{}.Filter(asking(tt.asks...), n)
			if got.Reason != tt.want || !slices.Equal(got.Also, tt.also) || (got.Code == plugin.Unresolvable) != tt.final {
				t.Errorf("Filter = %+v, want %q %q final %v", got, tt.want, tt.also, tt.final)
			}
		})
	}
	full := node(corev1.Node{Status: corev1.NodeStatus{Allocatable: amounts("pods", "1")}}, asking())
	if got := (builtin.NodeResourcesFit{}).Filter(asking(), full); got.Reason != "Too many pods" || got.Code != plugin.Unschedulable {
		t.Errorf("a full node: %+v", got)
	}
}

func TestTaintToleration(t *testing.T) {
	taint := corev1.Taint{Key: "k", Value: "5", Effect: corev1.TaintEffectNoSchedule}
	tests := []struct {
		name string
		by   corev1.Toleration
		fits bool
	}{
		{"key and value", corev1.Toleration{Key: "k", Value: "5"}, true},
		{"another value", corev1.Toleration{Key: "k", Value: "6"}, false},
		{"the key exists", corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists}, true},
		{"another key", corev1.Toleration{Key: "x", Operator: corev1.TolerationOpExists}, false},
		{"everything", corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		{"no key and no operator", corev1.Toleration{Value: "5"}, false},
		{"the effect", corev1.Toleration{Key: "k", Value: "5", Effect: corev1.TaintEffectNoSchedule}, true},
		{"another effect", corev1.Toleration{Key: "k", Value: "5", Effect: corev1.TaintEffectNoExecute}, false},
		{"less", corev1.Toleration{Key: "k", Value: "6", Operator: corev1.TolerationOpLt}, true},
		{"not less", corev1.Toleration{Key: "k", Value: "5", Operator: corev1.TolerationOpLt}, false},
		{"greater", corev1.Toleration{Key: "k", Value: "4", Operator: corev1.TolerationOpGt}, true},
		{"not a number", corev1.Toleration{Key: "k", Value: "x", Operator: corev1.TolerationOpGt}, false},
	}
	n := node(corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint}}})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := plugin.NewPod(&corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{tt.by}}})
			if got := (builtin.TaintToleration{}).Filter(pod, n); got.OK() != tt.fits {
				t.Errorf("Filter = %+v, want fits %v", got, tt.fits)
			}
		})
	}
}

func TestNodeAffinity(t *testing.T) {
	n := node(corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "a", "cores": "8"}}})
	label := func(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
	}
	name := func(op corev1.NodeSelectorOperator, v string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: op, Values: []string{v}}}}
	}
	both := label("zone", corev1.NodeSelectorOpIn, "a")
	both.MatchExpressions = append(both.MatchExpressions, label("zone", corev1.NodeSelectorOpIn, "b").MatchExpressions...)
	tests := []struct {
		name  string
		terms []corev1.NodeSelectorTerm
		fits  bool
	}{
		{"in", []corev1.NodeSelectorTerm{label("zone", corev1.NodeSelectorOpIn, "b", "a")}, true},
		{"not in", []corev1.NodeSelectorTerm{label("zone", corev1.NodeSelectorOpNotIn, "a")}, false},
		{"not in, without the label", []corev1.NodeSelectorTerm{label("x", corev1.NodeSelectorOpNotIn, "a")}, true},
		{"exists", []corev1.NodeSelectorTerm{label("zone", corev1.NodeSelectorOpExists)}, true},
		{"does not exist", []corev1.NodeSelectorTerm{label("zone", corev1.NodeSelectorOpDoesNotExist)}, false},
		{"greater", []corev1.NodeSelectorTerm{label("cores", corev1.NodeSelectorOpGt, "4")}, true},
		{"less", []corev1.NodeSelectorTerm{label("cores", corev1.NodeSelectorOpLt, "4")}, false},
		{"not a number", []corev1.NodeSelectorTerm{label("zone", corev1.NodeSelectorOpGt, "4")}, false},
		{"one term of two", []corev1.NodeSelectorTerm{label("x", corev1.NodeSelectorOpExists), label("zone", corev1.NodeSelectorOpExists)}, true},
		{"all of one term", []corev1.NodeSelectorTerm{both}, false},
		{"a term that says nothing", []corev1.NodeSelectorTerm{{}}, false},
		{"the name", []corev1.NodeSelectorTerm{name(corev1.NodeSelectorOpIn, "n1")}, true},
		{"another name", []corev1.NodeSelectorTerm{name(corev1.NodeSelectorOpIn, "n2")}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := plugin.NewPod(&corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: tt.terms},
			}}}})
			if got := (builtin.NodeAffinity{}).Filter(pod, n); got.OK() != tt.fits {
				t.Errorf("Filter = %+v, want fits %v", got, tt.fits)
			}
		})
	}
}

func TestPluginsKeepTheLaws(t *testing.T) {
	for _, e := range builtin.Default().Entries {
		t.Run(e.Name(), func(t *testing.T) { plugintest.Laws(t, e.Plugin) })
	}
}
