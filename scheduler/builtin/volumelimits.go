package builtin

import (
	"context"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/volumefit"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// NodeVolumeLimits keeps pods off nodes that have as many volumes of a CSI driver as the driver says that they can have (KEP-554), and
// off those where a driver is missing that asks for that (preventPodSchedulingIfMissing).
//
// A volume counts once on a node, however many pods there use it. One that is still attached, or being detached, counts too.
type NodeVolumeLimits struct{}

// Name implements [plugin.Plugin].
func (NodeVolumeLimits) Name() string { return "NodeVolumeLimits" }

// Needs implements [plugin.Needer].
func (NodeVolumeLimits) Needs() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		client.PersistentVolumeClaims.GroupVersionResource, client.PersistentVolumes.GroupVersionResource, client.StorageClasses.GroupVersionResource,
		client.CSINodes.GroupVersionResource, client.CSIDrivers.GroupVersionResource, client.VolumeAttachments.GroupVersionResource,
	}
}

// A csiVolume is a volume of a driver. One that is not made yet has its claim for a handle.
type csiVolume struct{ driver, handle string }

// csiVolumeOf returns the volume of a claim; an empty one if no driver is responsible.
func csiVolumeOf(s *plugin.Snapshot, c *corev1.PersistentVolumeClaim) csiVolume {
	if c.Spec.VolumeName != "" {
		if v, ok := plugin.Find(s, client.PersistentVolumes, "", c.Spec.VolumeName); ok {
			if v.Spec.CSI == nil {
				return csiVolume{}
			}
			return csiVolume{v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle}
		}
	}
	class, ok := plugin.Find(s, client.StorageClasses, "", volumefit.Class(c))
	if !ok || class.Provisioner == volumefit.NoProvisioner {
		return csiVolume{}
	}
	return csiVolume{class.Provisioner, "\x00" + c.Namespace + "/" + c.Name}
}

// csiVolumesOf adds a pod's volumes to those in found, and returns the name of a claim that is not there.
func csiVolumesOf(s *plugin.Snapshot, pod *plugin.Pod, found map[csiVolume]bool) (missing string) {
	for i := range pod.Spec.Volumes {
		name, ephemeral := volumefit.Named(pod.Pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		c, ok := plugin.Find(s, client.PersistentVolumeClaims, pod.Namespace, name)
		if !ok || ephemeral && volumefit.Owned(pod.Pod, c) != nil {
			missing = name
			continue
		}
		if v := csiVolumeOf(s, c); v.driver != "" {
			found[v] = true
		}
	}
	return missing
}

// PreFilter implements [plugin.PreFilter].
func (NodeVolumeLimits) PreFilter(_ context.Context, pod *plugin.Pod, s *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	if !hasClaims(pod) {
		return nil, plugin.Skip
	}
	c := &limitCheck{snapshot: s, wants: map[csiVolume]bool{}}
	if name := csiVolumesOf(s, pod, c.wants); name != "" {
		// VolumeBinding says more, if it is there: it is asked before any node is.
		c.missing = fmt.Sprintf("looking up PVC %s/%s: persistentvolumeclaim %q not found", pod.Namespace, name, name)
	}
	if len(c.wants) == 0 && c.missing == "" {
		return nil, plugin.Skip
	}
	for v := range c.wants {
		d, ok := plugin.Find(s, client.CSIDrivers, "", v.driver)
		if ok && d.Spec.PreventPodSchedulingIfMissing != nil && *d.Spec.PreventPodSchedulingIfMissing && !slices.Contains(c.needed, v.driver) {
			c.needed = append(c.needed, v.driver)
		}
	}
	slices.Sort(c.needed)
	return c, plugin.Verdict{}
}

// limitCheck is the volumes that a pod adds to a node.
type limitCheck struct {
	snapshot *plugin.Snapshot
	wants    map[csiVolume]bool
	needed   []string // drivers that a node must have
	missing  string
	attached map[string][]csiVolume // by node, as VolumeAttachments say; nil: not looked at yet
}

// Filter implements [plugin.Check]. It looks at the pods that the node has when it is asked.
func (c *limitCheck) Filter(node *plugin.Node) plugin.Verdict {
	if c.missing != "" {
		return plugin.Never(c.missing)
	}
	n, known := plugin.Find(c.snapshot, client.CSINodes, "", node.Name)
	for _, driver := range c.needed {
		if !known || !slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver }) {
			return plugin.Refuse(driver + " CSI driver is not installed on the node")
		}
	}
	if !known {
		return plugin.Verdict{}
	}
	full := false
	c.count(n, node, func(l plugin.Lack) { full = full || l.Asked > l.Free })
	if full {
		return plugin.Refuse("node(s) exceed max volume count")
	}
	return plugin.Verdict{}
}

// Explain implements [plugin.CheckExplainer].
func (c *limitCheck) Explain(node *plugin.Node) []plugin.Lack {
	var lacks []plugin.Lack
	n, known := plugin.Find(c.snapshot, client.CSINodes, "", node.Name)
	for _, driver := range c.needed {
		if !known || !slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver }) {
			lacks = append(lacks, plugin.Lack{What: "driver " + driver, Asked: 1})
		}
	}
	if known {
		c.count(n, node, func(l plugin.Lack) {
			if l.Asked > l.Free {
				l.Free = max(l.Free, 0)
				lacks = append(lacks, l)
			}
		})
	}
	return lacks
}

