package builtin_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/scheduler/builtin"
	"github.com/sampan-io/sampan/scheduler/plugin"
	"github.com/sampan-io/sampan/scheduler/plugin/plugintest"
)

func TestStoriesOfNodes(t *testing.T) { plugintest.Play(t, "testdata/nodes", builtin.Default()) }

// configured returns the plug-in with arguments that are right.
func configured[T plugin.Configurable](t *testing.T, p T, args string) T {
	t.Helper()
	got, err := p.Configure(json.RawMessage(args))
	if err != nil {
		t.Fatal(err)
	}
	return got.(T)
}

// TestRequestedToCapacityRatio has the example of
// https://kubernetes.io/docs/concepts/scheduling-eviction/resource-bin-packing/, where scores go to 10 instead of 100.
func TestRequestedToCapacityRatio(t *testing.T) {
	fit := configured(t, builtin.NodeResourcesFit{}, `{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "NodeResourcesFitArgs", "scoringStrategy": {
		"type": "RequestedToCapacityRatio",
		"resources": [{"name": "intel.com/foo", "weight": 5}, {"name": "memory"}, {"name": "cpu", "weight": 3}],
		"requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}}}`)
	pod := asking("intel.com/foo", "2", "memory", "256Mi", "cpu", "2")
	for _, tt := range []struct {
		name string
		node *plugin.Node
		want int64
	}{
		{"node 1: (75×5 + 50 + 37×3) / 9", node(corev1.Node{Status: corev1.NodeStatus{Allocatable: amounts("intel.com/foo", "4", "memory", "1Gi", "cpu", "8")}},
			asking("intel.com/foo", "1", "memory", "256Mi", "cpu", "1")), 60},
		{"node 2: (50×5 + 75 + 100×3) / 9", node(corev1.Node{Status: corev1.NodeStatus{Allocatable: amounts("intel.com/foo", "8", "memory", "1Gi", "cpu", "8")}},
			asking("intel.com/foo", "2", "memory", "512Mi", "cpu", "6")), 69},
	} {
		if got := fit.Score(pod, tt.node); got != tt.want {
			t.Errorf("%s: score %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestStrategies(t *testing.T) {
	n := node(corev1.Node{Status: corev1.NodeStatus{Allocatable: amounts("cpu", "4", "memory", "4Gi", "x.io/gpu", "4")}}, asking("cpu", "1", "memory", "2Gi", "x.io/gpu", "1"))
	for _, tt := range []struct {
		name, args string
		pod        *plugin.Pod
		want       int64
	}{
		{"least", `{}`, asking("cpu", "1", "memory", "1Gi"), (50 + 25) / 2},
		{"most", `{"scoringStrategy": {"type": "MostAllocated"}}`, asking("cpu", "1", "memory", "1Gi"), (50 + 75) / 2},
		{"weighed", `{"scoringStrategy": {"resources": [{"name": "cpu", "weight": 3}, {"name": "memory"}]}}`, asking("cpu", "1", "memory", "1Gi"), (3*50 + 25) / 4},
		{"most of an extended resource", `{"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "x.io/gpu"}]}}`, asking("x.io/gpu", "2"), 75},
		{"an extended resource that is not asked for", `{"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "x.io/gpu"}]}}`, asking("cpu", "2"), 0},
		{"a falling shape", `{"scoringStrategy": {"type": "RequestedToCapacityRatio", "resources": [{"name": "cpu"}],
			"requestedToCapacityRatio": {"shape": [{"utilization": 20, "score": 10}, {"utilization": 70, "score": 0}]}}}`, asking("cpu", "1"), 40},
		{"more than there is", `{}`, asking("cpu", "8", "memory", "1Gi"), 25 / 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := configured(t, builtin.NodeResourcesFit{}, tt.args).Score(tt.pod, n); got != tt.want {
				t.Errorf("score %d, want %d", got, tt.want)
			}
		})
	}
}

func TestIgnoredResources(t *testing.T) {
	n := node(corev1.Node{Status: corev1.NodeStatus{Allocatable: amounts("pods", "9")}})
	fit := configured(t, builtin.NodeResourcesFit{}, `{"ignoredResources": ["x.io/gpu"], "ignoredResourceGroups": ["example.com"]}`)
	if v := fit.Filter(asking("x.io/gpu", "1", "example.com/a", "1"), n); !v.OK() {
		t.Errorf("ignored resources are looked at: %v", v)
	}
	if v := fit.Filter(asking("x.io/tpu", "1"), n); v.Reason != "Insufficient x.io/tpu" {
		t.Errorf("others are not: %v", v)
	}
}

func TestAddedAffinity(t *testing.T) {
	a := configured(t, builtin.NodeAffinity{}, `{"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
		{"nodeSelectorTerms": [{"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}]}}}`)
	ours := node(corev1.Node{})
	if v := a.Filter(asking(), ours); v.Reason != "node(s) didn't match scheduler-enforced node affinity" {
		t.Errorf("a node of others: %v", v)
	}
	ours.Labels = map[string]string{"team": "a"}
	if v := a.Filter(asking(), ours); !v.OK() {
		t.Errorf("a node of ours: %v", v)
	}
}

// TestArgumentsAreChecked has one fault in each line, or two.
func TestArgumentsAreChecked(t *testing.T) {
	fit, balanced, affinity := builtin.NodeResourcesFit{}, builtin.NodeResourcesBalancedAllocation{}, builtin.NodeAffinity{}
	for _, tt := range []struct {
		plugin plugin.Configurable
		args   string
		want   []string
	}{
		{fit, `[]`, []string{"want an object"}},
		{fit, `{"scoring": {}}`, []string{`"scoring"`}},
		{fit, `{"ignoredResources": ["a b"]}`, []string{"ignoredResources[0]"}},
		{fit, `{"ignoredResourceGroups": ["a/b", "A"]}`, []string{"ignoredResourceGroups[0]", "ignoredResourceGroups[1]"}},
		{fit, `{"scoringStrategy": {"type": "Best"}}`, []string{"scoringStrategy.type", "LeastAllocated"}},
		{fit, `{"scoringStrategy": {"resources": [{"name": "cpu", "weight": 101}, {"weight": -1}, {"name": "cpu"}]}}`, []string{"resources[0].weight", "resources[1].name", "resources[1].weight", "resources[2].name"}},
		{fit, `{"scoringStrategy": {"type": "RequestedToCapacityRatio"}}`, []string{"scoringStrategy.requestedToCapacityRatio.shape"}},
		{
			fit, `{"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": [{"utilization": 50, "score": 11}, {"utilization": 50, "score": 1}, {"utilization": 101, "score": 1}]}}}`,
			[]string{"shape[0].score", "shape[1].utilization", "shape[2].utilization"},
		},
		{balanced, `{"resources": [{"name": "cpu", "weight": 2}]}`, []string{"resources[0].weight"}},
		{affinity, `{"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}`, []string{"nodeSelectorTerms"}},
		{
			affinity, `{"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0, "preference": {"matchExpressions": [{"key": "", "operator": "In"}, {"key": "a", "operator": "Gt", "values": ["x"]}, {"key": "a", "operator": "Is"}, {"key": "a", "operator": "Exists", "values": ["b"]}], "matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["a", "b"]}]}}]}}`,
			[]string{"[0].weight", "matchExpressions[0].key", "matchExpressions[0].values", "matchExpressions[1].values[0]", "matchExpressions[2].operator", "matchExpressions[3].values", "matchFields[0].key", "matchFields[0].values"},
		},
	} {
		_, err := tt.plugin.Configure(json.RawMessage(tt.args))
		if err == nil {
			t.Errorf("%s takes %s", tt.plugin.Name(), tt.args)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: %v, want it to say %q", tt.plugin.Name(), tt.args, err, want)
			}
		}
	}
}

func TestStoriesOfSpreading(t *testing.T) { plugintest.Play(t, "testdata/spread", builtin.Default()) }

func TestArgumentsOfSpreading(t *testing.T) {
	for _, tt := range []struct {
		args string
		want []string
	}{
		{`{"defaultingType": "Some"}`, []string{"defaultingType", "List"}},
		{`{"defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}`, []string{"defaultConstraints", "List"}},
		{
			`{"defaultingType": "List", "defaultConstraints": [{}, {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}, {"maxSkew": 2, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}]}`,
			[]string{"[0].maxSkew", "[0].topologyKey", "[0].whenUnsatisfiable", "[1].labelSelector", "defaultConstraints[2]: Duplicate"},
		},
	} {
		_, err := builtin.PodTopologySpread{}.Configure(json.RawMessage(tt.args))
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want it to say %q", tt.args, err, want)
			}
		}
	}
	got := configured(t, builtin.PodTopologySpread{}, `{"defaultingType": "List", "defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]}`)
	if !got.List || len(got.Defaults) != 1 {
		t.Errorf("configured: %+v", got)
	}
	plugintest.Laws(t, got)
}

