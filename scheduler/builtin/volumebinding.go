package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/volumefit"
	"github.com/sampan-io/sampan/scheduler/plugin"
)

// VolumeBinding keeps pods with unbound claims of immediate binding waiting, keeps pods off nodes that cannot reach their
// volumes, and finds volumes for claims of classes that wait for their first consumer (WaitForFirstConsumer): a volume
// that is there, or else a provisioner that can make one for the node.
//
// It holds its choice for the pod from Reserve on ([assumptions]). PreBind writes the choice, and waits until the binder among the
// controllers has bound each claim. It must be used as a pointer; the zero value is ready.
type VolumeBinding struct {
	// BindTimeout is how long PreBind waits for claims to be bound; nil means ten minutes.
	BindTimeout *time.Duration

	// Shape maps the utilization of a node's storage to its score; nil prefers low utilization.
	Shape []UtilizationShapePoint

	assumed assumptions
}

// defaultBindTimeout is upstream's.
const defaultBindTimeout = 600 * time.Second

// Name implements [plugin.Plugin].
func (*VolumeBinding) Name() string { return "VolumeBinding" }

// Needs implements [plugin.Needer].
func (*VolumeBinding) Needs() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		client.PersistentVolumeClaims.GroupVersionResource, client.PersistentVolumes.GroupVersionResource, client.StorageClasses.GroupVersionResource,
		client.CSIDrivers.GroupVersionResource, client.CSIStorageCapacities.GroupVersionResource,
	}
}

// Configure implements [plugin.Configurable].
func (*VolumeBinding) Configure(args json.RawMessage) (plugin.Plugin, error) {
	var in struct {
		BindTimeoutSeconds *int64                  `json:"bindTimeoutSeconds,omitempty"`
		Shape              []UtilizationShapePoint `json:"shape,omitempty"`
	}
	if err := plugin.DecodeArgs(args, &in); err != nil {
		return nil, err
	}
	var errs field.ErrorList
	out := &VolumeBinding{Shape: in.Shape}
	if s := in.BindTimeoutSeconds; s != nil {
		if *s < 0 || *s > int64((1<<63-1)/time.Second) {
			errs = append(errs, field.Invalid(field.NewPath("bindTimeoutSeconds"), *s, "want a number of seconds that is not negative"))
		}
		out.BindTimeout = new(time.Duration(*s) * time.Second)
	}
	if in.Shape != nil {
		errs = append(errs, validateShape(in.Shape, field.NewPath("shape"))...)
	}
	if err := errs.ToAggregate(); err != nil {
		return nil, err
	}
	return out, nil
}

// PreFilter implements [plugin.PreFilter].
func (b *VolumeBinding) PreFilter(_ context.Context, pod *plugin.Pod, s *plugin.Snapshot) (plugin.Check, plugin.Verdict) {
	if !hasClaims(pod) {
		return nil, plugin.Skip
	}
	c, v := b.check(pod, s)
	if !v.OK() {
		return nil, v
	}
	return c, v
}

// check works out the needs of a pod's claims.
func (b *VolumeBinding) check(pod *plugin.Pod, s *plugin.Snapshot) (*volumeCheck, plugin.Verdict) {
	b.assumed.settle(s)
	c := &volumeCheck{}
	immediate := false
	var delayed []*corev1.PersistentVolumeClaim
	var seen map[*corev1.PersistentVolumeClaim]bool // those in delayed
	for i := range pod.Spec.Volumes {
		name, ephemeral := volumefit.Named(pod.Pod, &pod.Spec.Volumes[i])
		if name == "" {
			continue
		}
		own, ok := plugin.Find(s, client.PersistentVolumeClaims, pod.Namespace, name)
		switch {
		case !ok && ephemeral:
			return nil, plugin.Never(fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name))
		case !ok:
			return nil, plugin.Never(fmt.Sprintf("persistentvolumeclaim %q not found", name))
		case own.Status.Phase == corev1.ClaimLost:
			return nil, plugin.Never(fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", name, own.Spec.VolumeName))
		case own.DeletionTimestamp != nil:
			return nil, plugin.Never(fmt.Sprintf("persistentvolumeclaim %q is being deleted", name))
		}
		if ephemeral {
			if err := volumefit.Owned(pod.Pod, own); err != nil {
				return nil, plugin.Never(err.Error())
			}
		}
		class, _ := plugin.Find(s, client.StorageClasses, "", volumefit.Class(own))
		switch {
		case volumefit.Bound(own):
			c.bound(s, own)
		case own.Spec.VolumeName == "" && volumefit.Delays(class):
			if seen == nil {
				seen = map[*corev1.PersistentVolumeClaim]bool{}
			}
			if !seen[own] {
				seen[own], delayed = true, append(delayed, own)
			}
		default: // also one that names a volume: the binder is to finish that, or to refuse it
			immediate = true
		}
	}
	if immediate {
		return nil, plugin.Never("pod has unbound immediate PersistentVolumeClaims")
	}
	// The smallest first, so that it does not get the volume that a larger one needs.
	slices.SortStableFunc(delayed, func(x, y *corev1.PersistentVolumeClaim) int {
		return x.Spec.Resources.Requests.Storage().Cmp(*y.Spec.Resources.Requests.Storage())
	})
	var volumes []*corev1.PersistentVolume
	if len(delayed) > 0 {
		volumes = plugin.All(s, client.PersistentVolumes, "")
		if reason := tooManyVolumes(len(delayed), len(volumes)); reason != "" {
			return nil, plugin.Never(reason)
		}
		c.plans = map[string]*volumePlan{}
	}
	for _, own := range delayed {
		wanted, err := b.want(s, own, volumes)
		if err != nil {
			return nil, plugin.Fail(err)
		}
		c.delayed = append(c.delayed, wanted)
	}
	return c, plugin.Verdict{}
}

