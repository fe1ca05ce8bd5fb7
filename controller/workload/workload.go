package workload

import (
	"log/slog"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
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
	pods := cache.Of(opts.Caches, client.Pods, ownedIndexes[*corev1.Pod]())
	replication, replicationTasks := newReplication(opts, pods)
	sets, setTasks := newReplicaSets(opts, pods)
	deployments, deploymentTasks := newDeployments(opts, sets.objects, pods)
	revisions := cache.Of(opts.Caches, client.ControllerRevisions, ownedIndexes[*appsv1.ControllerRevision]())
	stateful, statefulTasks := newStatefulSets(opts, pods, revisions)
	daemons, daemonTasks := newDaemonSets(opts, pods, revisions)
	jobs, jobTasks := newJobs(opts, pods)
	pods.Subscribe(func(before, after *corev1.Pod) {
		replication.podChanged(before, after)
		sets.podChanged(before, after)
		deployments.podChanged(before, after)
		stateful.podChanged(before, after)
		daemons.podChanged(before, after)
		jobs.podChanged(before, after)
	})
	return slices.Concat(
		[]run.Task{caches},
		replicationTasks,
		setTasks,
		deploymentTasks,
		statefulTasks,
		daemonTasks,
		jobTasks,
	)
}
