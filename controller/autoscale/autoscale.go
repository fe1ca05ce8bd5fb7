package autoscale

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

const (
	loopName = "horizontal-pod-autoscaler-controller"
	// component is the source of the events.
	component = "horizontal-pod-autoscaler"

	// period is the time between two reconciles of an autoscaler.
	period = 15 * time.Second
)

// Options configures the controller. Client and Raw are required.
type Options struct {
	controller.Config

	// Raw makes requests of the same user as Client.
	Raw Raw
}

// autoscalers scales the targets of autoscalers.
type autoscalers struct {
	client  client.Interface
	source  source
	objects *cache.Cache[*autoscalingv2.HorizontalPodAutoscaler]
	pods    *cache.Cache[*corev1.Pod]
	events  *client.Recorder
	loop    *controller.Loop
	log     *slog.Logger

	mu     sync.Mutex
	states map[controller.Key]*state // guarded by mu
}

// state is the memory of one autoscaler (autoscale-A3).
type state struct {
	history  history         // of the worker of the autoscaler alone
	selector labels.Selector // guarded by autoscalers.mu; nil before the first reconcile
}

// Tasks returns the controller, to be run together as one stage.
func Tasks(opts Options) []run.Task {
	config, caches := opts.WithDefaults()
	a := &autoscalers{
		client:  config.Client,
		source:  source{config.Client, opts.Raw},
		objects: cache.Of(config.Caches, client.HorizontalPodAutoscalers, nil),
		pods:    cache.Of(config.Caches, client.Pods, nil),
		events:  client.NewRecorder(config.Client, component, "", config.Log),
		log:     config.Log,
		states:  map[controller.Key]*state{},
	}
	a.loop = controller.New(controller.Options{
		Name: loopName, Reconcile: a.reconcile, Workers: config.Workers, Log: config.Log,
		Object: controller.ObjectOf(a.objects), Quarantine: config.Quarantine,
		Needs: []<-chan struct{}{a.objects.Ready(), a.pods.Ready()},
	})
	a.objects.Subscribe(a.changed)
	return []run.Task{
		caches,
		{Name: component + "-events", Run: a.events.Run},
		a.loop.Task(),
	}
}

// changed queues an autoscaler whose specification has changed. Changes of its status are mostly our own.
func (a *autoscalers) changed(before, after *autoscalingv2.HorizontalPodAutoscaler) {
	if before == nil || after == nil || before.UID != after.UID || before.Generation != after.Generation {
		a.loop.Add(controller.KeyOfEither(before, after))
	}
}

// state returns the memory of an autoscaler.
func (a *autoscalers) state(key controller.Key) *state {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.states[key]
	if s == nil {
		s = &state{}
		a.states[key] = s
	}
	return s
}

func (a *autoscalers) forget(key controller.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.states, key)
}

func (a *autoscalers) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	object, ok := a.objects.Get(key.Namespace, key.Name)
	if !ok {
		a.forget(key)
		return controller.Result{}, nil
	}
	d, err := a.decide(ctx, key, object)
	if ctx.Err() != nil {
		return controller.Result{}, nil // the program ends
	}
	if err != nil { // which the status and an event say as well
		a.log.DebugContext(ctx, "an autoscaler cannot do all that it should", "controller", loopName, "key", key.String(), "err", err)
	}
	for _, e := range d.events {
		a.events.Event(object, e.kind, e.reason, "%s", e.message)
	}
	return controller.Result{After: period}, a.writeStatus(ctx, object, d)
}

// decide reads what there is to read, decides, and scales.
func (a *autoscalers) decide(ctx context.Context, key controller.Key, object *autoscalingv2.HorizontalPodAutoscaler) (*decision, error) {
	s := a.state(key)
	d := newDecision(object, &s.history, time.Now())
	scale, resource, err := a.source.scale(ctx, object.Namespace, object.Spec.ScaleTargetRef)
	if err != nil {
		d.unable(err)
		return d, err
	}
	if d.target(scale) {
		err = a.measure(ctx, key, d, scale)
	}
	if d.rescale && ctx.Err() == nil {
		failure := a.rescale(ctx, resource, scale, d.desired)
		d.rescaled(failure)
		if err == nil {
			err = failure
		}
	}
	return d, err
}

