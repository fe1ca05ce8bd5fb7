package workload

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/internal/run"
)

// managedHere is what spec.managedBy says if anything.
const managedHere = "kubernetes.io/job-controller"

// jobs runs the pods of Jobs.
type jobs struct {
	client  client.Interface
	jobs    *cache.Cache[*batchv1.Job]
	work    *podWork
	events  *client.Recorder
	loop    *controller.Loop
	orphans *controller.Loop // of pods whose finalizer no Job will take away
}

func newJobs(opts Options, pods *cache.Cache[*corev1.Pod]) (*jobs, []run.Task) {
	events := client.NewRecorder(opts.Client, "job-controller", "", opts.Log)
	j := &jobs{
		client: opts.Client,
		jobs:   cache.Of(opts.Caches, client.Jobs, nil),
		work:   newPodWork(opts.Client, pods, events),
		events: events,
	}
	needs := []<-chan struct{}{j.jobs.Ready(), pods.Ready()}
	j.loop = controller.New(controller.Options{
		Name: "job-controller", Reconcile: j.reconcile, Workers: opts.Workers, Needs: needs, Log: opts.Log,
	})
	j.orphans = controller.New(controller.Options{
		Name: "job-orphans", Reconcile: j.freeOrphan, Workers: opts.Workers, Needs: needs, Log: opts.Log,
	})
	j.jobs.Subscribe(func(before, after *batchv1.Job) {
		if after != nil {
			j.loop.Add(controller.KeyOf(after))
			return
		}
		for _, pod := range pods.ByIndex(byController, string(before.UID)) {
			j.orphans.Add(controller.KeyOf(pod))
		}
	})
	return j, []run.Task{
		{Name: "job-controller-events", Run: events.Run},
		j.loop.Task(),
		j.orphans.Task(),
	}
}

// podChanged wakes the jobs that a changed pod concerns.
func (j *jobs) podChanged(before, after *corev1.Pod) {
	for _, pod := range []*corev1.Pod{before, after} {
		if pod == nil {
			continue
		}
		key, owned := ownerKey(pod, "Job")
		switch {
		case owned:
			j.loop.Add(key)
		case pod == after && metav1.GetControllerOfNoCopy(pod) == nil:
			for _, job := range j.jobs.List(pod.Namespace) {
				if s, err := jobSelector(job); err == nil && s.Matches(labels.Set(pod.Labels)) {
					j.loop.Add(controller.KeyOf(job))
				}
			}
		}
		if pod == after && tracked(pod) {
			if job, ok := j.jobs.Get(key.Namespace, key.Name); !owned || !ok || job.UID != metav1.GetControllerOfNoCopy(pod).UID {
				j.orphans.Add(controller.KeyOf(pod))
			}
		}
	}
}

func jobSelector(job *batchv1.Job) (labels.Selector, error) {
	s, err := metav1.LabelSelectorAsSelector(job.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	return s, nil
}

func (j *jobs) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	job, ok := j.jobs.Get(key.Namespace, key.Name)
	if !ok || job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != managedHere {
		return controller.Result{}, nil
	}
	selector, err := jobSelector(job)
	if err != nil {
		return controller.Result{}, err
	}
	now := func(ctx context.Context) (client.Object, error) {
		return client.Jobs.Get(ctx, j.client, job.Namespace, job.Name)
	}
	pods, err := j.work.claim(ctx, job, now, selector, batchv1.JobTrackingFinalizer)
	if err != nil {
		return controller.Result{}, err
	}
	plan := planJob(job, pods, time.Now())
	var failure error
	if n := len(plan.create); n > 0 {
		// Pods come before the status, so that they start sooner and the status counts
		// them already. The account (W4) is not concerned.
		failure = j.work.create(ctx, job, n, func(i int) *corev1.Pod { return jobPod(job, plan.create[i]) })
		if ctx.Err() != nil {
			return controller.Result{}, nil
		}
		plan = planJob(job, planClaim(job, selector, j.work.candidates(job)).mine, time.Now())
	}
	if err := errors.Join(failure, j.carryOut(ctx, job, plan)); err != nil {
		return controller.Result{}, err
	}
	after := plan.after
	if current, ok := j.jobs.Get(key.Namespace, key.Name); ok {
		if left, limited := expiry(current, time.Now()); limited && left <= 0 {
			return controller.Result{}, j.expire(ctx, current)
		} else if limited {
			after = left
		}
	}
	return controller.Result{After: after}, nil
}

// carryOut writes the status and does what depends on it. Each step that changes
// pods wakes the job again, and the next plan says what they amount to.
func (j *jobs) carryOut(ctx context.Context, job *batchv1.Job, plan jobPlan) error {
	if !equality.Semantic.DeepEqual(plan.status, job.Status) {
		fresh := job.DeepCopy()
		fresh.Status = plan.status
		now, err := client.Jobs.Update(ctx, j.client, fresh, "status")
		switch {
		case apierrors.IsNotFound(err):
			return nil // it has been deleted
		case err != nil:
			return fmt.Errorf("write status of job %s/%s: %w", job.Namespace, job.Name, err)
		}
		for _, e := range plan.events {
			j.events.Event(job, e.kind, e.reason, "%s", e.message)
		}
		if err := j.jobs.Await(ctx, now.ResourceVersion); err != nil {
			return err
		}
	}
	var errs []error
	for _, pod := range plan.release {
		errs = append(errs, j.work.dropFinalizer(ctx, pod, batchv1.JobTrackingFinalizer))
	}
	if len(plan.remove) > 0 {
		errs = append(errs, j.work.remove(ctx, job, plan.remove, batchv1.JobTrackingFinalizer))
	}
	return errors.Join(errs...)
}

// expire deletes a job whose time to live is over, if it still is.
func (j *jobs) expire(ctx context.Context, job *batchv1.Job) error {
	fresh, err := client.Jobs.Get(ctx, j.client, job.Namespace, job.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if left, limited := expiry(fresh, time.Now()); !limited || left > 0 {
		return controller.Again("its time to live was changed")
	}
	foreground := metav1.DeletePropagationForeground
	err = client.Jobs.Delete(ctx, j.client, job.Namespace, job.Name, metav1.DeleteOptions{
		PropagationPolicy: &foreground,
		Preconditions:     &metav1.Preconditions{UID: &fresh.UID, ResourceVersion: &fresh.ResourceVersion},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// freeOrphan takes the finalizer from a pod that no job will count: its job is gone, or
// it was orphaned.
func (j *jobs) freeOrphan(ctx context.Context, key controller.Key) (controller.Result, error) {
	pod, ok := j.work.cache.Get(key.Namespace, key.Name)
	if !ok || !tracked(pod) {
		return controller.Result{}, nil
	}
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		for _, job := range j.jobs.List(pod.Namespace) {
			if s, err := jobSelector(job); err == nil && job.DeletionTimestamp == nil && s.Matches(labels.Set(pod.Labels)) {
				return controller.Result{}, nil // it will adopt the pod
			}
		}
	} else if ref.Kind == "Job" {
		// The cache of jobs may be behind that of pods.
		job, err := client.Jobs.Get(ctx, j.client, pod.Namespace, ref.Name)
		if err == nil && job.UID == ref.UID {
			return controller.Result{}, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return controller.Result{}, err
		}
	}
	return controller.Result{}, j.work.dropFinalizer(ctx, pod, batchv1.JobTrackingFinalizer)
}
