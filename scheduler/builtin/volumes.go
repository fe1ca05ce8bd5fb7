package builtin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// VolumeBinding keeps pods waiting whose claims have no volume, and off nodes from which their volumes
// cannot be reached. It binds nothing itself: a claim of a class that waits for its first consumer
// (WaitForFirstConsumer) waits for a volume like any other.
type VolumeBinding struct{}

// Name implements [plugin.Plugin].
func (VolumeBinding) Name() string { return "VolumeBinding" }

// Needs implements [plugin.Needer].
func (VolumeBinding) Needs() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		client.PersistentVolumeClaims.GroupVersionResource, client.PersistentVolumes.GroupVersionResource, client.StorageClasses.GroupVersionResource,
	}
}

// claimed returns the name of the claim of a volume, "" if it has none. A generic ephemeral volume has one
// that is named after pod and volume (KEP-1698).
func claimed(pod *plugin.Pod, v *corev1.Volume) (name string, ephemeral bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName, false
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name, true
	}
	return "", false
}

func hasClaims(pod *plugin.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
}

// PreFilter implements [plugin.PreFilter].
func (VolumeBinding) PreFilter(_ context.Context, pod *plugin.Pod, s *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	if !hasClaims(pod) {
		return nil, plugin.Skip
	}
	c := &volumeCheck{}
	immediate := false
	for i := range pod.Spec.Volumes {
		name, ephemeral := claimed(pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		claim, ok := plugin.Find(s, client.PersistentVolumeClaims, pod.Namespace, name)
		switch {
		case !ok && ephemeral:
			return nil, plugin.Never(fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name))
		case !ok:
			return nil, plugin.Never(fmt.Sprintf("persistentvolumeclaim %q not found", name))
		case claim.Status.Phase == corev1.ClaimLost:
			return nil, plugin.Never(fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", name, claim.Spec.VolumeName))
		case claim.DeletionTimestamp != nil:
			return nil, plugin.Never(fmt.Sprintf("persistentvolumeclaim %q is being deleted", name))
		case ephemeral && !metav1.IsControlledBy(claim, pod.Pod):
			return nil, plugin.Never(fmt.Sprintf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", claim.Namespace, name, pod.Namespace, pod.Name))
		case claim.Spec.VolumeName == "" || claim.Status.Phase != corev1.ClaimBound:
			if delayed(s, claim) {
				c.waits = true
			} else {
				immediate = true
			}
			continue
		}
		volume, ok := plugin.Find(s, client.PersistentVolumes, "", claim.Spec.VolumeName)
		if !ok {
			c.gone = true
			continue
		}
		if a := volume.Spec.NodeAffinity; a != nil && a.Required != nil {
			c.affinities = append(c.affinities, a.Required.NodeSelectorTerms)
		}
	}
	if immediate {
		return nil, plugin.Never("pod has unbound immediate PersistentVolumeClaims")
	}
	return c, plugin.Verdict{}
}

// delayed reports whether the class of a claim waits for its first consumer.
func delayed(s *plugin.Snapshot, claim *corev1.PersistentVolumeClaim) bool {
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		return false
	}
	class, ok := plugin.Find(s, client.StorageClasses, "", *claim.Spec.StorageClassName)
	return ok && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// volumeCheck is what the volumes of a pod say.
type volumeCheck struct {
	affinities [][]corev1.NodeSelectorTerm // a node has to meet one term of each
	waits      bool                        // a claim has no volume yet
	gone       bool                        // a volume is not there
}

// Filter implements [plugin.Check].
func (c *volumeCheck) Filter(node *plugin.Node) plugin.Verdict {
	var why []string
	if slices.ContainsFunc(c.affinities, func(terms []corev1.NodeSelectorTerm) bool { return !anyHolds(terms, node.Node) }) {
		why = append(why, "node(s) didn't match PersistentVolume's node affinity")
	}
	if c.waits {
		why = append(why, "node(s) didn't find available persistent volumes to bind")
	}
	if c.gone {
		why = append(why, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
	}
	if len(why) == 0 {
		return plugin.Verdict{}
	}
	return plugin.Never(why[0], why[1:]...)
}

// Hints implements [plugin.Hinter].
func (b VolumeBinding) Hints() []plugin.Hint {
	return append(anyChange(b.Needs()), plugin.Hint{Resource: client.Nodes.GroupVersionResource, Action: plugin.Added | plugin.NodeLabels})
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
var zoneLabels = []string{ //nolint:gochecknoglobals // a constant
	corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
}

// PreFilter implements [plugin.PreFilter].
func (VolumeZone) PreFilter(_ context.Context, pod *plugin.Pod, s *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	if !hasClaims(pod) {
		return nil, plugin.Skip
	}
	c := &zoneCheck{}
	for i := range pod.Spec.Volumes {
		name, _ := claimed(pod, &pod.Spec.Volumes[i])
		claim, ok := plugin.Find(s, client.PersistentVolumeClaims, pod.Namespace, name)
		if !ok || claim.Spec.VolumeName == "" {
			continue // VolumeBinding says so
		}
		volume, ok := plugin.Find(s, client.PersistentVolumes, "", claim.Spec.VolumeName)
		if !ok {
			continue
		}
		for _, label := range zoneLabels {
			if value, ok := volume.Labels[label]; ok {
				c.wants = append(c.wants, zoneWant{label, strings.Split(value, "__")})
			}
		}
	}
	if len(c.wants) == 0 {
		return nil, plugin.Skip
	}
	return c, plugin.Verdict{}
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

// VolumeRestrictions sees to it that a claim that is for one pod alone (ReadWriteOncePod, KEP-2485) is used by one.
type VolumeRestrictions struct{}

// Name implements [plugin.Plugin].
func (VolumeRestrictions) Name() string { return "VolumeRestrictions" }

// Needs implements [plugin.Needer].
func (VolumeRestrictions) Needs() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{client.PersistentVolumeClaims.GroupVersionResource}
}

// PreFilter implements [plugin.PreFilter]. It looks at all placed pods, for pods with such a claim.
func (VolumeRestrictions) PreFilter(_ context.Context, pod *plugin.Pod, s *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	var c *aloneCheck
	for i := range pod.Spec.Volumes {
		name, _ := claimed(pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		if claim, ok := plugin.Find(s, client.PersistentVolumeClaims, pod.Namespace, name); ok && slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			if c == nil {
				c = &aloneCheck{namespace: pod.Namespace}
			}
			c.claims = append(c.claims, name)
		}
	}
	if c == nil {
		return nil, plugin.Skip
	}
	for _, n := range s.Nodes() {
		for _, p := range n.Pods {
			c.PodAdded(p, n)
		}
	}
	return c, plugin.Verdict{}
}

// aloneCheck counts the pods that use what a pod wants for itself.
type aloneCheck struct {
	namespace string
	claims    []string
	users     int
}

func (c *aloneCheck) uses(pod *plugin.Pod) bool {
	return pod.Namespace == c.namespace && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		name, _ := claimed(pod, &v)
		return name != "" && slices.Contains(c.claims, name)
	})
}

// PodAdded implements [plugin.Follower].
func (c *aloneCheck) PodAdded(pod *plugin.Pod, _ *plugin.Node) {
	if c.uses(pod) {
		c.users++
	}
}

// PodRemoved implements [plugin.Follower].
func (c *aloneCheck) PodRemoved(pod *plugin.Pod, _ *plugin.Node) {
	if c.uses(pod) {
		c.users--
	}
}

// Filter implements [plugin.Check].
func (c *aloneCheck) Filter(*plugin.Node) plugin.Verdict {
	if c.users > 0 {
		return plugin.Refuse("node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod")
	}
	return plugin.Verdict{}
}

// Hints implements [plugin.Hinter].
func (r VolumeRestrictions) Hints() []plugin.Hint {
	return append(anyChange(r.Needs()), plugin.Hint{Resource: client.Pods.GroupVersionResource, Action: plugin.Deleted})
}
