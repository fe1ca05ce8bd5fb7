package dependents

import (
	"context"
	"fmt"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/quarantine"
	"github.com/sampan-io/sampan/internal/run"
)

// Options configures a [Controller]. Name, Client, Caches, Resource, Selector and Reconcile
// are required.
type Options[T client.Object] struct {
	Name     string // of the controller, in logs and events
	Client   client.Interface
	Caches   *cache.Shared      // where the owners are read from; the caller runs it
	Resource client.Resource[T] // of the owners

	// Selector returns which dependents an owner has or may adopt. It is pure.
	Selector func(owner T) labels.Selector

	// Reconcile is that of [controller.Options], with the owner as the cache has it.
	// It is not called for one that is gone.
	Reconcile func(ctx context.Context, owner T) (controller.Result, error)

	Needs   []<-chan struct{} // must be ready before work begins, besides the owners
	Workers int               // owners worked on at the same time; 0 means 4
	Log     *slog.Logger      // nil means slog.Default

	Quarantine *quarantine.Quarantine // of owners that ended an earlier process; nil has none
}

// A Controller is the part that the controllers of all kinds of owners have in common: it caches the owners, queues them
// when they or their dependents change, and writes their status.
type Controller[T client.Object] struct {
	Client   client.Interface
	Resource client.Resource[T]
	Objects  *cache.Cache[T] // with [Indexes]
	Events   *client.Recorder
	Loop     *controller.Loop

	opts Options[T]
}

// NewController returns a Controller that has not started; run its [Controller.Tasks].
func NewController[T client.Object](opts Options[T]) *Controller[T] {
	k := &Controller[T]{
		Client: opts.Client, Resource: opts.Resource, opts: opts,
		Objects: cache.Of(opts.Caches, opts.Resource, Indexes[T]()),
		Events:  client.NewRecorder(opts.Client, opts.Name, "", opts.Log),
	}
	k.Loop = controller.New(controller.Options{
		Name: opts.Name, Workers: opts.Workers, Log: opts.Log, Object: controller.ObjectOf(k.Objects), Quarantine: opts.Quarantine,
		Needs: append([]<-chan struct{}{k.Objects.Ready()}, opts.Needs...),
		Reconcile: func(ctx context.Context, key controller.Key) (controller.Result, error) {
			owner, ok := k.Objects.Get(key.Namespace, key.Name)
			if !ok {
				return controller.Result{}, nil
			}
			return opts.Reconcile(ctx, owner)
		},
	})
	var none T
	k.Objects.Subscribe(func(before, after T) {
		if client.Object(after) == client.Object(none) {
			after = before
		}
		k.Loop.Add(controller.KeyOf(after))
	})
	return k
}

// Tasks returns the tasks of the controller, which must run together, as parts of one stage.
func (k *Controller[T]) Tasks() []run.Task {
	return []run.Task{
		{Name: k.opts.Name + "-events", Run: k.Events.Run},
		k.Loop.Task(),
	}
}

// Owner returns obj as an owner of dependents.
func (k *Controller[T]) Owner(obj T) Owner {
	return Owner{Object: obj, Selector: k.opts.Selector(obj), now: func(ctx context.Context) (client.Object, error) {
		return k.Resource.Get(ctx, k.Client, obj.GetNamespace(), obj.GetName())
	}}
}

// Matching returns the owners in a namespace that select objects with those labels.
func (k *Controller[T]) Matching(namespace string, set labels.Set) (owners []T) {
	for _, one := range k.Objects.List(namespace) {
		if k.opts.Selector(one).Matches(set) {
			owners = append(owners, one)
		}
	}
	return owners
}

// Follow queues the owner of each dependent that changes, and the owners that may adopt it. It must be called before the
// cache runs.
func Follow[T, D client.Object](k *Controller[T], dependents *cache.Cache[D]) {
	var none D
	dependents.Subscribe(func(before, after D) {
		for _, one := range []D{before, after} {
			if client.Object(one) == client.Object(none) {
				continue
			}
			if key, ok := Key(one, k.Resource.Kind); ok {
				k.Loop.Add(key)
			} else if client.Object(one) == client.Object(after) && metav1.GetControllerOfNoCopy(one) == nil {
				for _, owner := range k.Matching(one.GetNamespace(), labels.Set(one.GetLabels())) {
					k.Loop.Add(controller.KeyOf(owner))
				}
			}
		}
	})
}

// WriteStatus writes the status of updated and waits until the cache has it. It does nothing if the owner was deleted.
func (k *Controller[T]) WriteStatus(ctx context.Context, updated T) error {
	return k.write(ctx, updated, "status", "")
}

// Write writes updated, except for its status, and waits until the cache has it. It does nothing if the owner was deleted.
// An empty field manager means that of the client.
func (k *Controller[T]) Write(ctx context.Context, updated T, manager string) error {
	return k.write(ctx, updated, "", manager)
}

func (k *Controller[T]) write(ctx context.Context, updated T, part, manager string) error {
	now, err := k.Resource.UpdateBy(ctx, k.Client, updated, part, manager)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		what := k.Resource.Kind
		if part != "" {
			what = part + " of " + what
		}
		return fmt.Errorf("write %s %s: %w", what, controller.KeyOf(updated), err)
	}
	return k.Objects.Await(ctx, now.GetResourceVersion())
}

// Selector returns what s selects: nothing if it is missing, empty or wrong, which the
// API server does not let through.
func Selector(s *metav1.LabelSelector) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil || selector.Empty() {
		return labels.Nothing()
	}
	return selector
}
