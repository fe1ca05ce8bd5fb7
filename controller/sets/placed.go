package sets

import (
	"log/slog"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller/dependents"
	"github.com/sampan-io/sampan/internal/run"
)

// Options configures the controllers. Client is required.
type Options struct {
	Client  client.Interface
	Caches  *cache.Shared // what the controllers read; nil means caches of their own, over Client
	Workers int           // objects of one kind worked on at the same time; 0 means 4
	Log     *slog.Logger  // nil means slog.Default
}

// Tasks returns the controllers, to be run together as one stage.
func Tasks(opts Options) []run.Task {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	var caches run.Task
	opts.Caches, caches = opts.Caches.Or(opts.Client, opts.Log)
	pods := cache.Of(opts.Caches, client.Pods, dependents.Indexes[*corev1.Pod]())
	revisions := cache.Of(opts.Caches, client.ControllerRevisions, dependents.Indexes[*appsv1.ControllerRevision]())
	stateful, daemons := newStatefulSets(opts, pods, revisions), newDaemonSets(opts, pods, revisions)
	return slices.Concat([]run.Task{caches}, stateful.Tasks(), daemons.Tasks())
}
