package batch

import (
	"fmt"
	"maps"
	"math"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/catalog/podspec"
)

// Labels of a job's pods as they were before labels had domains.
const (
	oldControllerLabel = "controller-uid"
	oldNameLabel       = "job-name"
)

const defaultBackoffLimit = 6

// Kinds returns the kinds of batch.
func Kinds() []*catalog.Kind { return []*catalog.Kind{cronJobs(), jobs()} }

func jobs() *catalog.Kind {
	return &catalog.Kind{
		GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("Job"),
		Resource:         "jobs",
		Singular:         "job",
		Categories:       []string{"all"},
		Namespaced:       true,
		New:              func() catalog.Object { return &batchv1.Job{} },
		NewList:          func() runtime.Object { return &batchv1.JobList{} },
		Default:          catalog.Default(defaultJob),
		Prepare:          catalog.Prepare(prepareJob),
		Validate:         catalog.Validate(validateJob),
		Warn:             catalog.WarnChange(warnOfJob),
		Generation:       true,
		// In v1 the pods of a job have always stayed unless the request says
		// otherwise.
		Lifecycle: catalog.Lifecycle{DefaultPropagation: metav1.DeletePropagationOrphan},
		Columns:   columns(),
		Fields: map[string]func(catalog.Object) string{
			"status.successful": catalog.Value(func(j *batchv1.Job) string { return fmt.Sprint(j.Status.Succeeded) }),
		},
		Subresources: []catalog.Subresource{{
			Name:  "status",
			Verbs: []string{"get", "patch", "update"},
			Shape: catalog.Part{
				Prepare: catalog.Prepare(func(j, old *batchv1.Job) {
					j.Spec = old.Spec
				}),
				Validate: catalog.Validate(validateJobStatus),
			},
		}},
	}
}

func columns() []catalog.Column {
	return []catalog.Column{
		catalog.Text("Status", "Status of the job.", status),
		catalog.Text("Completions", batchv1.JobStatus{}.SwaggerDoc()["succeeded"], completions),
		catalog.Timed("Duration", "Time required to complete the job.", elapsed),
		catalog.Age(),
		catalog.Text("Containers", "Names of each container in the template.", func(j *batchv1.Job) string {
			names, _ := podspec.Containers(&j.Spec.Template)
			return names
		}).Wide(),
		catalog.Text("Images", "Images referenced by each container in the template.", func(j *batchv1.Job) string {
			_, images := podspec.Containers(&j.Spec.Template)
			return images
		}).Wide(),
		catalog.Text("Selector", batchv1.JobSpec{}.SwaggerDoc()["selector"], func(j *batchv1.Job) string {
			return metav1.FormatLabelSelector(j.Spec.Selector)
		}).Wide(),
	}
}

func condition(j *batchv1.Job, t batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range j.Status.Conditions {
		if c := &j.Status.Conditions[i]; c.Type == t && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

func status(j *batchv1.Job) string {
	if c := condition(j, batchv1.JobComplete); c != nil {
		return string(c.Type)
	}
	if c := condition(j, batchv1.JobFailed); c != nil {
		return string(c.Type)
	}
	if j.DeletionTimestamp != nil {
		return "Terminating"
	}
	for _, t := range []batchv1.JobConditionType{batchv1.JobSuspended, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet} {
		if condition(j, t) != nil {
			return string(t)
		}
	}
	return "Running"
}

func completions(j *batchv1.Job) string {
	switch parallel := j.Spec.Parallelism; {
	case j.Spec.Completions != nil:
		return fmt.Sprintf("%d/%d", j.Status.Succeeded, *j.Spec.Completions)
	case parallel != nil && *parallel > 1:
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, *parallel)
	}
	return fmt.Sprintf("%d/1", j.Status.Succeeded)
}

// elapsed says how long a job took or, while it is not complete, takes. That of
// a failed job goes on, as with Kubernetes.
func elapsed(j *batchv1.Job, now time.Time) string {
	if j.Status.StartTime == nil {
		return ""
	}
	end := now
	if j.Status.CompletionTime != nil {
		end = j.Status.CompletionTime.Time
	}
	return duration.HumanDuration(end.Sub(j.Status.StartTime.Time))
}

func defaultJob(j *batchv1.Job) {
	s := &j.Spec
	podspec.Default(&s.Template.Spec)
	// A work queue says how many at once and leaves open how many have to end.
	if s.Completions == nil && s.Parallelism == nil {
		s.Completions = new(int32(1))
	}
	if s.Parallelism == nil {
		s.Parallelism = new(int32(1))
	}
	if s.BackoffLimit == nil {
		limit := int32(defaultBackoffLimit)
		if s.BackoffLimitPerIndex != nil {
			limit = math.MaxInt32
		}
		s.BackoffLimit = &limit
	}
	if len(j.Labels) == 0 {
		j.Labels = s.Template.Labels // the same map: generateSelector adds to both, as upstream
	}
	if s.CompletionMode == nil {
		s.CompletionMode = new(batchv1.NonIndexedCompletion)
	}
	if s.Suspend == nil {
		s.Suspend = new(false)
	}
	if s.ManualSelector == nil {
		s.ManualSelector = new(false)
	}
	defaultFailurePolicy(s.PodFailurePolicy)
	if s.PodReplacementPolicy == nil {
		policy := batchv1.TerminatingOrFailed
		if s.PodFailurePolicy != nil {
			policy = batchv1.Failed
		}
		s.PodReplacementPolicy = &policy
	}
}

func defaultFailurePolicy(p *batchv1.PodFailurePolicy) {
	if p == nil {
		return
	}
	for i := range p.Rules {
		for k := range p.Rules[i].OnPodConditions {
			if c := &p.Rules[i].OnPodConditions[k]; c.Status == "" {
				c.Status = corev1.ConditionTrue
			}
		}
	}
}

func prepareJob(j, old *batchv1.Job) {
	j.Spec.Scheduling = nil // behind a closed gate in v1.37
	podspec.DropClosed(&j.Spec.Template.Spec)
	if old != nil {
		j.Status = old.Status
		return
	}
	j.Status = batchv1.JobStatus{}
	if j.Spec.ManualSelector == nil || !*j.Spec.ManualSelector {
		bare := len(j.Labels) == 0
		generateSelector(j)
		if bare {
			j.Labels = maps.Clone(j.Spec.Template.Labels)
		}
	}
}

// generateSelector gives the pods of a job labels that no other job's pods have,
// and the job a selector of them. Labels and selectors that are there already
// stay; validation reports their faults.
func generateSelector(j *batchv1.Job) {
	t := &j.Spec.Template
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	for key, value := range generatedLabels(j) {
		if _, ok := t.Labels[key]; !ok {
			t.Labels[key] = value
		}
	}
	if j.Spec.Selector == nil {
		j.Spec.Selector = &metav1.LabelSelector{}
	}
	if j.Spec.Selector.MatchLabels == nil {
		j.Spec.Selector.MatchLabels = map[string]string{}
	}
	if _, ok := j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel]; !ok {
		j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(j.UID)
	}
}

func generatedLabels(j *batchv1.Job) map[string]string {
	return map[string]string{
		oldControllerLabel:         string(j.UID),
		oldNameLabel:               j.Name,
		batchv1.ControllerUidLabel: string(j.UID),
		batchv1.JobNameLabel:       j.Name,
	}
}
