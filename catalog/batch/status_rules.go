package batch

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateJobStatus checks that a status is possible and does not take back what
// is final. Most rules are about changes only: a user may have changed the spec so that
// the stored status breaks them, and the controller has to get it right again.
func validateJobStatus(j, old *batchv1.Job) field.ErrorList {
	v := statusChange{job: j, now: &j.Status, at: field.NewPath("status")}
	if old == nil {
		old = &batchv1.Job{Spec: j.Spec}
	}
	v.old, v.was = old, &old.Status
	v.counts()
	v.conditions()
	v.finished()
	v.indexes()
	v.times()
	return v.errs
}

// A statusChange collects the faults of a change from the status was of old to now of job.
type statusChange struct {
	job, old *batchv1.Job
	now, was *batchv1.JobStatus
	at       *field.Path
	errs     field.ErrorList
}

func (v *statusChange) invalid(name string, value any, message string) {
	v.errs = append(v.errs, field.Invalid(v.at.Child(name), value, message))
}

// is reports whether the condition is true, and changed whether it was not before, or the reverse.
func (v *statusChange) is(t batchv1.JobConditionType) bool      { return condition(v.job, t) != nil }
func (v *statusChange) changed(t batchv1.JobConditionType) bool { return v.is(t) != v.had(t) }
func (v *statusChange) had(t batchv1.JobConditionType) bool     { return condition(v.old, t) != nil }

// ended reports whether the job is finished, and ends whether that changes.
func (v *statusChange) ended() bool { return v.is(batchv1.JobComplete) || v.is(batchv1.JobFailed) }

func (v *statusChange) ends() bool {
	return v.ended() != (v.had(batchv1.JobComplete) || v.had(batchv1.JobFailed))
}

func (v *statusChange) counts() {
	count := func(name string, n *int32) {
		if n != nil {
			v.errs = append(v.errs, apivalidation.ValidateNonnegativeField(int64(*n), v.at.Child(name))...)
		}
	}
	s, was := v.now, v.was
	count("active", &s.Active)
	count("succeeded", &s.Succeeded)
	count("failed", &s.Failed)
	count("ready", s.Ready)
	count("terminating", s.Terminating)
	if s.Ready != nil && *s.Ready > s.Active && (s.Active != was.Active || !same(s.Ready, was.Ready)) {
		v.invalid("ready", *s.Ready, "cannot set more ready pods than active")
	}
	if s.Failed < was.Failed {
		v.invalid("failed", s.Failed, "cannot decrease the failed counter")
	}
	// An indexed job with as many pods at once as completions can be scaled down.
	scalable := indexed(&v.job.Spec) && same(v.job.Spec.Completions, v.job.Spec.Parallelism)
	if s.Succeeded < was.Succeeded && !scalable {
		v.invalid("succeeded", s.Succeeded, "cannot decrease the succeeded counter")
	}
	if u := s.UncountedTerminatedPods; u != nil {
		at, seen := v.at.Child("uncountedTerminatedPods"), map[types.UID]bool{}
		v.uncounted(u.Succeeded, at.Child("succeeded"), seen)
		v.uncounted(u.Failed, at.Child("failed"), seen)
	}
}

func (v *statusChange) uncounted(pods []types.UID, at *field.Path, seen map[types.UID]bool) {
	for i, uid := range pods {
		switch {
		case uid == "":
			v.errs = append(v.errs, field.Invalid(at.Index(i), uid, "must not be empty"))
		case seen[uid]:
			v.errs = append(v.errs, field.Duplicate(at.Index(i), uid))
		}
		seen[uid] = true
	}
}

