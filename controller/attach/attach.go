package attach

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/volumefit"
)

// The names of the loops, which are upstream's.
const (
	attachName = "persistentvolume-attach-detach-controller"
	expandName = "persistentvolume-expander-controller"
)

// The indexes.
const (
	byClaim  = "claim"  // of pods: "namespace/name" of claims that they use
	byNode   = "node"   // of attachments, and of pods that use claims
	byVolume = "volume" // of attachments and claims: the name of the volume
)

// attacher attaches and detaches volumes. Its keys have the name of the node in place of a namespace, and that of the volume.
type attacher struct {
	client      client.Interface
	events      *client.Recorder
	loop        *controller.Loop
	pods        *cache.Cache[*corev1.Pod]
	nodes       *cache.Cache[*corev1.Node]
	claims      *cache.Cache[*corev1.PersistentVolumeClaim]
	volumes     *cache.Cache[*corev1.PersistentVolume]
	drivers     *cache.Cache[*storagev1.CSIDriver]
	attachments *cache.Cache[*storagev1.VolumeAttachment]

	mu    sync.Mutex
	since map[controller.Key]time.Time // guarded by mu; when a detachment began to wait
	told  map[controller.Key]string    // guarded by mu; the last event about a volume
}

// Tasks returns the controllers, to be run together as one stage.
func Tasks(config controller.Config) []run.Task {
	config, caches := config.WithDefaults()
	a := &attacher{
		client: config.For("attachdetach-controller").Client, since: map[controller.Key]time.Time{}, told: map[controller.Key]string{},
		pods: cache.Of(config.Caches, client.Pods, cache.Indexes[*corev1.Pod]{byClaim: claimsOf, byNode: func(p *corev1.Pod) []string {
			if p.Spec.NodeName == "" || len(claimsOf(p)) == 0 {
				return nil
			}
			return []string{p.Spec.NodeName}
		}}),
		nodes:   cache.Of(config.Caches, client.Nodes, nil),
		claims:  cache.Of(config.Caches, client.PersistentVolumeClaims, nil),
		volumes: cache.Of(config.Caches, client.PersistentVolumes, nil),
		drivers: cache.Of(config.Caches, client.CSIDrivers, nil),
		attachments: cache.Of(config.Caches, client.VolumeAttachments, cache.Indexes[*storagev1.VolumeAttachment]{
			byNode:   func(v *storagev1.VolumeAttachment) []string { return []string{v.Spec.NodeName} },
			byVolume: func(v *storagev1.VolumeAttachment) []string { return []string{volumeOf(v)} },
		}),
	}
	a.events = client.NewRecorder(a.client, "attachdetach-controller", "", config.Log)
	needs := []<-chan struct{}{a.pods.Ready(), a.nodes.Ready(), a.claims.Ready(), a.volumes.Ready(), a.drivers.Ready(), a.attachments.Ready()}
	a.loop = controller.New(controller.Options{Name: attachName, Reconcile: a.reconcile, Workers: config.Workers, Log: config.Log, Needs: needs})
	a.subscribe()
	e := newExpander(config, a)
	return []run.Task{
		caches,
		{Name: attachName + "-events", Run: a.events.Run},
		{Name: expandName + "-events", Run: e.events.Run},
		a.loop.Task(), e.loop.Task(),
	}
}

func claimsOf(pod *corev1.Pod) []string {
	var all []string
	for i := range pod.Spec.Volumes {
		if name, _ := volumefit.Named(pod, &pod.Spec.Volumes[i]); name != "" {
			all = append(all, pod.Namespace+"/"+name)
		}
	}
	return all
}

func volumeOf(v *storagev1.VolumeAttachment) string {
	if v.Spec.Source.PersistentVolumeName == nil {
		return ""
	}
	return *v.Spec.Source.PersistentVolumeName
}

