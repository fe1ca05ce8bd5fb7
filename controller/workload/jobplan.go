package workload

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/controller/dependents"
	"github.com/sampan-io/sampan/internal/podstate"
)

// After a failure a Job waits before it makes another pod: firstBackoff, then twice
// as long for each failure in a row, up to maxBackoff, as upstream does.
const (
	firstBackoff = 10 * time.Second
	maxBackoff   = 10 * time.Minute

	defaultBackoffLimit = 6

	// maxUncounted is the number of UIDs in status.uncountedTerminatedPods, which keeps a Job small, as upstream. Other
	// finished pods keep their finalizer until these are counted.
	maxUncounted = 500
)

// A jobPlan is the work for a Job now.
type jobPlan struct {
	create  []int // pods to make: completion indexes, or -1 for one without
	status  batchv1.JobStatus
	events  []jobEvent    // to be written with the status
	release []*corev1.Pod // to lose the finalizer once the status, which counts them, is written (workload-W2)
	remove  []*corev1.Pod
	after   time.Duration // when time alone may ask for something; 0 means never

	replaced map[int]*corev1.Pod // the last failed pod of indexes without another one, if each index has its limit
}

type jobEvent struct{ kind, reason, message string }

// jobPlanner holds what planJob knows while it works.
type jobPlanner struct {
	job  *batchv1.Job
	pods []*corev1.Pod
	now  time.Time
	plan jobPlan

	done   intervals // completed indexes, of an Indexed job
	lost   intervals // failed indexes, of a job with a limit for each
	active []*corev1.Pod
	ending []*corev1.Pod // being deleted, and still running

	// Finished pods for which the uncounted lists have no space.
	postponed     map[types.UID]bool
	moreSucceeded int
	moreFailed    int
}

// planJob compares a Job's spec with all of its pods.
func planJob(job *batchv1.Job, pods []*corev1.Pod, now time.Time) jobPlan {
	p := &jobPlanner{job: job, pods: pods, now: now.Truncate(time.Second), postponed: map[types.UID]bool{}}
	p.plan.status = *job.Status.DeepCopy()
	if jobEnd(&job.Status) != nil || job.DeletionTimestamp != nil {
		// Nothing counts any more: let the pods go.
		for _, pod := range pods {
			if tracked(pod) {
				p.plan.release = append(p.plan.release, pod)
			}
		}
		return p.plan
	}
	p.count()
	if p.plan.status.StartTime == nil && !suspended(job) {
		p.plan.status.StartTime = &metav1.Time{Time: p.now}
	}
	switch {
	case p.verdict(): // a decided job is not suspended any more, as upstream
	case suspended(job):
		p.plan.remove = p.active
		p.suspend()
	default:
		p.populate()
		p.suspend()
	}
	p.finish()
	return p.plan
}