func (v *statusChange) conditions() {
	complete, failed := v.is(batchv1.JobComplete), v.is(batchv1.JobFailed)
	met, target := v.is(batchv1.JobSuccessCriteriaMet), v.is(batchv1.JobFailureTarget)
	completes, fails := v.changed(batchv1.JobComplete), v.changed(batchv1.JobFailed)
	refuse := func(wrong bool, message string) {
		if wrong {
			v.invalid("conditions", field.OmitValueType{}, message)
		}
	}
	refuse(complete && failed && (completes || fails), "cannot set Complete=True and Failed=true conditions")
	refuse(complete && target && (completes || v.changed(batchv1.JobFailureTarget)), "cannot set Complete=True and FailureTarget=true conditions")
	refuse(failed && !target && (fails || !same(v.now.FailedIndexes, v.was.FailedIndexes)), "cannot set Failed=True condition without the FailureTarget=true condition")
	refuse(complete && !met && (completes || v.changed(batchv1.JobSuccessCriteriaMet)), "cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
	refuse(met && failed, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
	refuse(met && target, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
	refuse(complete && !met && v.job.Spec.SuccessPolicy != nil, "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")
	for _, t := range []batchv1.JobConditionType{batchv1.JobFailed, batchv1.JobComplete, batchv1.JobFailureTarget} {
		refuse(v.had(t) && !v.is(t), "cannot disable the terminal "+string(t)+"=True condition")
	}
	refuse(v.had(batchv1.JobSuccessCriteriaMet) && !met, "cannot disable the SuccessCriteriaMet=True condition")
	refuse(v.had(batchv1.JobComplete) && !v.had(batchv1.JobSuccessCriteriaMet) && met, "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
}

// finished checks that a finished job has no active parts.
func (v *statusChange) finished() {
	if !v.ended() {
		return
	}
	s, was, ends := v.now, v.was, v.ends()
	if s.Active > 0 && (ends || s.Active != was.Active) {
		v.invalid("active", s.Active, "active>0 is invalid for finished job")
	}
	if n := s.Terminating; n != nil && *n > 0 && (ends || !same(n, was.Terminating)) {
		v.invalid("terminating", *n, "terminating>0 is invalid for finished job")
	}
	u := s.UncountedTerminatedPods
	if u != nil && len(u.Failed)+len(u.Succeeded) > 0 && (ends || !equality.Semantic.DeepEqual(u, was.UncountedTerminatedPods)) {
		v.invalid("uncountedTerminatedPods", u, "must be empty for finished job")
	}
	spec := &v.job.Spec
	empty := spec.Suspend != nil && *spec.Suspend && spec.Completions != nil && *spec.Completions == 0
	if s.StartTime == nil && !empty && (ends || was.StartTime != nil) {
		v.errs = append(v.errs, field.Required(v.at.Child("startTime"), "startTime is required for finished job"))
	}
}

func (v *statusChange) indexes() {
	s, spec := v.now, &v.job.Spec
	completed := s.CompletedIndexes != v.was.CompletedIndexes
	failed := !same(s.FailedIndexes, v.was.FailedIndexes)
	if completed && spec.Completions != nil {
		if _, err := countIndexes(s.CompletedIndexes, int(*spec.Completions)); err != nil {
			v.invalid("completedIndexes", s.CompletedIndexes, "error parsing completedIndexes: "+err.Error())
		}
	}
	if completed && s.CompletedIndexes != "" && !indexed(spec) {
		v.invalid("completedIndexes", s.CompletedIndexes, "cannot set non-empty completedIndexes when non-indexed completion mode")
	}
	if s.FailedIndexes == nil {
		return
	}
	switch {
	case !failed:
	case spec.BackoffLimitPerIndex == nil:
		v.invalid("failedIndexes", *s.FailedIndexes, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
	case spec.Completions != nil:
		if _, err := countIndexes(*s.FailedIndexes, int(*spec.Completions)); err != nil {
			v.invalid("failedIndexes", *s.FailedIndexes, "error parsing failedIndexes: "+err.Error())
		}
	}
	if spec.Completions == nil || !completed && !failed {
		return
	}
	if at := overlap(s.CompletedIndexes, *s.FailedIndexes, int(*spec.Completions)); at >= 0 {
		v.invalid("failedIndexes", *s.FailedIndexes, fmt.Sprintf("failedIndexes and completedIndexes overlap at index: %d", at))
	}
}

// overlap returns the first index that is in both lists, or -1. Parts that cannot be parsed, or reach beyond limit, are
// ignored.
func overlap(a, b string, limit int) int {
	left, right := parsedIntervals(a, limit), parsedIntervals(b, limit)
	for len(left) > 0 && len(right) > 0 {
		l, r := left[0], right[0]
		switch {
		case l.first <= r.last && r.first <= l.last:
			return max(l.first, r.first)
		case l.first <= r.first:
			left = left[1:]
		default:
			right = right[1:]
		}
	}
	return -1
}

func parsedIntervals(list string, limit int) (all []interval) {
	for part := range strings.SplitSeq(list, ",") {
		if i, err := parseInterval(part, limit); err == nil {
			all = append(all, i)
		}
	}
	return slices.Clip(all)
}

func (v *statusChange) times() {
	s, was := v.now, v.was
	starts, completes := !s.StartTime.Equal(was.StartTime), !s.CompletionTime.Equal(was.CompletionTime)
	complete := v.is(batchv1.JobComplete)
	changed := completes || v.changed(batchv1.JobComplete)
	switch {
	case complete && s.CompletionTime == nil && changed:
		v.errs = append(v.errs, field.Required(v.at.Child("completionTime"), "completionTime is required for Complete jobs"))
	case !complete && s.CompletionTime != nil && changed:
		v.invalid("completionTime", s.CompletionTime, "cannot set completionTime when there is no Complete=True condition")
	}
	if s.StartTime != nil && s.CompletionTime != nil && s.CompletionTime.Before(s.StartTime) && (starts || completes) {
		v.invalid("completionTime", s.CompletionTime, "must be equal to or after `startTime`")
	}
	if s.CompletionTime != nil && was.CompletionTime != nil && completes {
		v.invalid("completionTime", s.CompletionTime, "field is immutable")
	}
	suspended := v.job.Spec.Suspend != nil && *v.job.Spec.Suspend
	if was.StartTime != nil && starts && !suspended && !v.resumes() {
		v.invalid("startTime", s.StartTime, "field is immutable for unsuspended job once set")
	}
}

// resumes reports whether the condition Suspended becomes false: with it the start time changes.
func (v *statusChange) resumes() bool {
	return v.had(batchv1.JobSuspended) && slices.ContainsFunc(v.now.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionFalse
	})
}

func same[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}
