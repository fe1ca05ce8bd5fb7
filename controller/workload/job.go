package workload

import (
	"context"
	"errors"
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
	"github.com/sampan-io/sampan/controller/dependents"
	"github.com/sampan-io/sampan/internal/run"
)

// managedHere is what spec.managedBy says if anything.
const managedHere = "kubernetes.io/job-controller"

// jobs runs the pods of Jobs.
type jobs struct {
	*dependents.Controller[*batchv1.Job]
	work    *dependents.Pods
	ttl     *finishedJobs
	orphans *controller.Loop // of pods whose finalizer no Job will take away
}

func newJobs(config controller.Config, pods *cache.Cache[*corev1.Pod]) *jobs {
	j := &jobs{}
	j.Controller = dependents.NewController(dependents.Options[*batchv1.Job]{
		Name: "job-controller", Client: config.Client, Caches: config.Caches, Resource: client.Jobs, Workers: config.Workers, Log: config.Log, Quarantine: config.Quarantine,
		Selector: func(job *batchv1.Job) labels.Selector { return dependents.Selector(job.Spec.Selector) },
		Needs:    []<-chan struct{}{pods.Ready()}, Reconcile: j.reconcile,
	})
	j.work = dependents.NewPods(j.Controller, pods)
	j.ttl = newFinishedJobs(config.For("ttl-after-finished-controller"), j.Objects)
	j.orphans = controller.New(controller.Options{
		Name: "job-orphans", Reconcile: j.freeOrphan, Workers: config.Workers, Log: config.Log,
		Needs: []<-chan struct{}{j.Objects.Ready(), pods.Ready()},
	})
	j.Objects.Subscribe(func(before, after *batchv1.Job) {
		if after == nil {
			for _, pod := range pods.ByIndex(dependents.ByController, string(before.UID)) {
				j.orphans.Add(controller.KeyOf(pod))
			}
		}
	})
	pods.Subscribe(j.podChanged)
	return j
}

func (j *jobs) tasks() []run.Task { return append(j.Tasks(), j.orphans.Task(), j.ttl.loop.Task()) }

// podChanged looks after pods that no job will count.
func (j *jobs) podChanged(_, pod *corev1.Pod) {
	if pod == nil || !tracked(pod) {
		return
	}
	key, mine := dependents.Key(pod, client.Jobs.Kind)
	if job, ok := j.Objects.Get(key.Namespace, key.Name); !mine || !ok || job.UID != metav1.GetControllerOfNoCopy(pod).UID {
		j.orphans.Add(controller.KeyOf(pod))
	}
}

func (j *jobs) reconcile(ctx context.Context, job *batchv1.Job) (controller.Result, error) {
	if job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != managedHere {
		return controller.Result{}, nil
	}
	owner := j.Owner(job)
	pods, err := j.work.Claim(ctx, owner, batchv1.JobTrackingFinalizer)
	if err != nil {
		return controller.Result{}, err
	}
	plan := planJob(job, pods, time.Now())
	var failure error
	if n := len(plan.create); n > 0 {
		// Pods come before the status, so that they start sooner and the status counts
		// them already. The account (workload-W2) is not concerned.
		failure = j.work.Create(ctx, job, n, func(i int) *corev1.Pod { return jobPod(job, plan.create[i], plan.replaced[plan.create[i]]) })
		if ctx.Err() != nil {
			return controller.Result{}, nil
		}
		plan = planJob(job, j.work.Mine(owner), time.Now())
	}
	if err := errors.Join(failure, j.carryOut(ctx, job, plan)); err != nil {
		return controller.Result{}, err
	}
	return controller.Result{After: plan.after}, nil
}

// carryOut writes the status and does what depends on it. Each step that changes
// pods wakes the job again, and the next plan says what they amount to.
func (j *jobs) carryOut(ctx context.Context, job *batchv1.Job, plan jobPlan) error {
	if !equality.Semantic.DeepEqual(plan.status, job.Status) {
		fresh := job.DeepCopy()
		fresh.Status = plan.status
		if err := j.WriteStatus(ctx, fresh); err != nil {
			return err
		}
		for _, e := range plan.events {
			j.Events.Event(job, e.kind, e.reason, "%s", e.message)
		}
	}
	var errs []error
	for _, pod := range plan.release {
		errs = append(errs, j.work.DropFinalizer(ctx, pod, batchv1.JobTrackingFinalizer))
	}
	if len(plan.remove) > 0 {
		errs = append(errs, j.work.Remove(ctx, job, plan.remove, batchv1.JobTrackingFinalizer))
	}
	return errors.Join(errs...)
}

// freeOrphan takes the finalizer from a pod that no job will count: its job is gone, or
// it was orphaned.
func (j *jobs) freeOrphan(ctx context.Context, key controller.Key) (controller.Result, error) {
	pod, ok := j.work.Cache.Get(key.Namespace, key.Name)
	if !ok || !tracked(pod) {
		return controller.Result{}, nil
	}
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		for _, job := range j.Matching(pod.Namespace, labels.Set(pod.Labels)) {
			if job.DeletionTimestamp == nil {
				return controller.Result{}, nil // it will adopt the pod
			}
		}
	} else if ref.Kind == client.Jobs.Kind {
		// The cache of jobs may be behind that of pods.
		job, err := client.Jobs.Get(ctx, j.Client, pod.Namespace, ref.Name)
		if err == nil && job.UID == ref.UID {
			return controller.Result{}, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return controller.Result{}, err
		}
	}
	return controller.Result{}, j.work.DropFinalizer(ctx, pod, batchv1.JobTrackingFinalizer)
}
