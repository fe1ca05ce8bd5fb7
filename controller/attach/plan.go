package attach

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/sampan-io/sampan/internal/volumefit"
)

// unmountLimit is how long a detachment waits for a node that is not Ready to unmount the volume, as in upstream.
const unmountLimit = 6 * time.Minute

// A view is the state of the cluster that matters for a volume on a node.
type view struct {
	name    string       // of the node
	node    *corev1.Node // nil: it does not exist
	volume  *corev1.PersistentVolume
	needed  bool                          // the driver needs volumes to be attached
	pods    []*corev1.Pod                 // on the node, that need the volume
	own     *storagev1.VolumeAttachment   // of the volume to the node; nil if there is none
	others  []*storagev1.VolumeAttachment // of the volume to other nodes
	rivals  []*corev1.Pod                 // on other nodes, that need the volume
	waiting time.Duration                 // since when the detachment waits
}

// A verdict is the decision about a volume on a node. At most one of attach, report, unreport and detach is true.
type verdict struct {
	attach   bool // create the VolumeAttachment
	report   bool // list it in the status of the node
	unreport bool // remove it from there
	detach   bool // delete the VolumeAttachment
	unwanted bool // it is to be detached, at once or later
	after    time.Duration
	event    string // why it can't be attached, for the pods
	other    bool   // the event is that another node has the volume: it is written once
}

// plan returns the decision (attach-A1 to attach-A4).
func plan(v view) verdict {
	name := volumefit.UniqueName(v.volume.Spec.CSI.Driver, v.volume.Spec.CSI.VolumeHandle)
	reported := v.node != nil && slices.ContainsFunc(v.node.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == name })
	managed := v.node != nil && v.node.Annotations[volumefit.ManagedAttach] != ""
	if v.needed && managed && len(v.pods) > 0 {
		return v.wanted(reported)
	}
	if v.own == nil || v.own.DeletionTimestamp != nil {
		return verdict{unreport: reported}
	}
	used := v.node != nil && slices.Contains(v.node.Status.VolumesInUse, name)
	if used && !outOfService(v.node) {
		left := unmountLimit - v.waiting
		if ready(v.node) || left > 0 {
			return verdict{unwanted: true, after: max(left, 0)}
		}
	}
	return verdict{unwanted: true, unreport: reported, detach: !reported}
}

// wanted is plan for a volume that pods on the node need.
func (v view) wanted(reported bool) verdict {
	switch {
	case v.own == nil && len(v.others) > 0 && !volumefit.Shareable(v.volume):
		return verdict{event: v.occupied(), other: true}
	case v.own == nil && reported:
		return verdict{unreport: true}
	case v.own == nil:
		return verdict{attach: true}
	case v.own.DeletionTimestamp != nil:
		return verdict{unreport: reported} // its deletion comes first
	case v.own.Status.Attached:
		return verdict{report: !reported}
	case v.own.Status.AttachError != nil:
		return verdict{event: fmt.Sprintf("AttachVolume.Attach failed for volume %q : %s", v.volume.Name, v.own.Status.AttachError.Message)}
	}
	return verdict{}
}

// occupied says why another node keeps the volume from being attached. Names of pods in other namespaces are not shown.
func (v view) occupied() string {
	if len(v.rivals) == 0 {
		return fmt.Sprintf("Waiting for detach for volume %q Volume is already exclusively attached to one node, "+
			"waiting on detach before it can be attached to another node", v.volume.Name)
	}
	var names []string
	foreign := 0
	for _, p := range v.rivals {
		if p.Namespace == v.pods[0].Namespace {
			names = append(names, p.Name)
		} else {
			foreign++
		}
	}
	text := fmt.Sprintf("Volume is already used by %d pod(s) in different namespaces", foreign)
	if len(names) > 0 {
		slices.Sort(names)
		text = "Volume is already used by pod(s) " + strings.Join(names, ", ")
		if foreign > 0 {
			text += fmt.Sprintf(" and %d pod(s) in different namespaces", foreign)
		}
	}
	return fmt.Sprintf("Waiting for detach for volume %q %s", v.volume.Name, text)
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func outOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}
