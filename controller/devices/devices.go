package devices

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/run"
)

// The names of the loops. The first one and the third one are upstream's.
const (
	makerName        = "resourceclaim-controller"
	reservationsName = "resourceclaim-reservations"
	evictorName      = "device-taint-eviction-controller"
	ruleStatusName   = "device-taint-rule-status"
)

// objects has the client and caches of the controllers.
type objects struct {
	client    client.Interface
	claims    *cache.Cache[*resourcev1.ResourceClaim]
	templates *cache.Cache[*resourcev1.ResourceClaimTemplate]
	pods      *cache.Cache[*corev1.Pod]
}

// The indexes.
const (
	byClaim    = "device-claim"    // of pods: "namespace/name" of the claims that they use
	byTemplate = "device-template" // of pods: "namespace/name" of the templates that they name
	byOwner    = "device-owner"    // of claims: the UID of the pod for which they were made
)

// Tasks returns the controllers, to be run together as one stage.
func Tasks(config controller.Config) []run.Task {
	config, caches := config.WithDefaults()
	claims, evictions := config.For("resource-claim-controller").Client, config.For("device-taint-eviction-controller").Client
	o := &objects{
		client:    claims,
		claims:    cache.Of(config.Caches, client.ResourceClaims, cache.Indexes[*resourcev1.ResourceClaim]{byOwner: ownersOf, byPool: poolsOf}),
		templates: cache.Of(config.Caches, client.ResourceClaimTemplates, nil),
		pods:      cache.Of(config.Caches, client.Pods, cache.Indexes[*corev1.Pod]{byClaim: claimsOf, byTemplate: templatesOf}),
	}
	evictorObjects := *o
	evictorObjects.client = evictions
	e := &evictor{
		objects: &evictorObjects, planned: map[types.UID]bool{}, evicted: map[types.UID]int{},
		slices: cache.Of(config.Caches, client.ResourceSlices, cache.Indexes[*resourcev1.ResourceSlice]{byPool: poolOf}),
		rules:  cache.Of(config.Caches, client.DeviceTaintRules, nil),
		events: client.NewRecorder(evictions, evictorName, "", config.Log),
	}
	loop := func(name string, object func(controller.Key) client.Object, reconcile func(context.Context, controller.Key) (controller.Result, error)) *controller.Loop {
		return controller.New(controller.Options{
			Name: name, Reconcile: reconcile, Workers: config.Workers, Log: config.Log, Object: object, Quarantine: config.Quarantine,
			Needs: []<-chan struct{}{o.claims.Ready(), o.templates.Ready(), o.pods.Ready(), e.slices.Ready(), e.rules.Ready()},
		})
	}
	m := &maker{objects: o, events: client.NewRecorder(claims, "resource_claim", "", config.Log)}
	m.loop = loop(makerName, controller.ObjectOf(o.pods), m.reconcile)
	m.subscribe()
	r := &reservations{objects: o}
	r.loop = loop(reservationsName, controller.ObjectOf(o.claims), r.reconcile)
	r.subscribe()
	e.loop, e.reports = loop(evictorName, controller.ObjectOf(o.pods), e.reconcile), loop(ruleStatusName, controller.ObjectOf(e.rules), e.report)
	e.subscribe()
	return []run.Task{
		caches,
		{Name: makerName + "-events", Run: m.events.Run},
		{Name: evictorName + "-events", Run: e.events.Run},
		m.loop.Task(), r.loop.Task(), e.loop.Task(), e.reports.Task(),
	}
}

// claimsOf returns the claims that a pod uses and that are known by name, as "namespace/name".
func claimsOf(pod *corev1.Pod) []string {
	var all []string
	for name := range resourceclaim.PodClaims(pod) {
		all = append(all, pod.Namespace+"/"+name)
	}
	return all
}

func templatesOf(pod *corev1.Pod) []string {
	var all []string
	for i := range pod.Spec.ResourceClaims {
		if name := pod.Spec.ResourceClaims[i].ResourceClaimTemplateName; name != nil {
			all = append(all, pod.Namespace+"/"+*name)
		}
	}
	return all
}

func ownersOf(c *resourcev1.ResourceClaim) []string {
	if _, uid := owner(c); uid != "" {
		return []string{string(uid)}
	}
	return nil
}

// owner returns the pod for which a claim was made, or nothing.
func owner(c *resourcev1.ResourceClaim) (name string, uid types.UID) {
	if ref := metav1.GetControllerOfNoCopy(c); ref != nil && ref.APIVersion == "v1" && ref.Kind == "Pod" {
		return ref.Name, ref.UID
	}
	return "", ""
}

// uses reports whether a pod concerns the controllers at all.
func uses(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// done reports whether it is certain that no container of a pod runs or will run.
func done(pod *corev1.Pod) bool {
	return podstate.Finished(pod) || pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
}

// updateStatus writes the status of a claim, and returns when the cache has it.
func (o *objects) updateStatus(ctx context.Context, c *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	return o.await(ctx)(client.ResourceClaims.Update(ctx, o.client, c, "status"))
}

// await returns a function that passes on the result of a write when the cache of claims has it.
func (o *objects) await(ctx context.Context) func(*resourcev1.ResourceClaim, error) (*resourcev1.ResourceClaim, error) {
	return func(c *resourcev1.ResourceClaim, err error) (*resourcev1.ResourceClaim, error) {
		if err != nil {
			return nil, err
		}
		return c, o.claims.Await(ctx, c.ResourceVersion)
	}
}
