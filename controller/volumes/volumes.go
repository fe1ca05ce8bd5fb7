package volumes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
	"github.com/sampan-io/sampan/internal/volumefit"
)

// The names of the loops, which are upstream's.
const (
	binderName           = "persistentvolume-binder-controller"
	claimProtectionName  = "persistentvolumeclaim-protection-controller"
	volumeProtectionName = "persistentvolume-protection-controller"
	ephemeralName        = "ephemeral-volume-controller"
)

// objects has the caches of the controllers, and the client with which one of them writes.
type objects struct {
	client  client.Interface
	claims  *cache.Cache[*corev1.PersistentVolumeClaim]
	volumes *cache.Cache[*corev1.PersistentVolume]
	classes *cache.Cache[*storagev1.StorageClass]
	pods    *cache.Cache[*corev1.Pod]
}

// as returns o with the client of an account.
func (o objects) as(config controller.Config, account string) *objects {
	o.client = config.For(account).Client
	return &o
}

// The indexes.
const (
	byClaim  = "claim"  // of pods and volumes: "namespace/name" of claims that they name
	byVolume = "volume" // of claims: their volumes
	byState  = "state"  // of claims: under waiting, the claims without a volume
	waiting  = "waiting"
)

// Tasks returns the controllers, to be run together as one stage.
func Tasks(config controller.Config) []run.Task {
	config, caches := config.WithDefaults()
	o := objects{
		claims: cache.Of(config.Caches, client.PersistentVolumeClaims, cache.Indexes[*corev1.PersistentVolumeClaim]{byVolume: named, byState: state}),
		volumes: cache.Of(config.Caches, client.PersistentVolumes, cache.Indexes[*corev1.PersistentVolume]{byClaim: func(v *corev1.PersistentVolume) []string {
			if ref := v.Spec.ClaimRef; ref != nil {
				return []string{ref.Namespace + "/" + ref.Name}
			}
			return nil
		}}),
		classes: cache.Of(config.Caches, client.StorageClasses, nil),
		pods:    cache.Of(config.Caches, client.Pods, cache.Indexes[*corev1.Pod]{byClaim: claimsOf}),
	}
	pods, claims, volumes := controller.ObjectOf(o.pods), controller.ObjectOf(o.claims), controller.ObjectOf(o.volumes)
	either := func(key controller.Key) client.Object {
		if key.Namespace == "" {
			return volumes(key)
		}
		return claims(key)
	}
	loop := func(name string, object func(controller.Key) client.Object, reconcile func(context.Context, controller.Key) (controller.Result, error)) *controller.Loop {
		return controller.New(controller.Options{
			Name: name, Reconcile: reconcile, Workers: config.Workers, Log: config.Log, Object: object, Quarantine: config.Quarantine,
			Needs: []<-chan struct{}{o.claims.Ready(), o.volumes.Ready(), o.classes.Ready(), o.pods.Ready()},
		})
	}
	b := &binder{objects: o.as(config, "persistent-volume-binder"), lastEvents: map[controller.Key]event{}}
	b.events = client.NewRecorder(b.client, "persistentvolume-controller", "", config.Log)
	b.loop = loop(binderName, either, b.reconcile)
	b.subscribe()
	p := &protector{objects: o.as(config, "pvc-protection-controller"), volume: o.as(config, "pv-protection-controller")}
	p.claimLoop, p.volumeLoop = loop(claimProtectionName, claims, p.protectClaim), loop(volumeProtectionName, volumes, p.protectVolume)
	p.subscribe()
	a := &attributes{objects: o.as(config, attributesName), attributeClasses: cache.Of(config.Caches, client.VolumeAttributesClasses, nil)}
	a.loop = controller.New(controller.Options{
		Name: attributesName, Reconcile: a.reconcile, Workers: config.Workers, Log: config.Log,
		Needs: []<-chan struct{}{a.attributeClasses.Ready(), o.claims.Ready(), o.volumes.Ready()},
	})
	a.subscribe()
	m := &maker{objects: o.as(config, "ephemeral-volume-controller")}
	m.events = client.NewRecorder(m.client, "ephemeral_volume", "", config.Log)
	m.loop = loop(ephemeralName, pods, m.reconcile)
	m.subscribe()
	return []run.Task{
		caches,
		{Name: binderName + "-events", Run: b.events.Run},
		{Name: ephemeralName + "-events", Run: m.events.Run},
		b.loop.Task(), p.claimLoop.Task(), p.volumeLoop.Task(), a.loop.Task(), m.loop.Task(),
	}
}

// claimsOf returns the claims that a pod names, as "namespace/name".
func claimsOf(pod *corev1.Pod) []string {
	var all []string
	for i := range pod.Spec.Volumes {
		if name, _ := volumefit.Named(pod, &pod.Spec.Volumes[i]); name != "" {
			all = append(all, pod.Namespace+"/"+name)
		}
	}
	return all
}

func named(c *corev1.PersistentVolumeClaim) []string {
	if c.Spec.VolumeName == "" {
		return nil
	}
	return []string{c.Spec.VolumeName}
}

func state(c *corev1.PersistentVolumeClaim) []string {
	if c.Spec.VolumeName == "" && c.Status.Phase != corev1.ClaimLost {
		return []string{waiting}
	}
	return nil
}