// subscribe has the attacher look at the volumes that a change is about.
func (a *attacher) subscribe() {
	a.pods.Subscribe(func(before, after *corev1.Pod) {
		if before != nil && after != nil && before.Spec.NodeName == after.Spec.NodeName && podstate.Finished(before) == podstate.Finished(after) {
			return
		}
		for _, p := range []*corev1.Pod{before, after} {
			if p != nil {
				a.addPod(p)
			}
		}
	})
	a.claims.Subscribe(func(before, after *corev1.PersistentVolumeClaim) {
		if before != nil && after != nil && volumefit.Bound(before) == volumefit.Bound(after) {
			return
		}
		c := after
		if c == nil {
			c = before
		}
		for _, p := range a.pods.ByIndex(byClaim, c.Namespace+"/"+c.Name) {
			a.addPod(p)
		}
	})
	a.volumes.Subscribe(func(before, after *corev1.PersistentVolume) {
		v := after
		if v == nil {
			v = before
		}
		if v.Spec.CSI == nil || before != nil && after != nil && equality.Semantic.DeepEqual(before.Spec, after.Spec) {
			return
		}
		a.addVolume(v)
	})
	a.attachments.Subscribe(func(before, after *storagev1.VolumeAttachment) {
		v := after
		if v == nil {
			v = before
			// Another node may wait for it.
			if pv, ok := a.volumes.Get("", volumeOf(v)); ok {
				a.addVolume(pv)
			}
		}
		a.loop.Add(controller.Key{Namespace: v.Spec.NodeName, Name: volumeOf(v)})
	})
	a.drivers.Subscribe(func(_, _ *storagev1.CSIDriver) {
		for _, v := range a.volumes.List("") {
			if v.Spec.CSI != nil {
				a.addVolume(v)
			}
		}
	})
	a.nodes.Subscribe(func(before, after *corev1.Node) {
		n := after
		if n == nil {
			n = before
		}
		if before != nil && after != nil && slices.Equal(before.Status.VolumesInUse, after.Status.VolumesInUse) &&
			slices.Equal(before.Status.VolumesAttached, after.Status.VolumesAttached) && ready(before) == ready(after) &&
			outOfService(before) == outOfService(after) && before.Annotations[volumefit.ManagedAttach] == after.Annotations[volumefit.ManagedAttach] {
			return
		}
		for _, v := range a.attachments.ByIndex(byNode, n.Name) {
			a.loop.Add(controller.Key{Namespace: n.Name, Name: volumeOf(v)})
		}
		for _, p := range a.pods.ByIndex(byNode, n.Name) {
			a.addPod(p)
		}
	})
}

// addPod adds the volumes of a pod that has a node.
func (a *attacher) addPod(p *corev1.Pod) {
	if p.Spec.NodeName == "" {
		return
	}
	for _, key := range claimsOf(p) {
		_, name, _ := strings.Cut(key, "/")
		if c, ok := a.claims.Get(p.Namespace, name); ok && c.Spec.VolumeName != "" {
			a.loop.Add(controller.Key{Namespace: p.Spec.NodeName, Name: c.Spec.VolumeName})
		}
	}
}

// addVolume adds a volume on all nodes that have it or need it.
func (a *attacher) addVolume(v *corev1.PersistentVolume) {
	for _, own := range a.attachments.ByIndex(byVolume, v.Name) {
		a.loop.Add(controller.Key{Namespace: own.Spec.NodeName, Name: v.Name})
	}
	if ref := v.Spec.ClaimRef; ref != nil {
		for _, p := range a.pods.ByIndex(byClaim, ref.Namespace+"/"+ref.Name) {
			if p.Spec.NodeName != "" {
				a.loop.Add(controller.Key{Namespace: p.Spec.NodeName, Name: v.Name})
			}
		}
	}
}

// look returns the situation of a volume on a node. The node is read from the server: a cache that is behind would not show
// that it has begun to use the volume (attach-A3).
func (a *attacher) look(ctx context.Context, key controller.Key, volume *corev1.PersistentVolume) (view, error) {
	v := view{name: key.Namespace, volume: volume, needed: true}
	if d, ok := a.drivers.Get("", volume.Spec.CSI.Driver); ok && d.Spec.AttachRequired != nil {
		v.needed = *d.Spec.AttachRequired
	}
	node, err := client.Nodes.Get(ctx, a.client, "", key.Namespace)
	if err != nil && !apierrors.IsNotFound(err) {
		return v, fmt.Errorf("read node %s: %w", key.Namespace, err)
	} else if err == nil {
		v.node = node
	}
	name := volumefit.AttachmentName(volume.Spec.CSI.VolumeHandle, volume.Spec.CSI.Driver, key.Namespace)
	for _, own := range a.attachments.ByIndex(byVolume, volume.Name) {
		switch {
		case own.Name == name: // attach-A5
			v.own = own
		case own.Spec.NodeName != key.Namespace:
			v.others = append(v.others, own)
		}
	}
	ref := volume.Spec.ClaimRef
	if ref == nil {
		return v, nil
	}
	c, ok := a.claims.Get(ref.Namespace, ref.Name)
	if !ok || c.UID != ref.UID || !volumefit.Bound(c) || c.Spec.VolumeName != volume.Name {
		return v, nil
	}
	for _, p := range a.pods.ByIndex(byClaim, ref.Namespace+"/"+ref.Name) {
		switch {
		case podstate.Finished(p) || p.Spec.NodeName == "":
		case p.Spec.NodeName == key.Namespace:
			v.pods = append(v.pods, p)
		default:
			v.rivals = append(v.rivals, p)
		}
	}
	return v, nil
}