func TestStoriesOfPodAffinity(t *testing.T) {
	plugintest.Play(t, "testdata/affinity", builtin.Default())
}

func TestArgumentsOfPodAffinity(t *testing.T) {
	for _, args := range []string{`{"hardPodAffinityWeight": 101}`, `{"hardPodAffinityWeight": -1}`, `{"hardPodAffinityWeight": "1"}`} {
		if _, err := (builtin.InterPodAffinity{}).Configure(json.RawMessage(args)); err == nil || !strings.Contains(err.Error(), "hardPodAffinityWeight") {
			t.Errorf("%s: %v", args, err)
		}
	}
	got := configured(t, builtin.InterPodAffinity{}, `{"hardPodAffinityWeight": 0, "ignorePreferredTermsOfExistingPods": true}`)
	if *got.HardPodAffinityWeight != 0 || !got.IgnorePreferredTermsOfExistingPods {
		t.Errorf("configured: %+v", got)
	}
	plugintest.Laws(t, got)
}

func TestStoriesOfPreemption(t *testing.T) {
	plugintest.Play(t, "testdata/preemption", builtin.Default())
}

func TestArgumentsOfPreemption(t *testing.T) {
	for args, want := range map[string]string{
		`{"minCandidateNodesPercentage": 101}`:                               "minCandidateNodesPercentage",
		`{"minCandidateNodesAbsolute": -1}`:                                  "minCandidateNodesAbsolute",
		`{"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0}`: "minCandidateNodesPercentage",
	} {
		if _, err := (builtin.DefaultPreemption{}).Configure(json.RawMessage(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to say %q", args, err, want)
		}
	}
}
