package volumes

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
)

const (
	attributesName = "volumeattributesclass-protection-controller"

	// attributesProtection is the finalizer of VolumeAttributesClasses.
	attributesProtection = "kubernetes.io/vac-protection"
)

// attributes keeps VolumeAttributesClasses that claims or volumes name from being deleted.
type attributes struct {
	*objects
	attributeClasses *cache.Cache[*storagev1.VolumeAttributesClass]
	loop             *controller.Loop
}

// claimClasses returns the VolumeAttributesClasses that a claim wants, has or is about to get.
func claimClasses(c *corev1.PersistentVolumeClaim) (names []string) {
	if c == nil {
		return nil
	}
	for _, name := range []*string{c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName} {
		if name != nil && *name != "" {
			names = append(names, *name)
		}
	}
	if m := c.Status.ModifyVolumeStatus; m != nil && m.TargetVolumeAttributesClassName != "" {
		names = append(names, m.TargetVolumeAttributesClassName)
	}
	return names
}

func volumeClasses(v *corev1.PersistentVolume) []string {
	if v == nil || v.Spec.VolumeAttributesClassName == nil || *v.Spec.VolumeAttributesClassName == "" {
		return nil
	}
	return []string{*v.Spec.VolumeAttributesClassName}
}

func (a *attributes) subscribe() {
	a.attributeClasses.Subscribe(func(_, after *storagev1.VolumeAttributesClass) {
		if after != nil && guards(after, attributesProtection) {
			a.loop.Add(controller.KeyOf(after))
		}
	})
	// A class that is named no more may have to go.
	dropped := func(before, after []string) {
		for _, name := range before {
			if c, ok := a.attributeClasses.Get("", name); ok && c.DeletionTimestamp != nil && !slices.Contains(after, name) {
				a.loop.Add(controller.Key{Name: name})
			}
		}
	}
	a.claims.Subscribe(func(before, after *corev1.PersistentVolumeClaim) { dropped(claimClasses(before), claimClasses(after)) })
	a.volumes.Subscribe(func(before, after *corev1.PersistentVolume) { dropped(volumeClasses(before), volumeClasses(after)) })
}

func (a *attributes) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	c, ok := a.attributeClasses.Get("", key.Name)
	if !ok || !guards(c, attributesProtection) {
		return controller.Result{}, nil
	}
	next := c.DeepCopy()
	if c.DeletionTimestamp == nil {
		next.Finalizers = append(next.Finalizers, attributesProtection)
	} else {
		if used, err := a.used(ctx, c.Name); used || err != nil {
			return controller.Result{}, err
		}
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == attributesProtection })
	}
	now, err := client.VolumeAttributesClasses.Update(ctx, a.client, next, "")
	switch {
	case apierrors.IsNotFound(err):
		return controller.Result{}, nil
	case err != nil:
		return controller.Result{}, fmt.Errorf("write volumeattributesclass %s: %w", c.Name, err)
	case now.DeletionTimestamp != nil && len(now.Finalizers) == 0:
		return controller.Result{}, a.attributeClasses.AwaitDeletion(ctx, now)
	}
	return controller.Result{}, a.attributeClasses.Await(ctx, now.ResourceVersion)
}

// used reports whether a claim or volume names a class. The server decides that none does, because the caches may be behind.
func (a *attributes) used(ctx context.Context, name string) (bool, error) {
	claims, _, err := client.PersistentVolumeClaims.List(ctx, a.client, "", metav1.ListOptions{})
	if err != nil || slices.ContainsFunc(claims, func(c *corev1.PersistentVolumeClaim) bool { return slices.Contains(claimClasses(c), name) }) {
		return true, err
	}
	volumes, _, err := client.PersistentVolumes.List(ctx, a.client, "", metav1.ListOptions{})
	return slices.ContainsFunc(volumes, func(v *corev1.PersistentVolume) bool { return slices.Contains(volumeClasses(v), name) }), err
}
