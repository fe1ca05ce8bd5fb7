package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/mounts"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/node/csi"
	"github.com/sampan-io/sampan/node/metrics"
	"github.com/sampan-io/sampan/node/pluginregistry"
)

// nodeIDs is the annotation of a node with the names that drivers have for it, as a map in JSON.
const nodeIDs = "csi.volume.kubernetes.io/nodeid"

// conflicts is how often a write is tried that others may have made impossible. A registration that failed is tried again
// later as a whole.
const conflicts = 10

// MakeDrivers prepares for drivers of volumes (CSI), and reports whether the node has them.
func (f *Files) MakeDrivers() bool {
	if !f.node.Drivers || f.root == "" {
		return false
	}
	f.csi = csi.New(csi.Options{
		Root: f.root, Node: f.node.Name, Install: f.installDriver, Uninstall: f.uninstallDriver,
		Changed: f.node.Changed, Registered: f.driverRegistered, Log: f.node.Log,
		Done: func(driver, operation string, began time.Time, err error) {
			f.node.Metrics.Operation(metrics.CSIPlugin(driver), operation, began, err)
		},
	})
	f.node.Metrics.Registered = f.csi.IsRegistered
	return true
}

// OpenDrivers reads which volumes drivers have mounted for an earlier agent.
func (f *Files) OpenDrivers() error { return f.csi.Open() }

// DriverMetrics returns the metrics of CSI drivers; nil if the node has none.
func (f *Files) DriverMetrics() prometheus.Collector { return f.csi.Metrics() }

// HasDrivers reports whether CSI drivers can register at the node.
func (f *Files) HasDrivers() bool { return f.csi != nil }

// InUse returns the unique names of the volumes that drivers have mounted or are about to.
func (f *Files) InUse() []corev1.UniqueVolumeName { return f.csi.InUse() }

// Plugins handles the registrations of CSI drivers.
func (f *Files) Plugins() pluginregistry.Handler { return f.csi }

// Tasks returns the work for CSI drivers; none if the node has none.
func (f *Files) Tasks() []run.Task {
	if f.csi == nil {
		return nil
	}
	return []run.Task{{Name: "CSI drivers", Run: f.csi.Run}, {Name: "CSINode", Run: f.registerCSINode}, {Name: "CSI limits", Run: f.keepLimits}}
}

// driverRegistered has pods try again that may wait for a driver.
func (f *Files) driverRegistered() {
	f.driverChanges.send()
	f.node.DriverRegistered()
}

// shareMounts makes a directory a shared mount, unless it is on one, so that mounts that containers make in it appear on the
// node (mountPropagation: Bidirectional). A directory that something is mounted in is left as it is.
func shareMounts(dir string) error {
	over := &mountinfo.Info{}
	below := false
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		return err
	}
	for _, m := range all {
		switch {
		case m.Mountpoint == "/" || m.Mountpoint == dir || strings.HasPrefix(dir, m.Mountpoint+"/"):
			if len(m.Mountpoint) >= len(over.Mountpoint) {
				over = m
			}
		case strings.HasPrefix(m.Mountpoint, dir+"/"):
			below = true
		}
	}
	switch {
	case strings.Contains(" "+over.Optional, " shared:"):
		return nil
	case over.Mountpoint == dir:
	case below:
		return errors.New("it is not a shared mount, and has mounts in it: stop all pods and start the node again")
	default:
		if err := mounts.Bind(dir, dir); err != nil {
			return fmt.Errorf("bind mount: %w", err)
		}
	}
	return mounts.Share(dir)
}

// installDriver writes what a driver says into the Node and the CSINode object.
func (f *Files) installDriver(ctx context.Context, info csi.Info) error {
	select {
	case <-f.node.Registered: // the Node object exists
	case <-ctx.Done():
		return ctx.Err()
	}
	err := f.editNode(ctx, func(node *corev1.Node, ids map[string]string) (map[string]string, error) {
		for k, v := range info.Topology {
			if now, there := node.Labels[k]; there && now != v {
				return nil, fmt.Errorf("detected topology value collision: driver reported %q:%q but existing label is %q:%q", k, v, k, now)
			}
		}
		ids[info.Driver] = info.NodeID
		return info.Topology, nil
	})
	if err != nil {
		return fmt.Errorf("error updating Node object with CSI driver node info: %w", err)
	}
	entry := storagev1.CSINodeDriver{Name: info.Driver, NodeID: info.NodeID, TopologyKeys: slices.Sorted(maps.Keys(info.Topology))}
	if info.MaxVolumes > 0 {
		entry.Allocatable = &storagev1.VolumeNodeResources{Count: new(int32(min(info.MaxVolumes, math.MaxInt32)))}
	}
	if err := f.editCSINode(ctx, info.Driver, &entry); err != nil {
		return fmt.Errorf("error updating CSINode object with CSI driver node info: %w", err)
	}
	return nil
}

// uninstallDriver removes a driver from these objects. Labels stay, as in kubelet: other drivers may have them.
func (f *Files) uninstallDriver(ctx context.Context, name string) error {
	f.driverChanges.send()
	if err := f.editCSINode(ctx, name, nil); err != nil {
		return fmt.Errorf("error uninstalling CSI driver from CSINode object %w", err)
	}
	return f.editNode(ctx, func(_ *corev1.Node, ids map[string]string) (map[string]string, error) {
		delete(ids, name)
		return nil, nil
	})
}

// A CSINode object that could not be made is tried again after pauses between these.
const firstRetryPause, lastRetryPause = 200 * time.Millisecond, 15 * time.Second

