package builtin

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/volumefit"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// VolumeRestrictions sees to it that a claim that is for one pod alone (ReadWriteOncePod, KEP-2485) is used by one, and that no
// disk that a pod names itself is mounted twice on a node where its kind of storage does not allow that.
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
	check := func() *aloneCheck {
		if c == nil {
			c = &aloneCheck{namespace: pod.Namespace}
		}
		return c
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if exclusive(v) {
			check().disks = append(c.disks, v)
			continue
		}
		name, _ := volumefit.Named(pod.Pod, v)
		if name == "" {
			continue
		}
		if wanted, ok := plugin.Find(s, client.PersistentVolumeClaims, pod.Namespace, name); ok && slices.Contains(wanted.Spec.AccessModes, corev1.ReadWriteOncePod) {
			if check().claims == nil {
				c.claims = map[string]bool{}
			}
			c.claims[name] = true
		}
	}
	if c == nil {
		return nil, plugin.Skip
	}
	if len(c.claims) > 0 {
		for _, n := range s.Nodes() {
			for _, p := range n.Pods {
				c.PodAdded(p, n)
			}
		}
	}
	return c, plugin.Verdict{}
}

// aloneCheck counts the users of claims that a pod wants for itself.
type aloneCheck struct {
	namespace string
	claims    map[string]bool
	users     int
	disks     []*corev1.Volume // that not every other pod of a node may have too
}

func (c *aloneCheck) uses(pod *plugin.Pod) bool {
	return pod.Namespace == c.namespace && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		name, _ := volumefit.Named(pod.Pod, &v)
		return name != "" && c.claims[name]
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
func (c *aloneCheck) Filter(node *plugin.Node) plugin.Verdict {
	if c.users > 0 {
		return plugin.Refuse("node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod")
	}
	if len(c.disks) == 0 {
		return plugin.Verdict{}
	}
	for _, p := range node.Pods {
		for i := range p.Spec.Volumes {
			if slices.ContainsFunc(c.disks, func(d *corev1.Volume) bool { return exclude(d, &p.Spec.Volumes[i]) }) {
				return plugin.Refuse("node(s) had no available disk")
			}
		}
	}
	return plugin.Verdict{}
}

// exclusive reports whether a volume is one that [exclude] knows.
func exclusive(v *corev1.Volume) bool {
	return v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.ISCSI != nil || v.RBD != nil
}

// exclude reports whether two volumes are the same disk and cannot both be mounted on a node.
func exclude(a, b *corev1.Volume) bool {
	switch {
	case a.GCEPersistentDisk != nil && b.GCEPersistentDisk != nil:
		x, y := a.GCEPersistentDisk, b.GCEPersistentDisk
		return x.PDName == y.PDName && !(x.ReadOnly && y.ReadOnly)
	case a.AWSElasticBlockStore != nil && b.AWSElasticBlockStore != nil:
		return a.AWSElasticBlockStore.VolumeID == b.AWSElasticBlockStore.VolumeID
	case a.ISCSI != nil && b.ISCSI != nil:
		x, y := a.ISCSI, b.ISCSI
		return x.IQN == y.IQN && !(x.ReadOnly && y.ReadOnly)
	case a.RBD != nil && b.RBD != nil:
		x, y := a.RBD, b.RBD
		return x.RBDPool == y.RBDPool && x.RBDImage == y.RBDImage && !(x.ReadOnly && y.ReadOnly) &&
			slices.ContainsFunc(x.CephMonitors, func(m string) bool { return slices.Contains(y.CephMonitors, m) })
	}
	return false
}

// Hints implements [plugin.Hinter].
func (r VolumeRestrictions) Hints() []plugin.Hint {
	return append(anyChange(r.Needs()), plugin.Hint{Resource: client.Pods.GroupVersionResource, Action: plugin.Deleted},
		plugin.Hint{Resource: client.Nodes.GroupVersionResource, Action: plugin.Added})
}
