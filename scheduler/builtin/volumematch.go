package builtin

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/internal/volumefit"
)

// wantedVolume is a claim that waits for its first consumer, with all that could become its volume.
type wantedVolume struct {
	volumefit.Wish
	class    *storagev1.StorageClass
	node     string // for which a volume is being made already; then nothing is looked for
	reserved []*corev1.PersistentVolume
	fit      *volumeFile
	limited  bool // the provisioner says how much room it has: in pools
	pools    []*pool
}

// find returns the volume for the claim on a node, or nil. Volumes in taken are other claims'.
func (w *wantedVolume) find(node *corev1.Node, taken map[*corev1.PersistentVolume]bool) *corev1.PersistentVolume {
	free := func(v *corev1.PersistentVolume) bool { return !taken[v] }
	for _, v := range w.reserved {
		if !free(v) {
			continue
		}
		if !reachable(v, node) {
			return nil // it is this one or none
		}
		return v
	}
	return w.fit.first(node, free)
}

// provisionable reports whether a provisioner can make a volume for the node.
func (w *wantedVolume) provisionable(node *corev1.Node) bool {
	if w.class == nil || w.class.Provisioner == "" || w.class.Provisioner == volumefit.NoProvisioner {
		return false
	}
	return len(w.class.AllowedTopologies) == 0 || slices.ContainsFunc(w.class.AllowedTopologies, func(t corev1.TopologySelectorTerm) bool {
		return len(t.MatchLabelExpressions) > 0 && !slices.ContainsFunc(t.MatchLabelExpressions, func(e corev1.TopologySelectorLabelRequirement) bool {
			value, ok := node.Labels[e.Key]
			return !ok || !slices.Contains(e.Values, value)
		})
	})
}

// A pool is some space from which volumes are made.
type pool struct {
	nodes    labels.Selector // that reach it
	limit    int64           // the largest volume, in bytes
	capacity int64           // altogether, in bytes
	enough   bool
}

func newPool(c *storagev1.CSIStorageCapacity, size int64) (*pool, error) {
	selector, err := metav1.LabelSelectorAsSelector(c.NodeTopology)
	if err != nil {
		return nil, err
	}
	p := &pool{nodes: selector, limit: limitOf(c), capacity: limitOf(c)}
	if c.Capacity != nil {
		p.capacity = c.Capacity.Value()
	}
	p.enough = (c.MaximumVolumeSize != nil || c.Capacity != nil) && p.limit >= size
	return p, nil
}

// pool returns the first pool that has room for the claim and can be reached from the node, or nil and how large a volume
// could be.
func (w *wantedVolume) pool(node *corev1.Node) (_ *pool, largest int64) {
	for _, p := range w.pools {
		if !p.nodes.Matches(labels.Set(node.Labels)) {
			continue
		}
		if p.enough {
			return p, p.limit
		}
		largest = max(largest, p.limit)
	}
	return nil, largest
}

// A volumeFile finds the first volume of many that can be reached from a node. Most volumes that are not reached
// from everywhere are reached from nodes with one value of one label: they are filed under it, so that
// a thousand disks of a thousand nodes cost each of the nodes one look.
type volumeFile struct {
	volumes []*corev1.PersistentVolume // the best first
	loose   []int                      // indexes into volumes
	byLabel map[string]map[string][]int
}

func newVolumeFile(volumes []*corev1.PersistentVolume) *volumeFile {
	f := &volumeFile{volumes: volumes, byLabel: map[string]map[string][]int{}}
	for i, v := range volumes {
		key, values := filedUnder(v)
		if key == "" {
			f.loose = append(f.loose, i)
			continue
		}
		if f.byLabel[key] == nil {
			f.byLabel[key] = map[string][]int{}
		}
		for _, value := range values {
			f.byLabel[key][value] = append(f.byLabel[key][value], i)
		}
	}
	return f
}

// filedUnder returns a label, and the values of which a node has to have one to reach a volume; no key if that cannot be said so.
func filedUnder(v *corev1.PersistentVolume) (key string, values []string) {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil || len(v.Spec.NodeAffinity.Required.NodeSelectorTerms) != 1 {
		return "", nil
	}
	for _, e := range v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions {
		if e.Operator == corev1.NodeSelectorOpIn && (key == "" || len(e.Values) < len(values)) {
			key, values = e.Key, slices.Compact(slices.Sorted(slices.Values(e.Values)))
		}
	}
	return key, values
}

// first returns the first volume that is free and can be reached from the node, or nil.
func (f *volumeFile) first(node *corev1.Node, free func(*corev1.PersistentVolume) bool) *corev1.PersistentVolume {
	if f == nil {
		return nil
	}
	best := len(f.volumes)
	try := func(among []int) {
		for _, i := range among {
			if i >= best {
				return
			}
			if v := f.volumes[i]; free(v) && reachable(v, node) {
				best = i
				return
			}
		}
	}
	try(f.loose)
	for key, values := range f.byLabel {
		if value, ok := node.Labels[key]; ok {
			try(values[value])
		}
	}
	if best == len(f.volumes) {
		return nil
	}
	return f.volumes[best]
}