// jobEnd returns the condition that ended a job, or nil.
func jobEnd(status *batchv1.JobStatus) *batchv1.JobCondition {
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

func suspended(job *batchv1.Job) bool { return job.Spec.Suspend != nil && *job.Spec.Suspend }

func tracked(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
}

func indexed(job *batchv1.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion
}

// failedFor says that a pod counts as failed: it has failed, or it is being deleted
// by others, unless the job wants to see such pods fail first.
func failedFor(job *batchv1.Job, pod *corev1.Pod) bool {
	switch {
	case pod.Status.Phase == corev1.PodFailed:
		return true
	case pod.Status.Phase == corev1.PodSucceeded || pod.DeletionTimestamp == nil:
		return false
	case pod.Spec.NodeName == "":
		return true // no node will ever say how it ended
	}
	return !replacesOnlyFailed(job)
}

func replacesOnlyFailed(job *batchv1.Job) bool {
	return job.Spec.PodFailurePolicy != nil || job.Spec.PodReplacementPolicy != nil && *job.Spec.PodReplacementPolicy == batchv1.Failed
}

// count brings the counters up to date (workload-W2). Each UID goes from a finished pod with
// finalizer into the uncounted list, where it stays until no pod of that UID has the
// finalizer, and then into the counter.
func (p *jobPlanner) count() {
	s := &p.plan.status
	if s.UncountedTerminatedPods == nil {
		s.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	u := s.UncountedTerminatedPods
	held := map[types.UID]*corev1.Pod{}
	for _, pod := range p.pods {
		if tracked(pod) {
			held[pod.UID] = pod
		}
	}
	if indexed(p.job) {
		p.done = parseIntervals(s.CompletedIndexes)
	}
	settle := func(uids []types.UID, counter *int32) []types.UID {
		var left []types.UID
		for _, uid := range uids {
			if pod := held[uid]; pod != nil {
				left = append(left, uid)
				p.plan.release = append(p.plan.release, pod)
			} else {
				*counter++
			}
		}
		return left
	}
	var bySuccess int32 // of an Indexed job the indexes count
	if !indexed(p.job) {
		bySuccess = s.Succeeded
	}
	u.Succeeded = settle(u.Succeeded, &bySuccess)
	u.Failed = settle(u.Failed, &s.Failed)
	p.failIndexes()
	for _, pod := range p.pods {
		if !tracked(pod) || slices.Contains(u.Succeeded, pod.UID) || slices.Contains(u.Failed, pod.UID) {
			continue
		}
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			if !indexed(p.job) && p.full() {
				p.postponed[pod.UID] = true
				p.moreSucceeded++
				continue
			}
			p.plan.release = append(p.plan.release, pod)
			if i := completionIndex(pod); !indexed(p.job) {
				u.Succeeded = append(u.Succeeded, pod.UID)
			} else if i >= 0 && i < int(*p.job.Spec.Completions) {
				p.done = p.done.with(i) // the list of indexes is the account, and repeating it does no harm
			}
		case failedFor(p.job, pod) && !p.delayed(pod):
			p.release(pod)
		}
	}
	s.Succeeded = bySuccess
	if indexed(p.job) {
		s.CompletedIndexes = p.done.String()
		s.Succeeded = int32(p.done.len())
	}
	s.Active, s.Ready, s.Terminating = 0, new(int32), new(int32)
	for _, pod := range p.pods {
		switch {
		case podstate.Active(pod):
			p.active = append(p.active, pod)
			if podstate.Ready(pod) {
				*s.Ready++
			}
		case !podstate.Finished(pod):
			p.ending = append(p.ending, pod)
		}
	}
	s.Active, *s.Terminating = int32(len(p.active)), int32(len(p.ending))
}

// failIndexes finds the failed indexes of a job with a limit for each, and the last failed pod of each index without
// another one. That pod keeps its finalizer until the next pod of the index has its number of failures.
func (p *jobPlanner) failIndexes() {
	if !indexed(p.job) || !limitedPerIndex(p.job) {
		return
	}
	s, done := &p.plan.status, p.done
	if s.FailedIndexes != nil {
		p.lost = parseIntervals(*s.FailedIndexes)
	}
	taken := intervals{}
	for _, pod := range p.pods {
		i := completionIndex(pod)
		switch {
		case podstate.Active(pod):
			taken = taken.with(i)
		case !tracked(pod) || i >= int(*p.job.Spec.Completions):
		case pod.Status.Phase == corev1.PodSucceeded:
			done = done.with(i)
		case failedFor(p.job, pod) && failsIndex(p.job, pod):
			p.lost = p.lost.with(i)
		}
	}
	s.FailedIndexes = new(p.lost.String())
	p.plan.replaced = map[int]*corev1.Pod{}
	for _, pod := range p.pods {
		i := completionIndex(pod)
		if i < 0 || i >= int(*p.job.Spec.Completions) || !tracked(pod) || slices.Contains(s.UncountedTerminatedPods.Failed, pod.UID) ||
			!failedFor(p.job, pod) || done.has(i) || p.lost.has(i) || taken.has(i) {
			continue
		}
		if last := p.plan.replaced[i]; last == nil || failuresBefore(last) <= failuresBefore(pod) && !endOf(pod).Before(endOf(last)) {
			p.plan.replaced[i] = pod
		}
	}
}

func failuresBefore(pod *corev1.Pod) int {
	counted, ignored := failuresOf(pod)
	return counted + ignored
}

// delayed reports whether a failed pod keeps its finalizer for the next one of its index.
func (p *jobPlanner) delayed(pod *corev1.Pod) bool {
	other := p.plan.replaced[completionIndex(pod)]
	return other != nil && other.UID == pod.UID
}

// full reports whether the uncounted lists have no space.
func (p *jobPlanner) full() bool {
	u := p.plan.status.UncountedTerminatedPods
	return len(u.Succeeded)+len(u.Failed) >= maxUncounted
}

// release releases a failed pod, and counts it unless the podFailurePolicy ignores it. If there is no space to count it,
// it is postponed.
func (p *jobPlanner) release(pod *corev1.Pod) {
	i := completionIndex(pod)
	u := p.plan.status.UncountedTerminatedPods
	valid := !indexed(p.job) || i >= 0 && i < int(*p.job.Spec.Completions)
	if valid && matchFailure(p.job.Spec.PodFailurePolicy, pod).counts() && !slices.Contains(u.Failed, pod.UID) {
		if p.full() {
			p.postponed[pod.UID] = true
			p.moreFailed++
			return
		}
		u.Failed = append(u.Failed, pod.UID)
	}
	p.plan.release = append(p.plan.release, pod)
}

// succeeded and failed count pods whether they are accounted for yet or not.
func (p *jobPlanner) succeeded() int {
	return int(p.plan.status.Succeeded) + len(p.plan.status.UncountedTerminatedPods.Succeeded) + p.moreSucceeded
}

func (p *jobPlanner) failed() int {
	n := int(p.plan.status.Failed) + len(p.plan.status.UncountedTerminatedPods.Failed) + p.moreFailed
	for _, pod := range p.plan.replaced {
		if matchFailure(p.job.Spec.PodFailurePolicy, pod).counts() {
			n++
		}
	}
	return n
}

// verdict says whether the job is decided, and if so takes away what still runs and
// ends the job when nothing does.
func (p *jobPlanner) verdict() bool {
	s := &p.plan.status
	interim, final := batchv1.JobFailureTarget, batchv1.JobFailed
	var reason, message string
	switch target, success := p.condition(batchv1.JobFailureTarget), p.condition(batchv1.JobSuccessCriteriaMet); {
	case target != nil:
		reason, message = target.Reason, target.Message
	case success != nil:
		interim, final = batchv1.JobSuccessCriteriaMet, batchv1.JobComplete
		reason, message = success.Reason, success.Message
	case p.failureMessage() != "":
		reason, message = batchv1.JobReasonPodFailurePolicy, p.failureMessage()
	case p.pastBackoffLimit():
		reason, message = batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit"
	case p.pastDeadline():
		reason, message = batchv1.JobReasonDeadlineExceeded, "Job was active longer than specified deadline"
	case p.job.Spec.MaxFailedIndexes != nil && p.lost.len() > int(*p.job.Spec.MaxFailedIndexes):
		reason, message = batchv1.JobReasonMaxFailedIndexesExceeded, "Job has exceeded the specified maximal number of failed indexes"
	case p.lost.len() > 0 && p.lost.len()+p.done.len() >= int(*p.job.Spec.Completions):
		reason, message = batchv1.JobReasonFailedIndexes, "Job has failed indexes"
	case p.rule() >= 0:
		interim, final = batchv1.JobSuccessCriteriaMet, batchv1.JobComplete
		reason, message = batchv1.JobReasonSuccessPolicy, fmt.Sprintf("Matched rules at index %d", p.rule())
	case p.complete():
		interim, final = batchv1.JobSuccessCriteriaMet, batchv1.JobComplete
		reason, message = batchv1.JobReasonCompletionsReached, "Reached expected number of succeeded pods"
	default:
		return false
	}
	p.set(interim, corev1.ConditionTrue, reason, message)
	p.plan.remove = p.active
	for _, pod := range p.pods {
		switch {
		case !tracked(pod) || p.postponed[pod.UID] || slices.Contains(p.plan.release, pod):
		case final == batchv1.JobFailed || failedFor(p.job, pod):
			p.release(pod) // all pods of a failed job failed
		case slices.Contains(p.ending, pod):
			p.plan.release = append(p.plan.release, pod) // how it ends does not matter any more
		}
	}
	// An active pod that cannot be counted yet is deleted later.
	p.plan.remove = slices.DeleteFunc(slices.Clone(p.plan.remove), func(pod *corev1.Pod) bool { return p.postponed[pod.UID] })
	u := s.UncountedTerminatedPods
	if len(p.postponed) > 0 || len(p.active) > 0 || len(p.ending) > 0 || len(u.Succeeded) > 0 || len(u.Failed) > 0 {
		return true
	}
	p.set(final, corev1.ConditionTrue, reason, message)
	if final == batchv1.JobComplete {
		s.CompletionTime = &metav1.Time{Time: p.now}
		if c := p.job.Spec.Completions; c != nil && s.Succeeded > *c {
			p.event(corev1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached")
		}
		p.event(corev1.EventTypeNormal, "Completed", "Job completed")
	} else {
		p.event(corev1.EventTypeWarning, reason, message)
	}
	return true
}

func (p *jobPlanner) complete() bool {
	if p.job.Spec.Completions == nil {
		return p.succeeded() > 0 && len(p.active) == 0 && len(p.ending) == 0
	}
	return p.succeeded() >= int(*p.job.Spec.Completions)
}

// failureMessage returns why a failed pod fails the job by its podFailurePolicy, or nothing.
func (p *jobPlanner) failureMessage() string {
	for _, pod := range p.pods {
		if failedFor(p.job, pod) {
			if m := matchFailure(p.job.Spec.PodFailurePolicy, pod); m.message != "" {
				return m.message
			}
		}
	}
	return ""
}

// rule returns the index of the rule of the successPolicy that is fulfilled, or -1.
func (p *jobPlanner) rule() int {
	if !indexed(p.job) {
		return -1
	}
	return matchSuccess(p.job.Spec.SuccessPolicy, int(*p.job.Spec.Completions), p.done)
}

func (p *jobPlanner) pastBackoffLimit() bool {
	limit := defaultBackoffLimit
	if p.job.Spec.BackoffLimit != nil {
		limit = int(*p.job.Spec.BackoffLimit)
	}
	if p.failed() > limit {
		return true
	}
	if p.job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	restarts := 0 // failures that the node took care of
	for _, pod := range p.active {
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			restarts += int(c.RestartCount)
		}
	}
	return restarts > 0 && restarts >= limit
}

func (p *jobPlanner) pastDeadline() bool {
	left, limited := p.deadline()
	return limited && left <= 0
}

// deadline returns how much of the active deadline is left.
func (p *jobPlanner) deadline() (left time.Duration, limited bool) {
	if p.job.Spec.ActiveDeadlineSeconds == nil || p.plan.status.StartTime == nil || suspended(p.job) {
		return 0, false
	}
	return p.plan.status.StartTime.Add(time.Duration(*p.job.Spec.ActiveDeadlineSeconds) * time.Second).Sub(p.now), true
}

// populate plans the pods of a job that is neither decided nor suspended.
func (p *jobPlanner) populate() {
	parallelism := 1
	if p.job.Spec.Parallelism != nil {
		parallelism = int(*p.job.Spec.Parallelism)
	}
	want := parallelism
	if c := p.job.Spec.Completions; c != nil {
		want = min(parallelism, int(*c)-p.succeeded())
	} else if p.succeeded() > 0 {
		want = min(parallelism, len(p.active)) // a work queue that is empty needs no more
	}
	active := p.active
	if indexed(p.job) {
		active = p.distinct()
	}
	have := len(active)
	if surplus := have - want; surplus > 0 {
		p.plan.remove = append(p.plan.remove, expendable(active, nil, p.now)[:surplus]...)
		return
	}
	if replacesOnlyFailed(p.job) {
		have += len(p.ending)
	}
	n := want - have
	if n <= 0 {
		return
	}
	if limitedPerIndex(p.job) {
		p.plan.create, p.plan.after = p.dueIndexes(p.indexes(n))
		return
	}
	if wait := p.backoff(); wait > 0 {
		p.plan.after = wait
		return
	}
	p.plan.create = p.indexes(n)
}

// distinct returns the active pods of an Indexed job without superfluous pods, which are deleted: pods whose index is
// completed, out of range, or has an older pod.
func (p *jobPlanner) distinct() []*corev1.Pod {
	sorted := slices.Clone(p.active)
	slices.SortStableFunc(sorted, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var keep []*corev1.Pod
	taken := intervals{}
	for _, pod := range sorted {
		i := completionIndex(pod)
		if i < 0 || i >= int(*p.job.Spec.Completions) || p.done.has(i) || taken.has(i) {
			p.plan.remove = append(p.plan.remove, pod)
			continue
		}
		taken = taken.with(i)
		keep = append(keep, pod)
	}
	return keep
}

// indexes returns the indexes of the n next pods.
func (p *jobPlanner) indexes(n int) []int {
	n = min(n, dependents.MaxBurst)
	var next []int
	if !indexed(p.job) {
		for range n {
			next = append(next, -1)
		}
		return next
	}
	taken := p.done
	for _, r := range p.lost {
		for i := r[0]; i <= r[1]; i++ {
			taken = taken.with(i)
		}
	}
	for _, pod := range p.active {
		taken = taken.with(completionIndex(pod))
	}
	if replacesOnlyFailed(p.job) {
		for _, pod := range p.ending {
			taken = taken.with(completionIndex(pod))
		}
	}
	for i := 0; i < int(*p.job.Spec.Completions) && len(next) < n; i++ {
		if !taken.has(i) {
			next = append(next, i)
		}
	}
	return next
}

// dueIndexes returns those indexes whose back-off is over; if there are none, how long it takes until the first one's is.
func (p *jobPlanner) dueIndexes(indexes []int) (due []int, wait time.Duration) {
	for _, i := range indexes {
		last := p.plan.replaced[i]
		if last == nil {
			due = append(due, i)
			continue
		}
		if left := endOf(last).Add(pauseAfter(failuresBefore(last) + 1)).Sub(p.now); left <= 0 {
			due = append(due, i)
		} else {
			wait = dependents.Sooner(wait, left)
		}
	}
	if len(due) > 0 {
		return due, 0
	}
	return nil, wait
}

// pauseAfter returns the pause after that many failures in a row.
func pauseAfter(failures int) time.Duration {
	return min(maxBackoff, firstBackoff<<min(failures-1, 20))
}

// backoff returns how long to wait before the next pod is created. It depends on the number of pods that failed since the
// last success, which the pods themselves record.
func (p *jobPlanner) backoff() time.Duration {
	var success, failure time.Time
	for _, pod := range p.pods {
		if pod.Status.Phase == corev1.PodSucceeded && endOf(pod).After(success) {
			success = endOf(pod)
		}
	}
	failures := 0
	for _, pod := range p.pods {
		if pod.Status.Phase != corev1.PodFailed || endOf(pod).Before(success) {
			continue
		}
		failures++
		if endOf(pod).After(failure) {
			failure = endOf(pod)
		}
	}
	if failures == 0 {
		return 0
	}
	return failure.Add(pauseAfter(failures)).Sub(p.now)
}

// endOf returns when a pod ended, as far as its status says.
func endOf(pod *corev1.Pod) (end time.Time) {
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.FinishedAt.After(end) {
			end = t.FinishedAt.Time
		}
	}
	if !end.IsZero() {
		return end
	}
	if c := podstate.Condition(pod, corev1.PodReady); c != nil && c.Status != corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	if pod.DeletionTimestamp != nil {
		return pod.DeletionTimestamp.Time
	}
	return pod.CreationTimestamp.Time
}

// suspend records whether the job is suspended.
func (p *jobPlanner) suspend() {
	s := &p.plan.status
	if suspended(p.job) {
		if p.plan.status.StartTime != nil {
			s.StartTime = nil
		}
		if p.set(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended") {
			p.event(corev1.EventTypeNormal, "Suspended", "Job suspended")
		}
	} else if c := p.condition(batchv1.JobSuspended); c != nil {
		if p.set(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed") {
			s.StartTime = &metav1.Time{Time: p.now}
			p.event(corev1.EventTypeNormal, "Resumed", "Job resumed")
		}
	}
}

// finish sets when to plan again.
func (p *jobPlanner) finish() {
	if left, limited := p.deadline(); limited && left > 0 && (p.plan.after == 0 || left < p.plan.after) {
		p.plan.after = left
	}
	if p.condition(batchv1.JobComplete) != nil || p.condition(batchv1.JobFailed) != nil {
		p.plan.after = 0
	}
}

// condition returns the condition of the planned status, or nil if it is not true
// (a suspension that is over is returned, too).
func (p *jobPlanner) condition(kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range p.plan.status.Conditions {
		c := &p.plan.status.Conditions[i]
		if c.Type == kind && (c.Status == corev1.ConditionTrue || kind == batchv1.JobSuspended) {
			return c
		}
	}
	return nil
}

// set sets a condition and reports whether that changed its status.
func (p *jobPlanner) set(kind batchv1.JobConditionType, status corev1.ConditionStatus, reason, message string) bool {
	at := metav1.Time{Time: p.now}
	for i := range p.plan.status.Conditions {
		if c := &p.plan.status.Conditions[i]; c.Type == kind {
			if c.Status == status {
				return false
			}
			*c = batchv1.JobCondition{Type: kind, Status: status, Reason: reason, Message: message, LastProbeTime: at, LastTransitionTime: at}
			return true
		}
	}
	p.plan.status.Conditions = append(p.plan.status.Conditions, batchv1.JobCondition{
		Type: kind, Status: status, Reason: reason, Message: message, LastProbeTime: at, LastTransitionTime: at,
	})
	return true
}

func (p *jobPlanner) event(kind, reason, message string) {
	p.plan.events = append(p.plan.events, jobEvent{kind, reason, message})
}

// expiry returns how long a finished job is kept by its ttlSecondsAfterFinished.
func expiry(job *batchv1.Job, now time.Time) (left time.Duration, limited bool) {
	end := jobEnd(&job.Status)
	if end == nil || job.Spec.TTLSecondsAfterFinished == nil || job.DeletionTimestamp != nil {
		return 0, false
	}
	return end.LastTransitionTime.Add(time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second).Sub(now), true
}

// longestGenerated is how much of a generateName the server keeps.
const longestGenerated = 58

// jobPod returns a new pod of a job, for a completion index unless that is negative. It takes the place of a failed pod of
// that index, if not nil.
func jobPod(job *batchv1.Job, index int, replaced *corev1.Pod) *corev1.Pod {
	pod := dependents.PodFrom(job, &job.Spec.Template)
	if !slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer) {
		pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	}
	if index < 0 {
		return pod
	}
	text := fmt.Sprint(index)
	suffix := fmt.Sprintf("-%d-", index)
	pod.GenerateName = job.Name[:min(len(job.Name), longestGenerated-len(suffix))] + suffix
	pod.Spec.Hostname = fmt.Sprintf("%s-%d", job.Name, index)
	if limitedPerIndex(job) {
		counted, ignored := failures(job, replaced)
		pod.Annotations = dependents.With(pod.Annotations, batchv1.JobIndexFailureCountAnnotation, fmt.Sprint(counted))
		if ignored > 0 {
			pod.Annotations = dependents.With(pod.Annotations, batchv1.JobIndexIgnoredFailureCountAnnotation, fmt.Sprint(ignored))
		}
	}
	pod.Annotations = dependents.With(pod.Annotations, batchv1.JobCompletionIndexAnnotation, text)
	pod.Labels = dependents.With(pod.Labels, batchv1.JobCompletionIndexAnnotation, text)
	env := corev1.EnvVar{
		Name: "JOB_COMPLETION_INDEX",
		ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
			FieldPath: fmt.Sprintf("metadata.labels['%s']", batchv1.JobCompletionIndexAnnotation),
		}},
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == env.Name }) {
				c.Env = append(c.Env, env)
			}
		}
	}
	return pod
}