// Bounds of the claims of a pod that wait for it. Each is compared with each volume, and on each node with the volumes of the
// claims before it.
const (
	mostDelayed = 250
	mostMatches = 1_000_000 // claims times volumes
)

// tooManyVolumes returns why a pod with so many claims that wait for it is not looked at beside so many volumes, or "".
func tooManyVolumes(claims, volumes int) string {
	switch {
	case claims > mostDelayed:
		return fmt.Sprintf("%d of the pod's persistentvolumeclaims wait for it, which are more than the scheduler looks at, want at most %d", claims, mostDelayed)
	case claims*volumes > mostMatches:
		return fmt.Sprintf("%d of the pod's persistentvolumeclaims wait for it, which the scheduler does not compare with %d persistentvolumes, want at most %d", claims, volumes, mostMatches/volumes)
	}
	return ""
}

// want works out what could become of a claim.
func (b *VolumeBinding) want(s *plugin.Snapshot, own *corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume) (*wantedVolume, error) {
	w := &wantedVolume{}
	var err error
	if w.Wish, err = volumefit.Ask(own); err != nil {
		return nil, err
	}
	w.class, _ = plugin.Find(s, client.StorageClasses, "", volumefit.Class(own))
	if w.node = own.Annotations[volumefit.SelectedNode]; w.node == "" {
		w.node = b.assumed.node(own)
	}
	if w.node == "" {
		var fit []*corev1.PersistentVolume
		for _, v := range volumes {
			if !w.Suits(v) {
				continue
			}
			switch to, assumed := b.assumed.claim(v); {
			case volumefit.ReservedFor(v, own), assumed && v.Spec.ClaimRef == nil && to == own.UID:
				w.reserved = append(w.reserved, v)
			case !assumed && w.Allows(v):
				fit = append(fit, v)
			}
		}
		slices.SortFunc(fit, volumefit.Smaller)
		w.fit = newVolumeFile(fit)
	}
	if w.class == nil {
		return w, nil
	}
	size, asks := own.Spec.Resources.Requests[corev1.ResourceStorage]
	d, ok := plugin.Find(s, client.CSIDrivers, "", w.class.Provisioner)
	if !asks || !ok || d.Spec.StorageCapacity == nil || !*d.Spec.StorageCapacity {
		return w, nil
	}
	w.limited = true
	for _, capacity := range plugin.All(s, client.CSIStorageCapacities, "") {
		if capacity.StorageClassName != w.class.Name || capacity.NodeTopology == nil {
			continue
		}
		p, err := newPool(capacity, size.Value())
		if err != nil {
			continue // the server has checked selectors; this one holds nowhere
		}
		w.pools = append(w.pools, p)
	}
	return w, nil
}

// volumeCheck checks the volumes of a pod.
type volumeCheck struct {
	affinities [][]corev1.NodeSelectorTerm // a node has to meet one term of each
	gone       bool                        // a volume is not there
	delayed    []*wantedVolume
	plans      map[string]*volumePlan // by node that fits, if there are delayed claims

	chosen *volumePlan // of the node that was chosen; nil if there is nothing to be done
}

// A volumePlan is the list of writes for the claims of a pod on a node.
type volumePlan struct {
	node      *corev1.Node
	bind      []volumeMatch
	provision []provision
}

