package batch

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // zones are known on machines without a database of them, too

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/declared"
	"github.com/sampan-io/sampan/catalog/podspec"
	"github.com/sampan-io/sampan/catalog/workload"
)

const (
	// longestCronName leaves room for the time that is added to make the name of a job.
	longestCronName = validation.DNS1035LabelMaxLength - 11

	defaultSucceededJobs = int32(3)
	defaultFailedJobs    = int32(1)
)

// zonePart matches a part of the name of a time zone.
var zonePart = regexp.MustCompile(`^[A-Za-z._0-9+-]{1,14}$`)

func cronJobs() *catalog.Kind {
	spec, status := batchv1.CronJobSpec{}.SwaggerDoc(), batchv1.CronJobStatus{}.SwaggerDoc()
	template := field.NewPath("spec", "jobTemplate", "spec")
	return &catalog.Kind{
		GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("CronJob"),
		Resource:         "cronjobs",
		Singular:         "cronjob",
		ShortNames:       []string{"cj"},
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() catalog.Object { return &batchv1.CronJob{} },
		NewList:          func() runtime.Object { return &batchv1.CronJobList{} },
		Default:          catalog.Default(defaultCronJob),
		Prepare: catalog.Prepare(func(c, old *batchv1.CronJob) {
			c.Spec.JobTemplate.Spec.Scheduling = nil // behind a closed gate in v1.37
			podspec.DropClosed(&c.Spec.JobTemplate.Spec.Template.Spec)
			c.Status = batchv1.CronJobStatus{}
			if old != nil {
				c.Status = old.Status
			}
		}),
		Validate: declared.With(catalog.Validate(validateCronJob), ""),
		Warn: catalog.WarnChange(func(c, old *batchv1.CronJob) []string {
			var warnings []string
			if old == nil {
				warnings = podspec.NameWarnings(c.Name, podspec.InHostnames)
			}
			warnings = append(warnings, specWarnings("CronJob", c.Name, &c.Spec.JobTemplate.Spec, template)...)
			if old != nil && strings.Contains(c.Spec.Schedule, "TZ") {
				warnings = append(warnings, "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
			}
			return warnings
		}),
		Generation: true,
		Columns: []catalog.Column{
			catalog.Text("Schedule", spec["schedule"], func(c *batchv1.CronJob) string { return c.Spec.Schedule }),
			catalog.Text("Timezone", spec["timeZone"], func(c *batchv1.CronJob) string {
				if c.Spec.TimeZone == nil {
					return catalog.None
				}
				return *c.Spec.TimeZone
			}),
			catalog.Text("Suspend", spec["suspend"], func(c *batchv1.CronJob) string {
				switch s := c.Spec.Suspend; {
				case s == nil:
					return catalog.Unset
				case *s:
					return "True"
				}
				return "False"
			}).Declared("boolean", ""),
			catalog.Number("Active", status["active"], func(c *batchv1.CronJob) int64 { return int64(len(c.Status.Active)) }),
			catalog.Timed("Last Schedule", status["lastScheduleTime"], func(c *batchv1.CronJob, now time.Time) string {
				if c.Status.LastScheduleTime == nil {
					return catalog.None
				}
				return catalog.Since(c.Status.LastScheduleTime.Time, now)
			}),
			catalog.Age(),
			catalog.Text("Containers", "Names of each container in the template.", func(c *batchv1.CronJob) string {
				names, _ := podspec.Containers(&c.Spec.JobTemplate.Spec.Template)
				return names
			}).Wide(),
			catalog.Text("Images", "Images referenced by each container in the template.", func(c *batchv1.CronJob) string {
				_, images := podspec.Containers(&c.Spec.JobTemplate.Spec.Template)
				return images
			}).Wide(),
			catalog.Text("Selector", batchv1.JobSpec{}.SwaggerDoc()["selector"], func(c *batchv1.CronJob) string {
				return metav1.FormatLabelSelector(c.Spec.JobTemplate.Spec.Selector)
			}).Wide(),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: []string{"get", "patch", "update"},
			Shape: catalog.Part{Prepare: catalog.Prepare(func(c, old *batchv1.CronJob) { c.Spec = old.Spec })},
		}},
	}
}