func (a *attacher) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	volume, ok := a.volumes.Get("", key.Name)
	if !ok || volume.Spec.CSI == nil {
		a.forget(key)
		return controller.Result{}, nil
	}
	v, err := a.look(ctx, key, volume)
	if err != nil {
		return controller.Result{}, err
	}
	v.waiting = a.waited(key, time.Now())
	p := plan(v)
	if !p.unwanted {
		a.forgetWaiting(key)
	}
	switch {
	case p.attach:
		err = a.attach(ctx, v)
	case p.report, p.unreport:
		err = a.report(ctx, v, p.report)
	case p.detach:
		err = a.detach(ctx, v.own)
	}
	if err != nil {
		return controller.Result{}, err
	}
	if p.event != "" {
		a.notify(key, v, p.event, corev1.EventTypeWarning, "FailedAttachVolume")
	}
	if p.report {
		a.notify(key, v, fmt.Sprintf("AttachVolume.Attach succeeded for volume %q ", volume.Name), corev1.EventTypeNormal, "SuccessfulAttachVolume")
	}
	if v.own == nil && len(v.pods) == 0 {
		a.forget(key)
	}
	if p.report || p.unreport {
		a.loop.Add(key) // there may be a next step
	}
	return controller.Result{After: p.after}, nil
}

// waited returns for how long a detachment has waited; it begins to wait now if it did not before.
func (a *attacher) waited(key controller.Key, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.since[key].IsZero() {
		a.since[key] = now
	}
	return now.Sub(a.since[key])
}

func (a *attacher) forgetWaiting(key controller.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, key)
}

func (a *attacher) forget(key controller.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, key)
	delete(a.told, key)
}

// notify writes an event about the pods that need the volume, unless it is the same as the last one.
func (a *attacher) notify(key controller.Key, v view, text, kind, reason string) {
	a.mu.Lock()
	same := a.told[key] == text
	a.told[key] = text
	a.mu.Unlock()
	if same {
		return
	}
	for _, p := range v.pods {
		a.events.Event(p, kind, reason, "%s", text)
	}
}

// attach creates the VolumeAttachment.
func (a *attacher) attach(ctx context.Context, v view) error {
	s := v.volume.Spec.CSI
	made, err := client.VolumeAttachments.Create(ctx, a.client, &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: volumefit.AttachmentName(s.VolumeHandle, s.Driver, v.name)},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: s.Driver, NodeName: v.name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &v.volume.Name},
		},
	})
	if apierrors.IsAlreadyExists(err) {
		return controller.Again("the VolumeAttachment exists already")
	} else if err != nil {
		return fmt.Errorf("create volumeattachment for volume %s on node %s: %w", v.volume.Name, v.name, err)
	}
	return a.attachments.Await(ctx, made.ResourceVersion)
}

// detach deletes a VolumeAttachment. It is gone when the driver's attacher has detached the volume.
func (a *attacher) detach(ctx context.Context, own *storagev1.VolumeAttachment) error {
	err := client.VolumeAttachments.Delete(ctx, a.client, "", own.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &own.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete volumeattachment %s: %w", own.Name, err)
	}
	return nil
}

// report adds a volume to the status of the node, or removes it from there (attach-A3).
func (a *attacher) report(ctx context.Context, v view, attached bool) error {
	name := volumefit.UniqueName(v.volume.Spec.CSI.Driver, v.volume.Spec.CSI.VolumeHandle)
	list := slices.DeleteFunc(slices.Clone(v.node.Status.VolumesAttached), func(o corev1.AttachedVolume) bool { return o.Name == name })
	if attached {
		list = append(list, corev1.AttachedVolume{Name: name})
	}
	var value any // null removes the field
	if len(list) > 0 {
		value = list
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": v.node.UID, "resourceVersion": v.node.ResourceVersion}, "status": map[string]any{"volumesAttached": value},
	})
	if err != nil {
		return err
	}
	now, err := client.Nodes.Patch(ctx, a.client, "", v.name, types.MergePatchType, patch, "status")
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("write volumesAttached of node %s: %w", v.name, err)
	}
	return a.nodes.Await(ctx, now.ResourceVersion)
}