type volumeMatch struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
}

type provision struct {
	claim *corev1.PersistentVolumeClaim
	class string
	pool  *pool // from which it would come, if that is known
}

// bound notes a claim that has its volume.
func (c *volumeCheck) bound(s *plugin.Snapshot, own *corev1.PersistentVolumeClaim) {
	v, ok := plugin.Find(s, client.PersistentVolumes, "", own.Spec.VolumeName)
	if !ok {
		c.gone = true
		return
	}
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		c.affinities = append(c.affinities, a.Required.NodeSelectorTerms)
	}
}

// reachable reports whether a volume can be mounted on a node.
func reachable(v *corev1.PersistentVolume, node *corev1.Node) bool {
	return v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil || anyHolds(v.Spec.NodeAffinity.Required.NodeSelectorTerms, node)
}

// Reasons for refusing nodes, in upstream's words.
const (
	noAffinity = "node(s) didn't match PersistentVolume's node affinity"
	noVolume   = "node(s) didn't find available persistent volumes to bind"
	noSpace    = "node(s) did not have enough free storage"
	noSuch     = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
)

// Filter implements [plugin.Check].
func (c *volumeCheck) Filter(node *plugin.Node) plugin.Verdict {
	var why []string
	if slices.ContainsFunc(c.affinities, func(terms []corev1.NodeSelectorTerm) bool { return !anyHolds(terms, node.Node) }) {
		why = append(why, noAffinity)
	}
	if len(c.delayed) > 0 {
		plan, reason, _ := c.plan(node.Node)
		if reason != "" {
			why = append(why, reason)
		} else {
			c.plans[node.Name] = plan
		}
	}
	if c.gone {
		why = append(why, noSuch)
	}
	if len(why) == 0 {
		return plugin.Verdict{}
	}
	return plugin.Never(why[0], why[1:]...)
}

// Explain implements [plugin.CheckExplainer].
func (c *volumeCheck) Explain(node *plugin.Node) []plugin.Lack {
	if len(c.delayed) == 0 {
		return nil
	}
	_, _, lacks := c.plan(node.Node)
	return lacks
}

// plan says what would be done for the claims on a node, or why nothing can be done and, in numbers, what lacks.
func (c *volumeCheck) plan(node *corev1.Node) (plan *volumePlan, reason string, lacks []plugin.Lack) {
	plan = &volumePlan{node: node}
	var rest []*wantedVolume
	taken := map[*corev1.PersistentVolume]bool{}
	for _, w := range c.delayed {
		if w.node != "" {
			if w.node != node.Name {
				return nil, noVolume, nil
			}
			rest = append(rest, w)
			continue
		}
		if v := w.find(node, taken); v != nil {
			taken[v] = true
			plan.bind = append(plan.bind, volumeMatch{w.Claim(), v})
		} else {
			rest = append(rest, w)
		}
	}
	for _, w := range rest {
		if !w.provisionable(node) {
			return nil, noVolume, append(lacks, plugin.Lack{What: "volumes for claim " + w.Claim().Name, Asked: 1})
		}
		p, largest := w.pool(node)
		if w.limited && p == nil {
			return nil, noSpace, append(lacks, plugin.Lack{What: "storage of class " + w.class.Name, Asked: w.Size(), Free: largest, Total: largest})
		}
		plan.provision = append(plan.provision, provision{w.Claim(), w.class.Name, p})
	}
	return plan, "", nil
}

// Reserve implements [plugin.Reserve]: the found volumes are the pod's from now on.
func (b *VolumeBinding) Reserve(_ context.Context, p plugin.Placement) plugin.Verdict {
	c, ok := p.Check.(*volumeCheck)
	if !ok || c == nil || len(c.delayed) == 0 {
		return plugin.Verdict{}
	}
	c.chosen = c.plans[p.Node]
	c.delayed, c.plans = nil, nil // they are not needed from Reserve on
	if c.chosen != nil {
		b.assumed.add(p.Pod.UID, c.chosen)
	}
	return plugin.Verdict{}
}

// Unreserve implements [plugin.Reserve].
func (b *VolumeBinding) Unreserve(_ context.Context, p plugin.Placement) { b.assumed.drop(p.Pod.UID) }

// PostBind implements [plugin.PostBind].
func (b *VolumeBinding) PostBind(_ context.Context, p plugin.Placement) {
	if b.Busy(p) {
		b.assumed.done(p.Pod.UID)
	}
}

