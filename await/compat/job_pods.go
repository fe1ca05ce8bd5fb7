package compat

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/await"
	"github.com/sampan-io/sampan/await/events"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/follow"
	"github.com/sampan-io/sampan/internal/run"
)

// WaitForJobPodsRunning is [WaitForJobPodsInPhase] with the phase Running.
func WaitForJobPodsRunning(ctx context.Context, c client.Interface, namespace, job string, expected int) error {
	return WaitForJobPodsInPhase(ctx, c, namespace, job, expected, corev1.PodRunning)
}

// WaitForJobPodsInPhase waits until exactly the expected number of a job's pods are in a phase. It finds the pods by the
// job's label, so the job need not exist yet.
//
// If ctx has no deadline, it is [JobTimeout]. The error at the deadline wraps context.DeadlineExceeded and says how many
// pods were in the phase and why the others were not. The wait also ends with an error as soon as the job has ended and
// the number cannot be reached any more; that error wraps a [*JobFailedError] if the job failed. A caller that is not
// allowed to read the job waits until the deadline.
func WaitForJobPodsInPhase(ctx context.Context, c client.Interface, namespace, job string, expected int, phase corev1.PodPhase) error {
	phases := []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown}
	if !slices.Contains(phases, phase) {
		return fmt.Errorf("await: the phase is %q, want one of %q", phase, phases)
	}
	ctx, cancel := within(ctx)
	defer cancel()
	w := &jobPods{
		client: c, namespace: namespace, job: job, phase: phase, expected: expected, pods: map[types.UID]*corev1.Pod{},
	}
	if err := w.wait(ctx); err != nil {
		return fmt.Errorf("pods of job %s/%s: %w", namespace, job, err)
	}
	return nil
}

// jobPods is the state of a [WaitForJobPodsInPhase]. It is used by one goroutine.
type jobPods struct {
	client         client.Interface
	namespace, job string
	phase          corev1.PodPhase
	expected       int

	pods   map[types.UID]*corev1.Pod
	listed map[types.UID]bool // the pods in the list that is being read
	known  bool               // the pods have been listed
	lost   error              // why the pods cannot be read at the moment
	ended  error              // how the job ended; nil if it has not
}

// endRetry is the pause before the pods of a job that has ended are listed again after an error.
const endRetry = time.Second

func (w *jobPods) wait(ctx context.Context) error {
	g := run.NewGroup(ctx, 0)
	defer g.Stop()
	pods := w.follow(g, client.Pods.GroupVersionResource, batchv1.JobNameLabel+"="+w.job, "")
	jobs := w.follow(g, client.Jobs.GroupVersionResource, "", "metadata.name="+w.job)
	var again <-chan time.Time
	for {
		select {
		case r := <-pods:
			if err := w.takePods(r); err != nil {
				return err
			}
		case r := <-jobs:
			w.takeJob(r)
		case <-again:
		case <-ctx.Done():
			return w.late(context.Cause(ctx))
		}
		switch {
		case !w.known || w.lost != nil:
			continue
		case w.count() == w.expected:
			return nil
		case w.ended == nil:
			continue
		}
		over, err := w.over(ctx)
		switch {
		case over || err != nil && follow.Hopeless(err):
			return err
		case err != nil && ctx.Err() == nil:
			again = time.After(endRetry)
		}
	}
}

// follow starts a goroutine in g that follows a source, and returns its reports.
func (w *jobPods) follow(g *run.Group, r schema.GroupVersionResource, labels, fields string) <-chan follow.Step {
	reports := make(chan follow.Step)
	g.Go(func(ctx context.Context) {
		f := follow.Follower{Client: w.client, PageSize: pageSize, Source: follow.Source{
			GroupVersionResource: r, Namespace: w.namespace, Labels: labels, Fields: fields,
		}}
		for step := range f.Steps(ctx) {
			switch s := step.(type) {
			case follow.Bookmark, follow.Expired: // a new list follows the latter
				continue
			case *follow.Changed:
				kept := *s // it is read on another goroutine
				step = &kept
			}
			select {
			case reports <- step:
			case <-ctx.Done():
				return
			}
		}
	})
	return reports
}

// pageSize limits how many decoded objects are in memory at a time while a list is read.
const pageSize = 250

// takePods handles a report about the pods.
func (w *jobPods) takePods(report follow.Step) error {
	w.lost = nil
	switch r := report.(type) {
	case follow.Failed:
		if w.lost = r.Err; r.Final || !w.known {
			return r.Err
		}
	case follow.Deleted:
		delete(w.pods, r.Object.GetUID())
	case *follow.Changed:
		return w.take(r.Object)
	case follow.Page:
		return w.takePage(r)
	}
	return nil
}

