package sets

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
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
	revisions := cache.Of(config.Caches, client.ControllerRevisions, dependents.Indexes[*appsv1.ControllerRevision]())
	stateful, daemons := newStatefulSets(config.For("statefulset-controller"), pods, revisions), newDaemonSets(config.For("daemon-set-controller"), pods, revisions)
	return slices.Concat([]run.Task{caches}, stateful.Tasks(), daemons.Tasks())
}
