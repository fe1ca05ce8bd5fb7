package batch

import (
	batchv1 "k8s.io/api/batch/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateJobStatus checks that a status is possible and does not take back what
// is final.
func validateJobStatus(j, old *batchv1.Job) field.ErrorList {
	var errs field.ErrorList
	at, s := field.NewPath("status"), &j.Status
	count := func(name string, n int32) {
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(n), at.Child(name))...)
	}
	count("active", s.Active)
	count("succeeded", s.Succeeded)
	count("failed", s.Failed)
	if s.Ready != nil {
		count("ready", *s.Ready)
		if *s.Ready > s.Active {
			errs = append(errs, field.Invalid(at.Child("ready"), *s.Ready, "cannot set more ready pods than active"))
		}
	}
	if s.Terminating != nil {
		count("terminating", *s.Terminating)
	}
	complete, failed := condition(j, batchv1.JobComplete) != nil, condition(j, batchv1.JobFailed) != nil
	conditions := at.Child("conditions")
	if complete && failed {
		errs = append(errs, field.Invalid(conditions, field.OmitValueType{}, "cannot set Complete=True and Failed=true conditions"))
	}
	if complete || failed {
		if s.Active > 0 {
			errs = append(errs, field.Invalid(at.Child("active"), s.Active, "active>0 is invalid for finished job"))
		}
		if s.StartTime == nil {
			errs = append(errs, field.Required(at.Child("startTime"), "startTime is required for finished job"))
		}
		if u := s.UncountedTerminatedPods; u != nil && len(u.Failed)+len(u.Succeeded) > 0 {
			errs = append(errs, field.Invalid(at.Child("uncountedTerminatedPods"), *u, "uncountedTerminatedPods needs to be empty for finished job"))
		}
	}
	switch {
	case complete && s.CompletionTime == nil:
		errs = append(errs, field.Required(at.Child("completionTime"), "completionTime is required for Complete jobs"))
	case !complete && s.CompletionTime != nil:
		errs = append(errs, field.Invalid(at.Child("completionTime"), s.CompletionTime, "cannot set completionTime when there is no Complete=True condition"))
	case s.CompletionTime != nil && s.StartTime != nil && s.CompletionTime.Before(s.StartTime):
		errs = append(errs, field.Invalid(at.Child("completionTime"), s.CompletionTime, "completionTime cannot be set before startTime"))
	}
	if old == nil {
		return errs
	}
	for _, t := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet} {
		if condition(old, t) != nil && condition(j, t) == nil {
			errs = append(errs, field.Invalid(conditions, field.OmitValueType{}, "cannot disable "+string(t)+"=True condition"))
		}
	}
	return errs
}