func (w *jobPods) takePage(p follow.Page) error {
	if p.Begins {
		w.listed = map[types.UID]bool{}
	}
	for _, o := range p.Objects {
		w.listed[o.GetUID()] = true
		if err := w.take(o); err != nil {
			return err
		}
	}
	if p.Whole {
		w.known = true
		for id := range w.pods {
			if !w.listed[id] {
				delete(w.pods, id)
			}
		}
	}
	return nil
}

func (w *jobPods) take(o client.Object) error {
	p, err := typed[corev1.Pod](o)
	if p != nil {
		w.pods[p.UID] = p
	}
	return err
}

// takeJob handles a report about the job. It ignores errors.
func (w *jobPods) takeJob(report follow.Step) {
	var objects []client.Object
	switch r := report.(type) {
	case follow.Page:
		objects = r.Objects
	case *follow.Changed:
		objects = []client.Object{r.Object}
	case follow.Deleted:
		w.ended = nil
	}
	for _, o := range objects {
		if j, err := typed[batchv1.Job](o); j != nil && err == nil {
			w.ended = endOf(j)
		}
	}
}

// endOf returns how a job ended, nil if it has not.
func endOf(j *batchv1.Job) error {
	for _, c := range j.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobFailed:
			return &JobFailedError{j.Namespace, j.Name, events.Reason(c.Reason, c.Message)}
		case c.Type == batchv1.JobComplete:
			return fmt.Errorf("job %s/%s is complete", j.Namespace, j.Name)
		}
	}
	return nil
}

func (w *jobPods) count() (n int) {
	for _, p := range w.pods {
		if p.Status.Phase == w.phase {
			n++
		}
	}
	return n
}

// over reports whether the wait for the pods of a job that has ended is decided: with a nil error if there are as many
// as expected, with another error if there cannot be. It lists the pods, because their watch may be behind the job's.
func (w *jobPods) over(ctx context.Context) (over bool, err error) {
	items, _, err := w.client.List(ctx, client.Pods.GroupVersionResource, w.namespace, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + w.job})
	if err != nil {
		return false, err
	}
	pods, err := podsIn(items)
	if err != nil {
		return true, err
	}
	count, open := 0, 0
	for _, p := range pods {
		switch {
		case p.Status.Phase == w.phase:
			count++
		case p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed:
			open++
		}
	}
	if w.phase != corev1.PodSucceeded && w.phase != corev1.PodFailed {
		open = 0 // no pod of a job that has ended gets there
	}
	switch {
	case count == w.expected:
		return true, nil
	case count+open < w.expected:
		return true, fmt.Errorf("%d are %s, %d are expected: %w", count, w.phase, w.expected, w.ended)
	}
	return false, nil
}

// late returns the error at the deadline.
func (w *jobPods) late(cause error) error {
	if w.lost != nil {
		return w.lost
	}
	var (
		name  string
		worst await.Verdict
	)
	for _, p := range w.pods {
		if why := troubleOf(p); weight(why) > weight(worst) {
			name, worst = p.Name, why
		}
	}
	text := fmt.Sprintf("%d are %s, %d are expected", w.count(), w.phase, w.expected)
	if worst.Cause != "" {
		text += "; pod " + name + ": " + worst.Cause
	}
	return fmt.Errorf("%s: %w", text, cause)
}

// troubleOf returns why a pod is not further than it is. Of a pod that runs that is a failure of a container; one that is
// being deleted or has ended is judged as if it were to start.
func troubleOf(p *corev1.Pod) await.Verdict {
	degree, shown := await.Running, *p
	shown.DeletionTimestamp, shown.Status.ObservedGeneration = nil, 0
	switch p.Status.Phase {
	case corev1.PodRunning:
		degree = await.Finished
	default:
		shown.Status.Phase = corev1.PodPending
	}
	verdict, err := await.Judge(degree, await.View{Object: &shown})
	if err != nil || p.Status.Phase == corev1.PodRunning && verdict.State != await.Failed {
		return await.Verdict{}
	}
	return verdict
}

// weight orders verdicts by how much they explain: certain failures weigh most, then likely ones, then pods that wait.
func weight(v await.Verdict) int {
	switch {
	case v.State == await.Failed && v.Certainty == await.Certain:
		return 3
	case v.State == await.Failed:
		return 2
	case v.Cause != "":
		return 1
	}
	return 0
}