// PreScore implements [plugin.PreScore].
func (b *VolumeBinding) PreScore(_ context.Context, pod *plugin.Pod, s *plugin.Snapshot, nodes []*plugin.Node) (plugin.Scorer, plugin.Verdict) {
	if !hasClaims(pod) {
		return nil, plugin.Skip
	}
	c, v := b.check(pod, s)
	if !v.OK() || len(c.delayed) == 0 {
		return nil, plugin.Skip
	}
	rated := false
	for _, n := range nodes {
		plan, _, _ := c.plan(n.Node)
		c.plans[n.Name] = plan
		rated = rated || plan != nil && (len(plan.bind) > 0 || slices.ContainsFunc(plan.provision, func(p provision) bool { return p.pool != nil }))
	}
	if !rated {
		return nil, plugin.Skip
	}
	shape := RatioParam{Shape: b.Shape}
	if shape.Shape == nil {
		shape.Shape = []UtilizationShapePoint{{0, maxShapeScore}, {100, 0}}
	}
	return &volumeScorer{shape, c.plans}, plugin.Verdict{}
}

// volumeScorer ranks nodes by how much of the volumes that would be bound there is asked for, or else of the space from which
// they would be made; class by class.
type volumeScorer struct {
	shape RatioParam
	plans map[string]*volumePlan
}

// Score implements [plugin.Scorer].
func (s *volumeScorer) Score(node *plugin.Node) int64 {
	plan := s.plans[node.Name]
	if plan == nil {
		return 0
	}
	byClass := map[string]usage{}
	for _, m := range plan.bind {
		u := byClass[m.volume.Spec.StorageClassName]
		u.with += m.claim.Spec.Resources.Requests.Storage().Value()
		u.has += m.volume.Spec.Capacity.Storage().Value()
		byClass[m.volume.Spec.StorageClassName] = u
	}
	if len(plan.bind) == 0 {
		for _, p := range plan.provision {
			if p.pool == nil {
				continue
			}
			u := byClass[p.class]
			u.with, u.has = u.with+p.claim.Spec.Resources.Requests.Storage().Value(), p.pool.capacity
			byClass[p.class] = u
		}
	}
	if len(byClass) == 0 {
		return 0
	}
	var sum int64
	for _, u := range byClass {
		if u.has == 0 {
			u = usage{with: 1, has: 1}
		}
		sum += s.shape.at(u)
	}
	classes := int64(len(byClass))
	return (2*sum + classes) / (2 * classes) // rounded
}

// Hints implements [plugin.Hinter].
func (*VolumeBinding) Hints() []plugin.Hint {
	return []plugin.Hint{
		ownClaims(plugin.Added | plugin.Updated),
		{Resource: client.PersistentVolumes.GroupVersionResource, Action: plugin.Added | plugin.Updated | plugin.Deleted},
		{Resource: client.StorageClasses.GroupVersionResource, Action: plugin.Added | plugin.Updated | plugin.Deleted, Helps: func(_ *plugin.Pod, c plugin.Change) bool {
			before, _ := c.OldObject.(*storagev1.StorageClass)
			after, _ := c.Object.(*storagev1.StorageClass)
			return before == nil || after == nil || !equality.Semantic.DeepEqual(before.AllowedTopologies, after.AllowedTopologies) ||
				before.Provisioner != after.Provisioner || volumefit.Delays(before) != volumefit.Delays(after) // deleted and created again while the watch was down
		}},
		{Resource: client.Nodes.GroupVersionResource, Action: plugin.Added | plugin.NodeLabels},
		{Resource: client.CSIDrivers.GroupVersionResource, Action: plugin.Updated | plugin.Deleted},
		{Resource: client.CSIStorageCapacities.GroupVersionResource, Action: plugin.Added | plugin.Updated, Helps: func(_ *plugin.Pod, c plugin.Change) bool {
			before, _ := c.OldObject.(*storagev1.CSIStorageCapacity)
			after, _ := c.Object.(*storagev1.CSIStorageCapacity)
			return before == nil || after == nil || limitOf(after) > limitOf(before) || !equality.Semantic.DeepEqual(before.NodeTopology, after.NodeTopology) ||
				before.StorageClassName != after.StorageClassName
		}},
		endOfUsers(), // their volumes are free
	}
}

// limitOf returns how large a volume can be, in bytes; 0 if that is not known.
func limitOf(c *storagev1.CSIStorageCapacity) int64 {
	if q := cmp.Or(c.MaximumVolumeSize, c.Capacity); q != nil {
		return q.Value()
	}
	return 0
}
