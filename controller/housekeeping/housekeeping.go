package housekeeping

import (
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/internal/podstate"
	"github.com/sampan-io/sampan/internal/run"
)

// Options configures the controllers. Client is required.
type Options struct {
	Client client.Interface
	Caches *cache.Shared // what the controllers read; nil means caches of their own, over Client

	// Resources are all resources that the cluster serves (without subresources):
	// what a namespace is emptied of, and among what owners and dependents are found.
	Resources []client.Resource[client.Object]

	// RootCA is the PEM certificate that pods trust the API server by. Empty means
	// that none is published.
	RootCA []byte

	// NodeGrace is how long a node may be silent before it counts as lost; 0 means
	// 40 s, four times the interval at which nodes renew their Lease.
	NodeGrace time.Duration

	// FinishedPods is the number of finished pods that are kept; the oldest go first. 0
	// means 12,500, as upstream.
	FinishedPods int

	Workers int          // objects of one kind worked on at the same time; 0 means 4
	Log     *slog.Logger // nil means slog.Default
}

// Tasks returns the controllers, to be run together as one stage.
func Tasks(opts Options) []run.Task {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.NodeGrace == 0 {
		opts.NodeGrace = 40 * time.Second
	}
	if opts.FinishedPods == 0 {
		opts.FinishedPods = 12500
	}
	var caches run.Task
	opts.Caches, caches = opts.Caches.Or(opts.Client, opts.Log)
	pods := cache.Of(opts.Caches, client.Pods, cache.Indexes[*corev1.Pod]{byNode: nodeOf, byFinish: finishedOf})
	namespaces := cache.Of(opts.Caches, client.Namespaces, nil)
	return slices.Concat(
		[]run.Task{caches},
		newEndpoints(opts, pods),
		newAccounts(opts, namespaces),
		newOwnersAndNamespaces(opts, namespaces),
		newNodes(opts, pods),
	)
}

// The indexes of pods.
const (
	byNode   = "node"
	byFinish = "finish" // under finished, pods that have
	finished = "finished"
)

func nodeOf(pod *corev1.Pod) []string {
	if pod.Spec.NodeName == "" {
		return nil
	}
	return []string{pod.Spec.NodeName}
}

func finishedOf(pod *corev1.Pod) []string {
	if podstate.Finished(pod) {
		return []string{finished}
	}
	return nil
}