// defaultCronJob leaves the template alone but for its pods: the rest is defaulted in its jobs.
func defaultCronJob(c *batchv1.CronJob) {
	s := &c.Spec
	podspec.Default(&s.JobTemplate.Spec.Template.Spec)
	defaultFailurePolicy(s.JobTemplate.Spec.PodFailurePolicy)
	if s.ConcurrencyPolicy == "" {
		s.ConcurrencyPolicy = batchv1.AllowConcurrent
	}
	if s.Suspend == nil {
		s.Suspend = new(false)
	}
	if s.SuccessfulJobsHistoryLimit == nil {
		s.SuccessfulJobsHistoryLimit = new(defaultSucceededJobs)
	}
	if s.FailedJobsHistoryLimit == nil {
		s.FailedJobsHistoryLimit = new(defaultFailedJobs)
	}
}

func validateCronJob(c, old *batchv1.CronJob) field.ErrorList {
	at, s := field.NewPath("spec"), &c.Spec
	errs := validateSchedule(c, old, at.Child("schedule"))
	if old == nil && len(c.Name) > longestCronName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, fmt.Sprintf("must be no more than %d characters", longestCronName)))
	}
	if z := s.TimeZone; z != nil && (old == nil || old.Spec.TimeZone == nil || *old.Spec.TimeZone != *z) {
		errs = append(errs, validateZone(*z, at.Child("timeZone"))...)
	}
	policies := []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}
	switch p := s.ConcurrencyPolicy; {
	case p == "":
		errs = append(errs, field.Required(at.Child("concurrencyPolicy"), ""))
	case !slices.Contains(policies, p):
		errs = append(errs, field.NotSupported(at.Child("concurrencyPolicy"), p, policies))
	}
	counts := workload.Counts{At: at}
	if d := s.StartingDeadlineSeconds; d != nil {
		counts.Number("startingDeadlineSeconds", *d)
	}
	counts.Maybe("successfulJobsHistoryLimit", s.SuccessfulJobsHistoryLimit)
	counts.Maybe("failedJobsHistoryLimit", s.FailedJobsHistoryLimit)
	errs = append(errs, counts.Errs...)

	job, at := &s.JobTemplate.Spec, at.Child("jobTemplate", "spec")
	var was *corev1.PodTemplateSpec
	if old != nil {
		was = &old.Spec.JobTemplate.Spec.Template
	}
	errs = append(errs, validateSpec(job, was, at)...)
	if job.Selector != nil {
		errs = append(errs, field.Invalid(at.Child("selector"), job.Selector, "`selector` will be auto-generated"))
	}
	if m := job.ManualSelector; m != nil && *m {
		errs = append(errs, field.NotSupported(at.Child("manualSelector"), m, []string{"nil", "false"}))
	}
	return errs
}

// validateSchedule checks when jobs are made. A time zone in the schedule stays allowed where it
// is stored already.
func validateSchedule(c, old *batchv1.CronJob, at *field.Path) (errs field.ErrorList) {
	schedule := c.Spec.Schedule
	if schedule == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	if err := parseSchedule(schedule); err != nil {
		errs = append(errs, field.Invalid(at, schedule, err.Error()))
	}
	const zone = "TZ"
	loose := old != nil && strings.Contains(old.Spec.Schedule, zone)
	switch {
	case !strings.Contains(schedule, zone):
	case !loose:
		errs = append(errs, field.Invalid(at, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"))
	case c.Spec.TimeZone != nil:
		errs = append(errs, field.Invalid(at, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule"))
	}
	return errs
}

// parseSchedule returns the fault of a schedule. The parser panics on a few.
func parseSchedule(schedule string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("invalid schedule format: %v", r)
		}
	}()
	_, err = cron.ParseStandard(schedule)
	return err
}

func validateZone(zone string, at *field.Path) (errs field.ErrorList) {
	if zone == "" {
		return field.ErrorList{field.Invalid(at, zone, "timeZone must be nil or non-empty string")}
	}
	for part := range strings.SplitSeq(zone, "/") {
		if part == "." || part == ".." || strings.HasPrefix(part, "-") || !zonePart.MatchString(part) {
			return field.ErrorList{field.Invalid(at, zone, "unknown time zone "+zone)}
		}
	}
	if strings.EqualFold(zone, "Local") {
		errs = append(errs, field.Invalid(at, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"))
	}
	if _, err := time.LoadLocation(zone); err != nil {
		errs = append(errs, field.Invalid(at, zone, err.Error()))
	}
	return errs
}
