package volumes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/volumefit"
)

// binder brings claims and volumes together. Its keys without a namespace are volumes.
type binder struct {
	*objects
	events *client.Recorder
	loop   *controller.Loop

	mu         sync.Mutex
	lastEvents map[controller.Key]event // guarded by mu; the last one of each (volumes-V6)
}

// subscribe has the binder look at the changed object, and at others it may help.
func (b *binder) subscribe() {
	b.claims.Subscribe(func(before, after *corev1.PersistentVolumeClaim) {
		for _, c := range []*corev1.PersistentVolumeClaim{before, after} {
			if c == nil {
				continue
			}
			if c.Spec.VolumeName != "" {
				b.loop.Add(controller.Key{Name: c.Spec.VolumeName})
			}
			for _, v := range b.volumes.ByIndex(byClaim, c.Namespace+"/"+c.Name) {
				b.loop.Add(controller.KeyOf(v))
			}
			b.loop.Add(controller.KeyOf(c))
		}
	})
	b.volumes.Subscribe(func(before, after *corev1.PersistentVolume) {
		for _, v := range []*corev1.PersistentVolume{before, after} {
			if v == nil {
				continue
			}
			if ref := v.Spec.ClaimRef; ref != nil {
				b.loop.Add(controller.Key{Namespace: ref.Namespace, Name: ref.Name})
			}
			for _, c := range b.claims.ByIndex(byVolume, v.Name) {
				b.loop.Add(controller.KeyOf(c))
			}
			b.loop.Add(controller.KeyOf(v))
		}
		if after != nil && after.Spec.ClaimRef == nil && after.Status.Phase == corev1.VolumeAvailable {
			b.wake(func(*corev1.PersistentVolumeClaim) bool { return true })
		}
	})
	b.classes.Subscribe(func(_, after *storagev1.StorageClass) {
		if after != nil {
			b.wake(func(c *corev1.PersistentVolumeClaim) bool {
				return volumefit.Class(c) == "" || volumefit.Class(c) == after.Name
			})
		}
	})
	b.pods.Subscribe(func(before, after *corev1.Pod) {
		// The message of a claim names the pod that it waits for.
		if before != nil && after != nil && before.Spec.NodeName == after.Spec.NodeName && podstate.Finished(before) == podstate.Finished(after) {
			return
		}
		pod := after
		if pod == nil {
			pod = before
		}
		for _, key := range claimsOf(pod) {
			_, name, _ := strings.Cut(key, "/")
			if c, ok := b.claims.Get(pod.Namespace, name); ok && !volumefit.Bound(c) {
				b.loop.Add(controller.KeyOf(c))
			}
		}
	})
}

// wake has the binder look at claims that need a volume.
func (b *binder) wake(which func(*corev1.PersistentVolumeClaim) bool) {
	for _, c := range b.claims.ByIndex(byState, waiting) {
		if which(c) {
			b.loop.Add(controller.KeyOf(c))
		}
	}
}

func (b *binder) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	if key.Namespace == "" {
		return controller.Result{}, b.volume(ctx, key)
	}
	return controller.Result{}, b.claim(ctx, key)
}

// claim reconciles a claim.
func (b *binder) claim(ctx context.Context, key controller.Key) error {
	c, ok := b.claims.Get(key.Namespace, key.Name)
	if !ok {
		b.forget(key)
		return nil
	}
	p := planClaim(c, b.view(c))
	switch {
	case p.bind != nil:
		b.forget(key)
		return b.bind(ctx, p.bind, c)
	case p.class != "":
		next := c.DeepCopy()
		next.Spec.StorageClassName = &p.class
		_, err := b.updateClaim(ctx, next, "")
		return err
	}
	if p.provisioner != "" && (c.Annotations[volumefit.Provisioner] != p.provisioner || c.Annotations[volumefit.OldProvisioner] != p.provisioner) {
		next := c.DeepCopy()
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, volumefit.Provisioner, p.provisioner)
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, volumefit.OldProvisioner, p.provisioner)
		var err error
		if c, err = b.updateClaim(ctx, next, ""); err != nil || c == nil {
			return err
		}
	}
	if c.Status.Phase != p.phase || p.phase != corev1.ClaimBound && (c.Status.Capacity != nil || c.Status.AccessModes != nil) {
		next := c.DeepCopy()
		next.Status.Phase, next.Status.Capacity, next.Status.AccessModes, next.Status.CurrentVolumeAttributesClassName = p.phase, nil, nil, nil
		var err error
		if c, err = b.updateClaim(ctx, next, "status"); err != nil || c == nil {
			return err
		}
	}
	b.event(key, c, p.event)
	return nil
}