// registerCSINode makes the CSINode object of the node, which every node has, also without drivers.
func (f *Files) registerCSINode(ctx context.Context) error {
	select {
	case <-f.node.Registered: // the Node object exists, which owns it
	case <-ctx.Done():
		return nil
	}
	for failures := 1; ctx.Err() == nil; failures++ {
		err := f.editCSINode(ctx, "", nil)
		if err == nil {
			<-ctx.Done()
			return nil
		}
		if failures == 1 && ctx.Err() == nil {
			f.node.Log.Warn("CSINode object not made, will try again", "err", err)
		}
		run.Pause(ctx, run.Backoff{First: firstRetryPause, Max: lastRetryPause}.Pause(failures))
	}
	return nil
}

// editNode changes the names that drivers have for the node, and adds labels.
func (f *Files) editNode(ctx context.Context, edit func(node *corev1.Node, ids map[string]string) (map[string]string, error)) error {
	var conflict error
	for range conflicts {
		node, err := client.Nodes.Get(ctx, f.node.Client, "", f.node.Name)
		if err != nil {
			return err
		}
		ids := map[string]string{}
		if text := node.Annotations[nodeIDs]; text != "" && json.Unmarshal([]byte(text), &ids) != nil {
			ids = map[string]string{} // another client has spoilt it
		}
		before := maps.Clone(ids)
		labels, err := edit(node, ids)
		if err != nil {
			return err
		}
		same := maps.Equal(before, ids)
		for k, v := range labels {
			same = same && node.Labels[k] == v
		}
		if same {
			return nil
		}
		patch, err := driverPatch(node, labels, ids)
		if err != nil {
			return err
		}
		_, conflict = client.Nodes.Patch(ctx, f.node.Client, "", f.node.Name, types.MergePatchType, patch, "")
		if !apierrors.IsConflict(conflict) {
			return conflict
		}
	}
	return fmt.Errorf("node %s: still in conflict after %d tries: %w", f.node.Name, conflicts, conflict)
}

// driverPatch returns the merge patch that adds labels to a node, and sets the names that drivers have for it. Labels that are not
// named stay.
func driverPatch(node *corev1.Node, labels, ids map[string]string) ([]byte, error) {
	var annotation any // null: it is removed
	if len(ids) > 0 {
		b, err := json.Marshal(ids)
		if err != nil {
			return nil, err
		}
		annotation = string(b)
	}
	metadata := map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion, "annotations": map[string]any{nodeIDs: annotation}}
	if len(labels) > 0 { // null would remove all
		metadata["labels"] = labels
	}
	return json.Marshal(map[string]any{"metadata": metadata})
}

// editCSINode makes the entry of a driver what it should be; nil means that there should be none. The object is made if
// necessary, and replaced if it belonged to a node of the same name that was deleted.
func (f *Files) editCSINode(ctx context.Context, driver string, want *storagev1.CSINodeDriver) error {
	var last error
	for range conflicts {
		again, err := f.tryCSINode(ctx, driver, want)
		switch {
		case err == nil && !again:
			return nil
		case err == nil:
			last = errCSINodeReplaced
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
			last = err
		default:
			return err
		}
	}
	return fmt.Errorf("CSINode %s: still in conflict after %d tries: %w", f.node.Name, conflicts, last)
}

// errCSINodeReplaced means that another client makes an entry or an object again that was removed here.
var errCSINodeReplaced = errors.New("another client makes again what was removed")

func (f *Files) tryCSINode(ctx context.Context, driver string, want *storagev1.CSINodeDriver) (again bool, err error) {
	self, err := client.Nodes.Get(ctx, f.node.Client, "", f.node.Name)
	if err != nil {
		return false, err
	}
	object, err := client.CSINodes.Get(ctx, f.node.Client, "", f.node.Name)
	if apierrors.IsNotFound(err) {
		object = &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: f.node.Name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: f.node.Name, UID: self.UID},
		}}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}}}
		if want != nil {
			object.Spec.Drivers = append(object.Spec.Drivers, *want)
		}
		_, err = client.CSINodes.Create(ctx, f.node.Client, object)
		return false, err
	}
	if err != nil {
		return false, err
	}
	if !slices.ContainsFunc(object.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "Node" && r.UID == self.UID }) {
		return true, client.CSINodes.Delete(ctx, f.node.Client, "", f.node.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &object.UID}})
	}
	next := object.DeepCopy()
	i := slices.IndexFunc(next.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
	switch {
	case i < 0 && want == nil:
		return false, nil
	case i < 0:
		next.Spec.Drivers = append(next.Spec.Drivers, *want)
	case want != nil && next.Spec.Drivers[i].NodeID == want.NodeID && slices.Equal(next.Spec.Drivers[i].TopologyKeys, want.TopologyKeys):
		if sameCount(next.Spec.Drivers[i].Allocatable, want.Allocatable) {
			return false, nil
		}
		next.Spec.Drivers[i] = *want // only the number of volumes may change
	default:
		next.Spec.Drivers = slices.Delete(next.Spec.Drivers, i, i+1)
		again = want != nil
	}
	_, err = client.CSINodes.Update(ctx, f.node.Client, next, "")
	return again, err
}

func sameCount(a, b *storagev1.VolumeNodeResources) bool {
	count := func(r *storagev1.VolumeNodeResources) int32 {
		if r == nil || r.Count == nil {
			return -1
		}
		return *r.Count
	}
	return count(a) == count(b)
}
