package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/dependents"
	"github.com/sampan-io/sampan/internal/run"
)

// Tasks returns the controllers, to be run together as one stage.
func Tasks(config controller.Config) []run.Task {
	config, caches := config.WithDefaults()
	pods := cache.Of(config.Caches, client.Pods, dependents.Indexes[*corev1.Pod]())
	rcs := newReplicas(config.For("replication-controller"), replication, pods)
	sets := newReplicas(config.For("replicaset-controller"), replicaSets, pods)
	deployments := newDeployments(config.For("deployment-controller"), sets.Objects, pods)
	jobs := newJobs(config.For("job-controller"), pods)
	return slices.Concat([]run.Task{caches}, rcs.Tasks(), sets.Tasks(), deployments.Tasks(), jobs.tasks())
}
