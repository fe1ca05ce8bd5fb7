package workload

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
)

// finishedJobs deletes finished Jobs after their ttlSecondsAfterFinished, also Jobs that another controller manages.
type finishedJobs struct {
	client client.Interface
	jobs   *cache.Cache[*batchv1.Job]
	loop   *controller.Loop
}

func newFinishedJobs(config controller.Config, jobs *cache.Cache[*batchv1.Job]) *finishedJobs {
	f := &finishedJobs{client: config.Client, jobs: jobs}
	f.loop = controller.New(controller.Options{
		Name: "ttl-after-finished-controller", Reconcile: f.reconcile, Workers: config.Workers, Log: config.Log,
		Needs: []<-chan struct{}{jobs.Ready()}, Object: controller.ObjectOf(jobs), Quarantine: config.Quarantine,
	})
	jobs.Subscribe(func(_, after *batchv1.Job) {
		if after == nil {
			return
		}
		if _, limited := expiry(after, time.Time{}); limited {
			f.loop.Add(controller.KeyOf(after))
		}
	})
	return f
}

func (f *finishedJobs) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	job, ok := f.jobs.Get(key.Namespace, key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	if left, limited := expiry(job, time.Now()); !limited || left > 0 {
		return controller.Result{After: left}, nil
	}
	// A deleted job cannot be restored, and the cache may be behind: ask the server whether the time is still over.
	fresh, err := client.Jobs.Get(ctx, f.client, key.Namespace, key.Name)
	if err != nil {
		return controller.Result{}, ignoreNotFound(err)
	}
	if left, limited := expiry(fresh, time.Now()); !limited || left > 0 {
		return controller.Result{After: left}, nil
	}
	foreground := metav1.DeletePropagationForeground
	err = client.Jobs.Delete(ctx, f.client, key.Namespace, key.Name, metav1.DeleteOptions{
		PropagationPolicy: &foreground,
		Preconditions:     &metav1.Preconditions{UID: &fresh.UID, ResourceVersion: &fresh.ResourceVersion},
	})
	return controller.Result{}, ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
