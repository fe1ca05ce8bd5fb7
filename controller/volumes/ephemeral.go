package volumes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/volumefit"
)

// maker makes the claims of generic ephemeral volumes (KEP-1698). They go with their pod, whose they are.
type maker struct {
	*objects
	events *client.Recorder
	loop   *controller.Loop
}

func (m *maker) subscribe() {
	m.pods.Subscribe(func(_, after *corev1.Pod) {
		if after != nil {
			m.look(after)
		}
	})
	m.claims.Subscribe(func(before, after *corev1.PersistentVolumeClaim) {
		if after != nil {
			return
		}
		for _, pod := range m.pods.ByIndex(byClaim, before.Namespace+"/"+before.Name) {
			m.look(pod)
		}
	})
}

// look has the maker see to a pod if one of its claims is not there.
func (m *maker) look(pod *corev1.Pod) {
	for i := range pod.Spec.Volumes {
		if name, ephemeral := volumefit.Named(pod, &pod.Spec.Volumes[i]); ephemeral && pod.DeletionTimestamp == nil {
			if _, there := m.claims.Get(pod.Namespace, name); !there {
				m.loop.Add(controller.KeyOf(pod))
			}
		}
	}
}

func (m *maker) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	pod, ok := m.pods.Get(key.Namespace, key.Name)
	if !ok || pod.DeletionTimestamp != nil {
		return controller.Result{}, nil
	}
	for i := range pod.Spec.Volumes {
		if err := m.volume(ctx, pod, &pod.Spec.Volumes[i]); err != nil {
			m.events.Event(pod, corev1.EventTypeWarning, "FailedBinding", "ephemeral volume %s: %v", pod.Spec.Volumes[i].Name, err)
			return controller.Result{}, fmt.Errorf("pod %s, ephemeral volume %s: %w", key, pod.Spec.Volumes[i].Name, err)
		}
	}
	return controller.Result{}, nil
}

func (m *maker) volume(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) error {
	name, ephemeral := volumefit.Named(pod, v)
	if !ephemeral || v.Ephemeral.VolumeClaimTemplate == nil {
		return nil
	}
	if c, there := m.claims.Get(pod.Namespace, name); there {
		return volumefit.Owned(pod, c)
	}
	template := v.Ephemeral.VolumeClaimTemplate.DeepCopy()
	made, err := client.PersistentVolumeClaims.Create(ctx, m.client, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: name, Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, client.Pods.GVK())},
		},
		Spec: template.Spec,
	})
	if err != nil {
		return fmt.Errorf("create PVC %s: %w", name, err)
	}
	return m.claims.Await(ctx, made.ResourceVersion)
}
