package cron

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/dependents"
	"github.com/sampan-io/sampan/internal/run"
)

const name = "cronjob-controller"

// cronJobs makes the jobs of CronJobs.
type cronJobs struct {
	client  client.Interface
	objects *cache.Cache[*batchv1.CronJob]
	jobs    *cache.Cache[*batchv1.Job]
	events  *client.Recorder
	loop    *controller.Loop
}

// Tasks returns the controller, to be run together as one stage.
func Tasks(config controller.Config) []run.Task {
	config, caches := config.WithDefaults()
	config = config.For(name)
	c := &cronJobs{
		client:  config.Client,
		objects: cache.Of(config.Caches, client.CronJobs, nil),
		jobs:    cache.Of(config.Caches, client.Jobs, dependents.Indexes[*batchv1.Job]()),
		events:  client.NewRecorder(config.Client, name, "", config.Log),
	}
	c.loop = controller.New(controller.Options{
		Name: name, Reconcile: c.reconcile, Workers: config.Workers, Log: config.Log,
		Object: controller.ObjectOf(c.objects), Quarantine: config.Quarantine,
		Needs: []<-chan struct{}{c.objects.Ready(), c.jobs.Ready()},
	})
	c.objects.Subscribe(c.changed)
	c.jobs.Subscribe(func(before, after *batchv1.Job) {
		for _, job := range []*batchv1.Job{before, after} {
			if job == nil {
				continue
			}
			if key, ok := dependents.Key(job, client.CronJobs.Kind); ok {
				c.loop.Add(key)
			}
		}
	})
	return []run.Task{
		caches,
		{Name: name + "-events", Run: c.events.Run},
		c.loop.Task(),
	}
}

// changed queues a CronJob that changed. After a change of its schedule that is for the next slot (cron-C3).
func (c *cronJobs) changed(before, after *batchv1.CronJob) {
	if after == nil {
		return
	}
	key := controller.KeyOf(after)
	if before == nil || before.UID != after.UID ||
		before.Spec.Schedule == after.Spec.Schedule && equality.Semantic.DeepEqual(before.Spec.TimeZone, after.Spec.TimeZone) {
		c.loop.Add(key)
		return
	}
	s, err := parse(&after.Spec)
	if err != nil {
		c.events.Event(after, corev1.EventTypeWarning, "UnParseableCronJobSchedule", "unparseable schedule for cronjob: %s", after.Spec.Schedule)
		return
	}
	c.loop.AddAfter(key, untilNext(after, s, time.Now()))
}

func (c *cronJobs) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	cached, ok := c.objects.Get(key.Namespace, key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	one := cached.DeepCopy()
	jobs := c.jobs.ByIndex(dependents.ByController, string(one.UID))
	slices.SortFunc(jobs, func(a, b *batchv1.Job) int { return cmp.Compare(a.Name, b.Name) })
	for _, job := range surplus(one, jobs) {
		_ = c.remove(ctx, one, job) // an event reports it; the next job that ends tries again
	}
	gone, err := c.missing(ctx, one, jobs)
	if err != nil {
		return controller.Result{}, err
	}
	d := decide(one, jobs, gone, time.Now())
	one.Status = d.status
	for _, e := range d.events {
		c.events.Event(one, e.kind, e.reason, "%s", e.message)
	}
	failure := c.start(ctx, one, d)
	if !equality.Semantic.DeepEqual(one.Status, cached.Status) {
		now, err := client.CronJobs.Update(ctx, c.client, one, "status")
		switch {
		case apierrors.IsNotFound(err):
			return controller.Result{}, nil
		case err != nil:
			return controller.Result{}, fmt.Errorf("write status of cronjob %s: %w", key, err)
		}
		if err := c.objects.Await(ctx, now.ResourceVersion); err != nil {
			return controller.Result{}, err
		}
	}
	return controller.Result{After: d.after}, failure
}

// missing returns the UIDs of active jobs that the server no longer has. The cache of jobs may be behind that of CronJobs.
func (c *cronJobs) missing(ctx context.Context, one *batchv1.CronJob, jobs []*batchv1.Job) (map[types.UID]bool, error) {
	gone := map[types.UID]bool{}
	for _, ref := range one.Status.Active {
		if slices.ContainsFunc(jobs, func(job *batchv1.Job) bool { return job.UID == ref.UID }) {
			continue
		}
		job, err := client.Jobs.Get(ctx, c.client, ref.Namespace, ref.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		gone[ref.UID] = err != nil || job.UID != ref.UID
	}
	return gone, nil
}

// start makes the job that d asks for, if any, after deleting the jobs that it replaces, and changes the status of one.
func (c *cronJobs) start(ctx context.Context, one *batchv1.CronJob, d decision) error {
	if d.slot.IsZero() {
		return nil
	}
	for _, ref := range d.replace {
		job, err := client.Jobs.Get(ctx, c.client, ref.Namespace, ref.Name)
		if err != nil {
			c.events.Event(one, corev1.EventTypeWarning, "FailedGet", "Get job: %v", err)
			return err
		}
		if err := c.remove(ctx, one, job); err != nil {
			return fmt.Errorf("could not replace job %s/%s: %w", job.Namespace, job.Name, err)
		}
	}
	job, err := client.Jobs.Create(ctx, c.client, newJob(one, d.slot))
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case apierrors.IsAlreadyExists(err):
		// It may be ours, from before a crash (cron-C1).
		if job, err = client.Jobs.Get(ctx, c.client, one.Namespace, jobName(one, d.slot)); err != nil {
			return err
		}
		if !metav1.IsControlledBy(job, one) || inList(one.Status.Active, job.UID) {
			return nil
		}
	case err != nil:
		if ctx.Err() == nil {
			c.events.Event(one, corev1.EventTypeWarning, "FailedCreate", "Error creating job: %v", err)
		}
		return err
	default:
		c.events.Event(one, corev1.EventTypeNormal, "SuccessfulCreate", "Created job %v", job.Name)
	}
	one.Status.Active = append(one.Status.Active, reference(job))
	one.Status.LastScheduleTime = &metav1.Time{Time: d.slot}
	return c.jobs.Await(ctx, job.ResourceVersion)
}

// remove deletes a job and removes it from the active ones. It is a no-op if the job is gone.
func (c *cronJobs) remove(ctx context.Context, one *batchv1.CronJob, job *batchv1.Job) error {
	background := metav1.DeletePropagationBackground
	err := client.Jobs.Delete(ctx, c.client, job.Namespace, job.Name, metav1.DeleteOptions{
		PropagationPolicy: &background, Preconditions: metav1.NewUIDPreconditions(string(job.UID)),
	})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
	case err != nil:
		if ctx.Err() == nil {
			c.events.Event(one, corev1.EventTypeWarning, "FailedDelete", "Deleted job: %v", err)
		}
		return err
	default:
		c.events.Event(one, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job %v", job.Name)
	}
	one.Status.Active = without(one.Status.Active, job.UID)
	return c.jobs.AwaitDeletion(ctx, job)
}