// count reports, for each driver of the pod that has a limit on the node, how many volumes are asked for and free.
func (c *limitCheck) count(n *storagev1.CSINode, node *plugin.Node, report func(plugin.Lack)) {
	var asked, taken map[string]int64 // by driver
	for i := range n.Spec.Drivers {
		d := &n.Spec.Drivers[i]
		if d.Allocatable == nil || d.Allocatable.Count == nil {
			continue
		}
		if asked == nil {
			asked, taken = c.byDriver(node)
		}
		if asked[d.Name] == 0 {
			continue // they are there already
		}
		total := int64(*d.Allocatable.Count)
		report(plugin.Lack{What: "volumes of " + d.Name, Asked: asked[d.Name], Free: total - taken[d.Name], Total: total})
	}
}

// byDriver returns how many volumes the pod adds to those of the node, and how many there are, by driver.
func (c *limitCheck) byDriver(node *plugin.Node) (asked, taken map[string]int64) {
	used := c.used(node)
	asked, taken = map[string]int64{}, map[string]int64{}
	for v := range c.wants {
		if !used[v] {
			asked[v.driver]++
		}
	}
	if len(asked) == 0 {
		return asked, taken
	}
	for v := range used {
		taken[v.driver]++
	}
	for _, v := range c.attachments()[node.Name] {
		if !used[v] {
			taken[v.driver]++
		}
	}
	return asked, taken
}

// used returns the volumes of the node's pods.
func (c *limitCheck) used(node *plugin.Node) map[csiVolume]bool {
	used := map[csiVolume]bool{}
	for _, p := range node.Pods {
		if len(p.Spec.Volumes) > 0 {
			csiVolumesOf(c.snapshot, p, used)
		}
	}
	return used
}

// attachments returns the attached volumes of nodes, each once.
func (c *limitCheck) attachments() map[string][]csiVolume {
	if c.attached != nil {
		return c.attached
	}
	c.attached = map[string][]csiVolume{}
	for _, a := range plugin.All(c.snapshot, client.VolumeAttachments, "") {
		if a.Spec.Source.PersistentVolumeName == nil || a.Spec.Attacher == "" {
			continue
		}
		v, ok := plugin.Find(c.snapshot, client.PersistentVolumes, "", *a.Spec.Source.PersistentVolumeName)
		if !ok || v.Spec.CSI == nil {
			continue
		}
		on := csiVolume{a.Spec.Attacher, v.Spec.CSI.VolumeHandle}
		if !slices.Contains(c.attached[a.Spec.NodeName], on) {
			c.attached[a.Spec.NodeName] = append(c.attached[a.Spec.NodeName], on)
		}
	}
	return c.attached
}

// Hints implements [plugin.Hinter].
func (NodeVolumeLimits) Hints() []plugin.Hint {
	return []plugin.Hint{
		{Resource: client.Nodes.GroupVersionResource, Action: plugin.Added},
		{Resource: client.CSINodes.GroupVersionResource, Action: plugin.Added | plugin.Updated | plugin.Deleted, Helps: func(_ *plugin.Pod, c plugin.Change) bool {
			before, _ := c.OldObject.(*storagev1.CSINode)
			after, _ := c.Object.(*storagev1.CSINode)
			return before == nil || after == nil || roomier(before, after)
		}},
		{Resource: client.CSIDrivers.GroupVersionResource, Action: plugin.Updated | plugin.Deleted},
		{Resource: client.VolumeAttachments.GroupVersionResource, Action: plugin.Updated | plugin.Deleted},
		// A volume can turn out to be one that is on the node already, or of another kind.
		{Resource: client.PersistentVolumes.GroupVersionResource, Action: plugin.Added | plugin.Updated | plugin.Deleted},
		{Resource: client.StorageClasses.GroupVersionResource, Action: plugin.Added | plugin.Updated | plugin.Deleted, Helps: func(_ *plugin.Pod, c plugin.Change) bool {
			before, _ := c.OldObject.(*storagev1.StorageClass)
			after, _ := c.Object.(*storagev1.StorageClass)
			return before == nil || after == nil || before.Provisioner != after.Provisioner // deleted and created again while the watch was down
		}},
		{Resource: client.PersistentVolumeClaims.GroupVersionResource, Action: plugin.Updated | plugin.Deleted},
		ownClaims(plugin.Added),
		endOfUsers(),
	}
}

// roomier reports whether a driver is new, has another limit, which can be none, or a greater one.
func roomier(before, after *storagev1.CSINode) bool {
	limits := func(n *storagev1.CSINode) map[string]int64 {
		m := map[string]int64{}
		for _, d := range n.Spec.Drivers {
			m[d.Name] = -1
			if d.Allocatable != nil && d.Allocatable.Count != nil {
				m[d.Name] = int64(*d.Allocatable.Count)
			}
		}
		return m
	}
	was, now := limits(before), limits(after)
	for driver, limit := range was {
		fresh, there := now[driver]
		if !there || fresh < 0 || limit >= 0 && fresh > limit {
			return true
		}
	}
	for driver := range now {
		if _, there := was[driver]; !there {
			return true
		}
	}
	return false
}
