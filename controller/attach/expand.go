package attach

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/volumefit"
)

// expander reports that a claim which asks for more than its volume has waits for the resizer of the driver.
type expander struct {
	events  *client.Recorder
	loop    *controller.Loop
	claims  *cache.Cache[*corev1.PersistentVolumeClaim]
	volumes *cache.Cache[*corev1.PersistentVolume]
}

func newExpander(config controller.Config, a *attacher) *expander {
	e := &expander{
		claims: cache.Of(config.Caches, client.PersistentVolumeClaims, cache.Indexes[*corev1.PersistentVolumeClaim]{}), volumes: a.volumes,
	}
	e.events = client.NewRecorder(config.For("expand-controller").Client, "volume_expand", "", config.Log)
	e.loop = controller.New(controller.Options{
		Name: expandName, Reconcile: e.reconcile, Workers: config.Workers, Log: config.Log, Needs: []<-chan struct{}{e.claims.Ready(), e.volumes.Ready()},
		Object: controller.ObjectOf(e.claims), Quarantine: config.Quarantine,
	})
	e.claims.Subscribe(func(before, after *corev1.PersistentVolumeClaim) {
		// A claim that was larger before this program began was reported then.
		if before != nil && after != nil && after.Spec.Resources.Requests.Storage().Cmp(*before.Spec.Resources.Requests.Storage()) > 0 {
			e.loop.Add(controller.KeyOf(after))
		}
	})
	return e
}

func (e *expander) reconcile(_ context.Context, key controller.Key) (controller.Result, error) {
	c, ok := e.claims.Get(key.Namespace, key.Name)
	if !ok || !volumefit.Bound(c) || c.Spec.Resources.Requests.Storage().Cmp(*c.Status.Capacity.Storage()) <= 0 {
		return controller.Result{}, nil
	}
	if v, ok := e.volumes.Get("", c.Spec.VolumeName); ok && v.Spec.CSI != nil {
		e.events.Event(c, corev1.EventTypeNormal, "ExternalExpanding", "waiting for an external controller to expand this PVC")
	}
	return controller.Result{}, nil
}