// measure reads the metrics of an autoscaler and decides by them.
func (a *autoscalers) measure(ctx context.Context, key controller.Key, d *decision, scale *autoscalingv1.Scale) error {
	selector, ok := d.selectPods(scale)
	if !ok {
		return nil
	}
	pods := a.selected(key.Namespace, selector)
	if others := a.claim(key, selector, pods); len(others) > 0 {
		d.ambiguous(scale.Status.Selector, others)
		return nil
	}
	specs := d.autoscaler.Spec.Metrics
	readings := make([]reading, len(specs))
	for i := range specs {
		readings[i] = a.source.read(ctx, d.autoscaler, &specs[i], selector)
	}
	d.now = time.Now() // reading may have taken a while
	return d.compute(scale, a.selected(key.Namespace, selector), readings)
}

func (a *autoscalers) selected(namespace string, selector labels.Selector) (pods []*corev1.Pod) {
	for _, p := range a.pods.List(namespace) {
		if selector.Matches(labels.Set(p.Labels)) {
			pods = append(pods, p)
		}
	}
	return pods
}

// claim notes the selector of an autoscaler. It returns two autoscalers if another one selects one of the pods as well
// (autoscale-A4).
func (a *autoscalers) claim(key controller.Key, selector labels.Selector, pods []*corev1.Pod) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.states[key]; s != nil {
		s.selector = selector
	}
	for other, s := range a.states {
		if other == key || other.Namespace != key.Namespace || s.selector == nil {
			continue
		}
		for _, p := range pods {
			if s.selector.Matches(labels.Set(p.Labels)) {
				return []string{key.String(), other.String()}
			}
		}
	}
	return nil
}

// rescaleTries is how often a scale is written that others write at the same time.
const rescaleTries = 5

// rescale writes the scale of a target. If others change the target meanwhile, it reads the scale again.
func (a *autoscalers) rescale(ctx context.Context, resource schema.GroupVersionResource, scale *autoscalingv1.Scale, replicas int32) error {
	namespace, name := scale.Namespace, scale.Name
	for try := 1; ; try++ {
		scale.Spec.Replicas = replicas
		_, err := a.client.Update(ctx, resource, namespace, name, scale, metav1.UpdateOptions{}, "scale")
		if err == nil || !apierrors.IsConflict(err) || try == rescaleTries {
			return err
		}
		run.Pause(ctx, 10*time.Millisecond)
		latest, failure := as[autoscalingv1.Scale](a.client.Get(ctx, resource, namespace, name, "scale"))
		if failure != nil {
			return err
		}
		scale = latest.DeepCopy()
	}
}

// writeStatus writes the status if it has changed, and waits until the cache has it.
func (a *autoscalers) writeStatus(ctx context.Context, object *autoscalingv2.HorizontalPodAutoscaler, d *decision) error {
	if equality.Semantic.DeepEqual(object.Status, d.status) {
		return nil
	}
	changed := object.DeepCopy()
	changed.Status = d.status
	written, err := client.HorizontalPodAutoscalers.Update(ctx, a.client, changed, "status")
	switch {
	case apierrors.IsNotFound(err), ctx.Err() != nil:
		return nil
	case apierrors.IsConflict(err): // its change has queued it again, or will
		return nil
	case err != nil:
		a.events.Event(object, corev1.EventTypeWarning, "FailedUpdateStatus", "%s", err.Error())
		a.log.WarnContext(ctx, "the status of an autoscaler could not be written", "key", object.Namespace+"/"+object.Name, "err", err)
		return nil
	}
	if err := a.objects.Await(ctx, written.ResourceVersion); err != nil {
		return fmt.Errorf("waiting for the cache: %w", err)
	}
	return nil
}
