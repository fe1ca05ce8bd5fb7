package builtin

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// NodeResourcesFit keeps pods off nodes that lack their requests, or that run as many pods as they
// may, and ranks the others by what share of their resources would be in use.
type NodeResourcesFit struct {
	IgnoredResources      []corev1.ResourceName // extended ones that are not looked at
	IgnoredResourceGroups []string              // extended ones with these domains are not looked at either
	Strategy              ScoringStrategy
}

// Name implements [plugin.Plugin].
func (NodeResourcesFit) Name() string { return "NodeResourcesFit" }

// Configure implements [plugin.Configurable].
func (f NodeResourcesFit) Configure(args json.RawMessage) (plugin.Plugin, error) {
	var a struct {
		IgnoredResources      []corev1.ResourceName `json:"ignoredResources"`
		IgnoredResourceGroups []string              `json:"ignoredResourceGroups"`
		ScoringStrategy       ScoringStrategy       `json:"scoringStrategy"`
	}
	if err := plugin.DecodeArgs(args, &a); err != nil {
		return nil, err
	}
	var errs field.ErrorList
	for i, name := range a.IgnoredResources {
		for _, why := range validation.IsQualifiedName(string(name)) {
			errs = append(errs, field.Invalid(field.NewPath("ignoredResources").Index(i), name, why))
		}
	}
	for i, group := range a.IgnoredResourceGroups {
		at := field.NewPath("ignoredResourceGroups").Index(i)
		if strings.Contains(group, "/") {
			errs = append(errs, field.Invalid(at, group, `want the part of resources' names before the "/"`))
			continue
		}
		for _, why := range validation.IsDNS1123Subdomain(group) {
			errs = append(errs, field.Invalid(at, group, why))
		}
	}
	errs = append(errs, a.ScoringStrategy.validate(field.NewPath("scoringStrategy"))...)
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	a.ScoringStrategy.Resources = withDefaults(a.ScoringStrategy.Resources)
	return NodeResourcesFit{a.IgnoredResources, a.IgnoredResourceGroups, a.ScoringStrategy}, nil
}

// Needs implements [plugin.Needer].
func (NodeResourcesFit) Needs() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{client.DeviceClasses.GroupVersionResource}
}

// Optional implements [plugin.OptionalNeeder].
func (f NodeResourcesFit) Optional() []schema.GroupVersionResource { return f.Needs() }

// PreFilter implements [plugin.PreFilter]. Extended resources that a DeviceClass provides are up to DynamicResources, on
// nodes that do not have them.
func (f NodeResourcesFit) PreFilter(_ context.Context, pod *plugin.Pod, s *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	if len(pod.Requests.Other) == 0 {
		return nil, plugin.Verdict{}
	}
	classes := provided(pod, s)
	if len(classes) == 0 {
		return nil, plugin.Verdict{}
	}
	return &fitCheck{f, pod, classes}, plugin.Verdict{}
}

// fitCheck is NodeResourcesFit for a pod with extended resources that classes provide.
type fitCheck struct {
	f       NodeResourcesFit
	pod     *plugin.Pod
	classes map[corev1.ResourceName]*resourcev1.DeviceClass
}

// Filter implements [plugin.Check].
func (c *fitCheck) Filter(node *plugin.Node) plugin.Verdict {
	f := c.f
	f.IgnoredResources = slices.Clip(f.IgnoredResources)
	for name := range c.classes {
		if node.Allocatable.Amount(name) == 0 {
			f.IgnoredResources = append(f.IgnoredResources, name)
		}
	}
	return f.Filter(c.pod, node)
}

// Filter implements [plugin.Filter].
func (f NodeResourcesFit) Filter(pod *plugin.Pod, node *plugin.Node) plugin.Verdict {
	var v plugin.Verdict
	f.lacking(pod, node, func(l plugin.Lack) {
		why := "Insufficient " + l.What
		if l.What == string(corev1.ResourcePods) {
			why = "Too many pods"
		}
		code := plugin.Unschedulable
		if l.Asked > l.Total {
			code = plugin.Unresolvable
		}
		if v.Code = max(v.Code, code); v.Reason == "" {
			v.Reason = why
		} else {
			v.Also = append(v.Also, why)
		}
	})
	return v
}

// Explain implements [plugin.Explainer].
func (f NodeResourcesFit) Explain(pod *plugin.Pod, node *plugin.Node) []plugin.Lack {
	var lacks []plugin.Lack
	f.lacking(pod, node, func(l plugin.Lack) { lacks = append(lacks, l) })
	return lacks
}

// lacking calls f with everything that a node lacks, always in the same order.
func (f NodeResourcesFit) lacking(pod *plugin.Pod, node *plugin.Node, report func(plugin.Lack)) {
	if free := node.Allocatable.Pods - int64(len(node.Pods)); free < 1 {
		report(plugin.Lack{What: string(corev1.ResourcePods), Asked: 1, Free: max(free, 0), Total: node.Allocatable.Pods})
	}
	check := func(name corev1.ResourceName) {
		asked, total := pod.Requests.Amount(name), node.Allocatable.Amount(name)
		if free := total - node.Requested.Amount(name); asked > 0 && asked > free {
			report(plugin.Lack{What: string(name), Asked: asked, Free: max(free, 0), Total: total})
		}
	}
	check(corev1.ResourceCPU)
	check(corev1.ResourceMemory)
	check(corev1.ResourceEphemeralStorage)
	if len(pod.Requests.Other) == 0 {
		return
	}
	names := make([]corev1.ResourceName, 0, len(pod.Requests.Other))
	for name := range pod.Requests.Other {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if !f.ignores(name) {
			check(name)
		}
	}
}

func (f NodeResourcesFit) ignores(name corev1.ResourceName) bool {
	group, _, _ := strings.Cut(string(name), "/")
	return slices.Contains(f.IgnoredResources, name) || slices.Contains(f.IgnoredResourceGroups, group)
}

// Score implements [plugin.Score].
func (f NodeResourcesFit) Score(pod *plugin.Pod, node *plugin.Node) int64 {
	return f.Strategy.score(pod, node)
}

// Hints implements [plugin.Hinter].
func (f NodeResourcesFit) Hints() []plugin.Hint {
	return []plugin.Hint{
		{Resource: client.Pods.GroupVersionResource, Action: plugin.Deleted | plugin.PodScaledDown},
		{Resource: client.Nodes.GroupVersionResource, Action: plugin.Added | plugin.NodeAllocatable, Helps: func(pod *plugin.Pod, c plugin.Change) bool {
			has := plugin.NewResources(c.Node.Status.Allocatable)
			empty := &plugin.Node{Node: c.Node, Allocatable: has}
			return f.Filter(pod, empty).OK() || len(pod.Requests.Other) > 0
		}},
		{Resource: client.DeviceClasses.GroupVersionResource, Action: plugin.Added | plugin.Updated, Helps: func(pod *plugin.Pod, _ plugin.Change) bool {
			return len(pod.Requests.Other) > 0
		}},
	}
}
