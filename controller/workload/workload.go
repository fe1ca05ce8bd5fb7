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
	Workers int          // objects of one kind worked on at the same time; 0 means 4
	Log     *slog.Logger // nil means slog.Default
}

// Tasks returns the controllers and the caches that they read, to be run together as
// one stage.
func Tasks(opts Options) []run.Task {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	pods := cache.New(opts.Client, client.Pods, cache.Options[*corev1.Pod]{
		Indexes: ownedIndexes[*corev1.Pod](),
		Log:     opts.Log,
	})
	replication, replicationTasks := newReplication(opts, pods)
	sets, setTasks := newReplicaSets(opts, pods)
	deployments, deploymentTasks := newDeployments(opts, sets.objects, pods)
	revisions := cache.New(opts.Client, client.ControllerRevisions, cache.Options[*appsv1.ControllerRevision]{
		Indexes: ownedIndexes[*appsv1.ControllerRevision](), Log: opts.Log,
	})
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
		[]run.Task{{Name: "workload-pods", Run: pods.Run, Ready: pods.Ready()}},
		replicationTasks,
		setTasks,
		deploymentTasks,
		[]run.Task{{Name: "workload-revisions", Run: revisions.Run, Ready: revisions.Ready()}},
		statefulTasks,
		daemonTasks,
		jobTasks,
	)
}
