package volumes

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/volumefit"
)

// protector keeps claims and volumes that are in use (volumes-V5) from being deleted: each has a finalizer, which is removed
// when the object is being deleted and is not in use.
type protector struct {
	*objects                       // for claims
	volume                *objects // for volumes
	claimLoop, volumeLoop *controller.Loop
}

// guards reports whether there is something to do: a finalizer lacks, or may have to go.
func guards(obj metav1.Object, finalizer string) bool {
	return (obj.GetDeletionTimestamp() != nil) == slices.Contains(obj.GetFinalizers(), finalizer)
}

func (p *protector) subscribe() {
	p.claims.Subscribe(func(_, after *corev1.PersistentVolumeClaim) {
		if after != nil && p.due(after) {
			p.claimLoop.Add(controller.KeyOf(after))
		}
	})
	p.volumes.Subscribe(func(_, after *corev1.PersistentVolume) {
		if after != nil && guards(after, volumefit.VolumeProtection) {
			p.volumeLoop.Add(controller.KeyOf(after))
		}
	})
	p.pods.Subscribe(func(before, after *corev1.Pod) {
		for _, pod := range []*corev1.Pod{before, after} {
			if pod == nil {
				continue
			}
			for i := range pod.Spec.Volumes {
				name, _ := volumefit.Named(pod, &pod.Spec.Volumes[i])
				if c, ok := p.claims.Get(pod.Namespace, name); ok && name != "" && p.due(c) {
					p.claimLoop.Add(controller.KeyOf(c))
				}
			}
		}
	})
}

// due reports whether there may be something to do about a claim.
func (p *protector) due(c *corev1.PersistentVolumeClaim) bool {
	_, differ := planUnused(c, p.named(c), time.Time{})
	return differ || guards(c, volumefit.Protection)
}

func (p *protector) protectClaim(ctx context.Context, key controller.Key) (controller.Result, error) {
	c, ok := p.claims.Get(key.Namespace, key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	c, err := p.reportUnused(ctx, c)
	if err != nil || c == nil || !guards(c, volumefit.Protection) {
		return controller.Result{}, err
	}
	next := c.DeepCopy()
	if c.DeletionTimestamp == nil {
		next.Finalizers = append(next.Finalizers, volumefit.Protection)
	} else {
		used, err := p.used(ctx, c)
		if used || err != nil {
			return controller.Result{}, err
		}
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == volumefit.Protection })
	}
	_, err = p.updateClaim(ctx, next, "")
	return controller.Result{}, err
}

func (p *protector) protectVolume(ctx context.Context, key controller.Key) (controller.Result, error) {
	v, ok := p.volumes.Get("", key.Name)
	if !ok || !guards(v, volumefit.VolumeProtection) {
		return controller.Result{}, nil
	}
	next := v.DeepCopy()
	switch {
	case v.DeletionTimestamp == nil:
		next.Finalizers = append(next.Finalizers, volumefit.VolumeProtection)
	case v.Status.Phase == corev1.VolumeBound:
		return controller.Result{}, nil
	default:
		next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == volumefit.VolumeProtection })
	}
	_, err := p.volume.updateVolume(ctx, next, "")
	return controller.Result{}, err
}

// used reports whether a pod uses a claim. The server decides that none does, because the cache may not have it yet.
func (p *protector) used(ctx context.Context, c *corev1.PersistentVolumeClaim) (bool, error) {
	for _, pod := range p.pods.ByIndex(byClaim, c.Namespace+"/"+c.Name) {
		if uses(pod, c) {
			return true, nil
		}
	}
	pods, _, err := client.Pods.List(ctx, p.client, c.Namespace, metav1.ListOptions{})
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return uses(pod, c) }), err
}

// uses reports whether a pod has to be gone before a claim is. A pod without a node does not count: it will find no node any
// more.
func uses(pod *corev1.Pod, c *corev1.PersistentVolumeClaim) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	for i := range pod.Spec.Volumes {
		name, ephemeral := volumefit.Named(pod, &pod.Spec.Volumes[i])
		if name != c.Name {
			continue
		}
		over := pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
		if !ephemeral || !over && volumefit.Owned(pod, c) == nil {
			return true
		}
	}
	return false
}
