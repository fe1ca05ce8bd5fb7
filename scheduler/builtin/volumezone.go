package builtin

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/volumefit"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

func hasClaims(pod *plugin.Pod) bool {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			return true
		}
	}
	return false
}

// hasClaim reports whether one of the pod's volumes is a claim of that name.
func hasClaim(pod *plugin.Pod, namespace, name string) bool {
	if pod.Namespace != namespace {
		return false
	}
	for i := range pod.Spec.Volumes {
		if own, _ := volumefit.Named(pod.Pod, &pod.Spec.Volumes[i]); own != "" && own == name {
			return true
		}
	}
	return false
}

// ownClaims hints at what happens to the claims of the pod itself.
func ownClaims(actions plugin.Action) plugin.Hint {
	return plugin.Hint{Resource: client.PersistentVolumeClaims.GroupVersionResource, Action: actions, Helps: func(pod *plugin.Pod, c plugin.Change) bool {
		obj := c.Object
		if obj == nil {
			obj = c.OldObject
		}
		return hasClaim(pod, obj.GetNamespace(), obj.GetName())
	}}
}

// endOfUsers hints at the end of pods that have claims.
func endOfUsers() plugin.Hint {
	return plugin.Hint{Resource: client.Pods.GroupVersionResource, Action: plugin.Deleted, Helps: func(_ *plugin.Pod, c plugin.Change) bool { return hasClaims(c.OldPod) }}
}

// anyChange hints at whatever happens to objects of these resources.
func anyChange(resources []schema.GroupVersionResource) []plugin.Hint {
	hints := make([]plugin.Hint, len(resources))
	for i, r := range resources {
		hints[i] = plugin.Hint{Resource: r, Action: plugin.Added | plugin.Updated | plugin.Deleted}
	}
	return hints
}

// VolumeZone keeps pods in the zones and regions that the labels of their volumes name.
type VolumeZone struct{}

// Name implements [plugin.Plugin].
func (VolumeZone) Name() string { return "VolumeZone" }

// Needs implements [plugin.Needer].
func (VolumeZone) Needs() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{client.PersistentVolumeClaims.GroupVersionResource, client.PersistentVolumes.GroupVersionResource}
}

// zoneLabels are those of volumes that nodes have to agree with. A value can be several, with "__" between them.
var zoneLabels = []string{
	corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
}

// PreFilter implements [plugin.PreFilter].
func (VolumeZone) PreFilter(_ context.Context, pod *plugin.Pod, s *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	if !hasClaims(pod) {
		return nil, plugin.Skip
	}
	check := &zoneCheck{}
	for i := range pod.Spec.Volumes {
		name, _ := volumefit.Named(pod.Pod, &pod.Spec.Volumes[i])
		c, ok := plugin.Find(s, client.PersistentVolumeClaims, pod.Namespace, name)
		if !ok || c.Spec.VolumeName == "" {
			continue // VolumeBinding says so
		}
		volume, ok := plugin.Find(s, client.PersistentVolumes, "", c.Spec.VolumeName)
		if !ok {
			continue
		}
		for _, label := range zoneLabels {
			if value, ok := volume.Labels[label]; ok {
				check.wants = append(check.wants, zoneWant{label, strings.Split(value, "__")})
			}
		}
	}
	if len(check.wants) == 0 {
		return nil, plugin.Skip
	}
	return check, plugin.Verdict{}
}

// zoneCheck is where the volumes of a pod are.
type zoneCheck struct{ wants []zoneWant }

type zoneWant struct {
	label  string
	values []string
}

// Filter implements [plugin.Check]. A node that is in no zone and no region is near to everything.
func (c *zoneCheck) Filter(node *plugin.Node) plugin.Verdict {
	if !slices.ContainsFunc(zoneLabels, func(l string) bool { _, ok := node.Labels[l]; return ok }) {
		return plugin.Verdict{}
	}
	for _, w := range c.wants {
		if !slices.Contains(w.values, labelOf(node.Node, w.label)) {
			return plugin.Never("node(s) had no available volume zone")
		}
	}
	return plugin.Verdict{}
}

// labelOf returns a label of a node, under its new name if it lacks the old one.
func labelOf(node *corev1.Node, label string) string {
	if v, ok := node.Labels[label]; ok {
		return v
	}
	switch label {
	case corev1.LabelFailureDomainBetaZone:
		return node.Labels[corev1.LabelTopologyZone]
	case corev1.LabelFailureDomainBetaRegion:
		return node.Labels[corev1.LabelTopologyRegion]
	}
	return ""
}

// Hints implements [plugin.Hinter].
func (z VolumeZone) Hints() []plugin.Hint {
	return append(anyChange(z.Needs()), plugin.Hint{Resource: client.Nodes.GroupVersionResource, Action: plugin.Added | plugin.NodeLabels})
}