// view returns the state of the cluster that matters for a claim.
func (b *binder) view(c *corev1.PersistentVolumeClaim) claimView {
	v := claimView{}
	if c.Spec.VolumeName != "" {
		v.named, _ = b.volumes.Get("", c.Spec.VolumeName)
		return v
	}
	v.class, _ = b.classes.Get("", volumefit.Class(c))
	if volumefit.Delays(v.class) {
		v.volumes = b.volumes.ByIndex(byClaim, c.Namespace+"/"+c.Name) // no others count
	} else {
		v.volumes = b.volumes.List("")
	}
	for _, pod := range b.pods.ByIndex(byClaim, c.Namespace+"/"+c.Name) {
		if pod.Spec.NodeName == "" && !podstate.Finished(pod) {
			v.pods = append(v.pods, pod.Name)
		}
	}
	slices.Sort(v.pods)
	v.standard = standardClass(b.classes.List(""))
	return v
}

// volume reconciles a volume.
func (b *binder) volume(ctx context.Context, key controller.Key) error {
	v, ok := b.volumes.Get("", key.Name)
	if !ok {
		b.forget(key)
		return nil
	}
	c, err := b.claimOf(ctx, v)
	if err != nil {
		return err
	}
	p := planVolume(v, c)
	if p.unbind {
		if v, err = b.unbind(ctx, v); err != nil || v == nil {
			return err
		}
	}
	if p.phase != "" && (v.Status.Phase != p.phase || v.Status.Message != p.message) {
		if v, err = b.phase(ctx, v, p.phase, p.message); err != nil || v == nil {
			return err
		}
	}
	b.event(key, v, p.event)
	if p.claimEvent != nil {
		b.event(controller.KeyOf(c), c, p.claimEvent)
	}
	if p.claim {
		b.loop.Add(controller.KeyOf(c))
	}
	return nil
}

// claimOf returns the claim that a volume names, or nil. That there is none, or another one of its name, is asked of the
// server: who believed a cache that is behind would give the volume up (volumes-V3).
func (b *binder) claimOf(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolumeClaim, error) {
	ref := v.Spec.ClaimRef
	if ref == nil {
		return nil, nil
	}
	c, ok := b.claims.Get(ref.Namespace, ref.Name)
	if ok && (ref.UID == "" || c.UID == ref.UID) {
		return c, nil
	}
	if ref.UID == "" || v.Status.Phase == corev1.VolumeReleased || v.Status.Phase == corev1.VolumeFailed {
		return nil, nil
	}
	c, err := client.PersistentVolumeClaims.Get(ctx, b.client, ref.Namespace, ref.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return c, err
}

// bind takes the steps that lack to bind a claim to a volume (volumes-V2).
func (b *binder) bind(ctx context.Context, v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) error {
	var err error
	if next, different := volumefit.Reserve(v, c); different {
		if v, err = b.updateVolume(ctx, next, ""); err != nil || v == nil {
			return err
		}
	}
	if v.Status.Phase != corev1.VolumeBound {
		if v, err = b.phase(ctx, v, corev1.VolumeBound, ""); err != nil || v == nil {
			return err
		}
	}
	if _, complete := c.Annotations[volumefit.BindCompleted]; !complete || c.Spec.VolumeName != v.Name {
		next := c.DeepCopy()
		if next.Spec.VolumeName != v.Name {
			next.Spec.VolumeName = v.Name
			metav1.SetMetaDataAnnotation(&next.ObjectMeta, volumefit.BoundByController, "yes")
		}
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, volumefit.BindCompleted, "yes")
		if c, err = b.updateClaim(ctx, next, ""); err != nil || c == nil {
			return err
		}
	}
	next := c.DeepCopy()
	next.Status.AccessModes = v.Spec.AccessModes
	if c.Status.Phase != corev1.ClaimBound {
		next.Status.Phase, next.Status.Capacity = corev1.ClaimBound, capacityOf(v)
		next.Status.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
	}
	if !equality.Semantic.DeepEqual(next.Status, c.Status) {
		_, err = b.updateClaim(ctx, next, "status")
	}
	return err
}

