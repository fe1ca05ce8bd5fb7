package workload

import (
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
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
		Indexes: map[string]func(*corev1.Pod) []string{byController: controllerOf, byOrphanage: orphanageOf},
		Log:     opts.Log,
	})
	replication, replicationTasks := newReplication(opts, pods)
	jobs, jobTasks := newJobs(opts, pods)
	pods.Subscribe(func(before, after *corev1.Pod) {
		replication.podChanged(before, after)
		jobs.podChanged(before, after)
	})
	return slices.Concat(
		[]run.Task{{Name: "workload-pods", Run: pods.Run, Ready: pods.Ready()}},
		replicationTasks,
		jobTasks,
	)
}

// The indexes of pods.
const (
	byController = "controller" // UID of the controller reference
	byOrphanage  = "orphanage"  // namespace, of pods without a controller
)

func controllerOf(pod *corev1.Pod) []string {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		return []string{string(ref.UID)}
	}
	return nil
}

func orphanageOf(pod *corev1.Pod) []string {
	if metav1.GetControllerOfNoCopy(pod) == nil {
		return []string{pod.Namespace}
	}
	return nil
}

// ownerKey returns the key of the controller of that kind which a pod names.
func ownerKey(pod *corev1.Pod, kind string) (controller.Key, bool) {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || ref.Kind != kind {
		return controller.Key{}, false
	}
	return controller.Key{Namespace: pod.Namespace, Name: ref.Name}, true
}