// capacityOf returns the size that a claim has when it is bound to a volume: that of the file system, if a node has yet to expand
// it. The claim for which the volume was made larger may be gone.
func capacityOf(v *corev1.PersistentVolume) corev1.ResourceList {
	size, err := resource.ParseQuantity(v.Annotations[volumefit.PreResizeCapacity])
	if err != nil {
		return v.Spec.Capacity
	}
	all := v.Spec.Capacity.DeepCopy()
	all[corev1.ResourceStorage] = size
	return all
}

// unbind releases a volume that was reserved for a claim that has another one. A reservation by a user stays, for the next
// claim of that name.
func (b *binder) unbind(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	next := v.DeepCopy()
	if _, ours := next.Annotations[volumefit.BoundByController]; ours {
		next.Spec.ClaimRef = nil
		delete(next.Annotations, volumefit.BoundByController)
	} else {
		next.Spec.ClaimRef.UID = ""
	}
	return b.updateVolume(ctx, next, "")
}

func (b *binder) phase(ctx context.Context, v *corev1.PersistentVolume, phase corev1.PersistentVolumePhase, message string) (*corev1.PersistentVolume, error) {
	next := v.DeepCopy()
	next.Status.Phase, next.Status.Message, next.Status.Reason = phase, message, ""
	return b.updateVolume(ctx, next, "status")
}

// updateClaim writes a claim and waits until the cache has it; nil if it is gone.
func (o *objects) updateClaim(ctx context.Context, c *corev1.PersistentVolumeClaim, subresource string) (*corev1.PersistentVolumeClaim, error) {
	now, err := client.PersistentVolumeClaims.Update(ctx, o.client, c, subresource)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("write persistentvolumeclaim %s/%s: %w", c.Namespace, c.Name, err)
	case now.DeletionTimestamp != nil && len(now.Finalizers) == 0:
		return now, o.claims.AwaitDeletion(ctx, now)
	}
	return now, o.claims.Await(ctx, now.ResourceVersion)
}

// updateVolume writes a volume and waits until the cache has it; nil if it is gone.
func (o *objects) updateVolume(ctx context.Context, v *corev1.PersistentVolume, subresource string) (*corev1.PersistentVolume, error) {
	now, err := client.PersistentVolumes.Update(ctx, o.client, v, subresource)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("write persistentvolume %s: %w", v.Name, err)
	case now.DeletionTimestamp != nil && len(now.Finalizers) == 0:
		return now, o.volumes.AwaitDeletion(ctx, now)
	}
	return now, o.volumes.Await(ctx, now.ResourceVersion)
}

// event writes an event about an object unless it is equal to the last one (volumes-V6). If e is nil it does nothing.
func (b *binder) event(key controller.Key, about client.Object, e *event) {
	if e == nil {
		b.forget(key)
		return
	}
	b.mu.Lock()
	known := b.lastEvents[key] == *e
	b.lastEvents[key] = *e
	b.mu.Unlock()
	if !known {
		b.events.Event(about, e.kind, e.reason, "%s", e.message)
	}
}

func (b *binder) forget(key controller.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.lastEvents, key)
}
