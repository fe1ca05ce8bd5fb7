package batch

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sampan-io/sampan/catalog/podspec"
)

// Limits of a job.
const (
	maxFailedIndexes = 100_000
	// Above these completions, backoffLimitPerIndex needs the two limits below.
	manyCompletions       = 100_000
	parallelismOfMany     = 10_000
	failedIndexesOfMany   = 10_000
	maxIndexedParallelism = 100_000
	maxManagedBy          = 63
	maxFailureRules       = 20
	maxExitCodes          = 255
	maxPodConditions      = 20
)

func validateJob(j, old *batchv1.Job) field.ErrorList {
	spec := field.NewPath("spec")
	var was *corev1.PodTemplateSpec
	if old != nil {
		was = &old.Spec.Template
	}
	errs := append(validateSelector(j, old == nil, spec), validateSpec(&j.Spec, was, spec)...)
	// The names of the pods are host names, which are short.
	if s := &j.Spec; indexed(s) && s.Completions != nil && *s.Completions > 0 {
		longest := fmt.Sprintf("%s-%d", j.Name, *s.Completions-1)
		for _, msg := range validation.IsDNS1123Label(longest) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), j.Name, fmt.Sprintf("will not able to create pod with invalid DNS label: %s: %s", longest, msg)))
		}
	}
	if old != nil {
		errs = append(errs, validateJobUpdate(j, old, spec)...)
	}
	return errs
}

// validateSpec checks the spec of a job, of a template as well, except its selector. On an update old is the template
// of pods that is replaced, else nil.
func validateSpec(s *batchv1.JobSpec, old *corev1.PodTemplateSpec, spec *field.Path) field.ErrorList {
	errs := validateNumbers(s, spec)
	errs = append(errs, validateCompletionMode(s, spec)...)
	errs = append(errs, validateFailurePolicy(s, spec)...)
	errs = append(errs, validateReplacement(s, spec)...)
	errs = append(errs, podspec.ValidateTemplate(&s.Template, old, spec.Child("template"))...)

	restart, at := s.Template.Spec.RestartPolicy, spec.Child("template", "spec", "restartPolicy")
	switch restart {
	case corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever:
	case corev1.RestartPolicyAlways:
		// This is the default for pods, so it was probably left out.
		errs = append(errs, field.Required(at, fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)))
	default:
		errs = append(errs, field.NotSupported(at, restart, []corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}))
	}
	return errs
}

// indexed reports whether the pods of a job have an index each.
func indexed(s *batchv1.JobSpec) bool {
	return s.CompletionMode != nil && *s.CompletionMode == batchv1.IndexedCompletion
}

// validateSelector returns the faults of the selector. Only a new job has to have the labels that are generated, as upstream.
func validateSelector(j *batchv1.Job, isNew bool, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	at, meta := spec.Child("selector"), spec.Child("template", "metadata")
	if j.Spec.Selector == nil {
		return append(errs, field.Required(at, ""))
	}
	errs = append(errs, metav1validation.ValidateLabelSelector(j.Spec.Selector, metav1validation.LabelSelectorValidationOptions{}, at)...)
	selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector)
	if err != nil {
		return errs // said above
	}
	if !selector.Matches(labels.Set(j.Spec.Template.Labels)) {
		errs = append(errs, field.Invalid(meta.Child("labels"), j.Spec.Template.Labels, "`selector` does not match template `labels`"))
	}
	if !isNew || j.Spec.ManualSelector != nil && *j.Spec.ManualSelector {
		return errs
	}
	if j.UID == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "uid"), ""))
	}
	want := generatedLabels(j)
	for _, key := range slices.Sorted(maps.Keys(want)) {
		at := meta.Child("labels").Key(key)
		switch value, ok := j.Spec.Template.Labels[key]; {
		case !ok:
			errs = append(errs, field.Required(at, fmt.Sprintf("must be '%s'", want[key])))
		case value != want[key]:
			errs = append(errs, field.Invalid(at, value, fmt.Sprintf("must be '%s'", want[key])))
		}
	}
	if !selector.Matches(labels.Set(want)) {
		errs = append(errs, field.Invalid(at, j.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

func validateNumbers(s *batchv1.JobSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, n := range []struct {
		name  string
		value *int32
	}{
		{"parallelism", s.Parallelism},
		{"completions", s.Completions},
		{"backoffLimit", s.BackoffLimit},
		{"ttlSecondsAfterFinished", s.TTLSecondsAfterFinished},
		{"backoffLimitPerIndex", s.BackoffLimitPerIndex},
		{"maxFailedIndexes", s.MaxFailedIndexes},
	} {
		if n.value != nil {
			errs = append(errs, apivalidation.ValidateNonnegativeField(int64(*n.value), spec.Child(n.name))...)
		}
	}
	if s.ActiveDeadlineSeconds != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(*s.ActiveDeadlineSeconds, spec.Child("activeDeadlineSeconds"))...)
	}
	if s.ManagedBy != nil {
		at := spec.Child("managedBy")
		errs = append(errs, validation.IsDomainPrefixedPath(at, *s.ManagedBy)...)
		if len(*s.ManagedBy) > maxManagedBy {
			errs = append(errs, field.TooLong(at, *s.ManagedBy, maxManagedBy))
		}
	}
	return errs
}

// validateManyIndexes limits the length of the lists of indexes in the status.
func validateManyIndexes(s *batchv1.JobSpec, spec *field.Path) (errs field.ErrorList) {
	failed := spec.Child("maxFailedIndexes")
	if s.MaxFailedIndexes != nil && *s.MaxFailedIndexes > maxFailedIndexes {
		errs = append(errs, field.Invalid(failed, *s.MaxFailedIndexes, fmt.Sprintf("must be less than or equal to %d", maxFailedIndexes)))
	}
	if s.Completions == nil || *s.Completions <= manyCompletions || s.BackoffLimitPerIndex == nil {
		return errs
	}
	const tooMany = "must be less than or equal to %d when completions are above %d and used with backoff limit per index"
	if s.MaxFailedIndexes == nil {
		errs = append(errs, field.Required(failed, fmt.Sprintf("must be specified when completions is above %d", manyCompletions)))
	}
	if s.Parallelism != nil && *s.Parallelism > parallelismOfMany {
		errs = append(errs, field.Invalid(spec.Child("parallelism"), *s.Parallelism, fmt.Sprintf(tooMany, parallelismOfMany, manyCompletions)))
	}
	if s.MaxFailedIndexes != nil && *s.MaxFailedIndexes > failedIndexesOfMany {
		errs = append(errs, field.Invalid(failed, *s.MaxFailedIndexes, fmt.Sprintf(tooMany, failedIndexesOfMany, manyCompletions)))
	}
	return errs
}

func validateCompletionMode(s *batchv1.JobSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	indexed := indexed(s)
	if m := s.CompletionMode; m != nil && !indexed && *m != batchv1.NonIndexedCompletion {
		errs = append(errs, field.NotSupported(spec.Child("completionMode"), *m, []batchv1.CompletionMode{batchv1.IndexedCompletion, batchv1.NonIndexedCompletion}))
	}
	if !indexed {
		if s.BackoffLimitPerIndex != nil {
			errs = append(errs, field.Invalid(spec.Child("backoffLimitPerIndex"), *s.BackoffLimitPerIndex, "requires indexed completion mode"))
		}
		if s.SuccessPolicy != nil {
			errs = append(errs, field.Invalid(spec.Child("successPolicy"), *s.SuccessPolicy, "requires indexed completion mode"))
		}
	}
	if s.MaxFailedIndexes != nil && s.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Required(spec.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
	}
	if !indexed {
		return errs
	}
	if s.Completions == nil {
		errs = append(errs, field.Required(spec.Child("completions"), fmt.Sprintf("when completion mode is %s", batchv1.IndexedCompletion)))
	}
	if s.Parallelism != nil && *s.Parallelism > maxIndexedParallelism {
		errs = append(errs, field.Invalid(spec.Child("parallelism"), *s.Parallelism,
			fmt.Sprintf("must be less than or equal to %d when completion mode is %s", maxIndexedParallelism, batchv1.IndexedCompletion)))
	}
	if s.Completions != nil && s.MaxFailedIndexes != nil && *s.MaxFailedIndexes > *s.Completions {
		errs = append(errs, field.Invalid(spec.Child("maxFailedIndexes"), *s.MaxFailedIndexes, "must be less than or equal to completions"))
	}
	errs = append(errs, validateManyIndexes(s, spec)...)
	if s.SuccessPolicy != nil {
		errs = append(errs, validateSuccessPolicy(s, spec.Child("successPolicy", "rules"))...)
	}
	return errs
}

func validateSuccessPolicy(s *batchv1.JobSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	rules := s.SuccessPolicy.Rules
	if len(rules) == 0 {
		return append(errs, field.Required(at, "at least one rules must be specified when the successPolicy is specified"))
	}
	if len(rules) > maxFailureRules {
		errs = append(errs, field.TooMany(at, len(rules), maxFailureRules))
	}
	for i, r := range rules {
		at := at.Index(i)
		if r.SucceededCount == nil && r.SucceededIndexes == nil {
			errs = append(errs, field.Required(at, "at least one of succeededCount or succeededIndexes must be specified"))
		}
		total := -1
		if r.SucceededIndexes != nil && s.Completions != nil {
			n, err := countIndexes(*r.SucceededIndexes, int(*s.Completions))
			if err != nil {
				errs = append(errs, field.Invalid(at.Child("succeededIndexes"), *r.SucceededIndexes, "error parsing succeededIndexes: "+err.Error()))
			} else {
				total = n
			}
		}
		if r.SucceededCount == nil {
			continue
		}
		count := *r.SucceededCount
		errs = append(errs, apivalidation.ValidateNonnegativeField(int64(count), at.Child("succeededCount"))...)
		if s.Completions != nil && count > *s.Completions {
			errs = append(errs, field.Invalid(at.Child("succeededCount"), count, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", *s.Completions)))
		}
		if total >= 0 && int(count) > total {
			errs = append(errs, field.Invalid(at.Child("succeededCount"), count, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", total)))
		}
	}
	return errs
}

// countIndexes counts the indexes of a list like "1,3-5", which rises and stays
// below limit.
func countIndexes(list string, limit int) (int, error) {
	if list == "" {
		return 0, nil
	}
	n, last := 0, -1
	for part := range strings.SplitSeq(list, ",") {
		i, err := parseInterval(part, limit)
		if err != nil {
			return 0, err
		}
		if n > 0 && last >= i.first {
			return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", last, i.first)
		}
		n += i.last - i.first + 1
		last = i.last
	}
	return n, nil
}

// An interval is a part of a list of indexes: "3" or "3-5".
type interval struct{ first, last int }

func parseInterval(part string, limit int) (interval, error) {
	lo, hi, ranged := strings.Cut(part, "-")
	if strings.Contains(hi, "-") {
		return interval{}, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", part)
	}
	first, err := parseIndex(lo, limit)
	if err != nil || !ranged {
		return interval{first, first}, err
	}
	last, err := parseIndex(hi, limit)
	if err == nil && first >= last {
		err = fmt.Errorf("non-increasing order, previous: %d, current: %d", first, last)
	}
	return interval{first, last}, err
}

func parseIndex(text string, limit int) (int, error) {
	i, err := strconv.Atoi(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("cannot convert string to integer for index: %q", text)
	case i >= limit:
		return 0, fmt.Errorf("too large index: %q", text)
	}
	return i, nil
}

func validateFailurePolicy(s *batchv1.JobSpec, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.PodFailurePolicy == nil {
		return nil
	}
	if r := s.Template.Spec.RestartPolicy; r == corev1.RestartPolicyOnFailure {
		errs = append(errs, field.Invalid(spec.Child("template", "spec", "restartPolicy"), r,
			fmt.Sprintf("only %q is supported when podFailurePolicy is specified", corev1.RestartPolicyNever)))
	}
	at, rules := spec.Child("podFailurePolicy", "rules"), s.PodFailurePolicy.Rules
	if len(rules) > maxFailureRules {
		errs = append(errs, field.TooMany(at, len(rules), maxFailureRules))
	}
	containers := map[string]bool{}
	for _, c := range slices.Concat(s.Template.Spec.Containers, s.Template.Spec.InitContainers) {
		containers[c.Name] = true
	}
	for i := range rules {
		errs = append(errs, validateFailureRule(&rules[i], s, containers, at.Index(i))...)
	}
	return errs
}

func validateFailureRule(r *batchv1.PodFailurePolicyRule, s *batchv1.JobSpec, containers map[string]bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	actions := []batchv1.PodFailurePolicyAction{batchv1.PodFailurePolicyActionCount, batchv1.PodFailurePolicyActionFailIndex, batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionIgnore}
	switch {
	case r.Action == "":
		errs = append(errs, field.Required(at.Child("action"), fmt.Sprintf("valid values: %q", actions)))
	case !slices.Contains(actions, r.Action):
		errs = append(errs, field.NotSupported(at.Child("action"), r.Action, actions))
	case r.Action == batchv1.PodFailurePolicyActionFailIndex && s.BackoffLimitPerIndex == nil:
		errs = append(errs, field.Invalid(at.Child("action"), r.Action, "requires the backoffLimitPerIndex to be set"))
	}
	if codes, at := r.OnExitCodes, at.Child("onExitCodes"); codes != nil {
		switch operators := []batchv1.PodFailurePolicyOnExitCodesOperator{batchv1.PodFailurePolicyOnExitCodesOpIn, batchv1.PodFailurePolicyOnExitCodesOpNotIn}; {
		case codes.Operator == "":
			errs = append(errs, field.Required(at.Child("operator"), fmt.Sprintf("valid values: %q", operators)))
		case !slices.Contains(operators, codes.Operator):
			errs = append(errs, field.NotSupported(at.Child("operator"), codes.Operator, operators))
		}
		if codes.ContainerName != nil && !containers[*codes.ContainerName] {
			errs = append(errs, field.Invalid(at.Child("containerName"), *codes.ContainerName, "must be one of the container or initContainer names in the pod template"))
		}
		if n := len(codes.Values); n == 0 {
			errs = append(errs, field.Invalid(at.Child("values"), codes.Values, "at least one value is required"))
		} else if n > maxExitCodes {
			errs = append(errs, field.TooMany(at.Child("values"), n, maxExitCodes))
		}
		ordered := true
		for i, v := range codes.Values {
			at := at.Child("values").Index(i)
			switch {
			case codes.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && v == 0:
				errs = append(errs, field.Invalid(at, v, "must not be 0 for the In operator"))
			case i > 0 && v == codes.Values[i-1]:
				errs = append(errs, field.Duplicate(at, v))
			case i > 0 && v < codes.Values[i-1]:
				ordered = false
			}
		}
		if !ordered {
			errs = append(errs, field.Invalid(at.Child("values"), codes.Values, "must be ordered"))
		}
	}
	if len(r.OnPodConditions) > maxPodConditions {
		errs = append(errs, field.TooMany(at.Child("onPodConditions"), len(r.OnPodConditions), maxPodConditions))
	}
	for i, c := range r.OnPodConditions {
		at := at.Child("onPodConditions").Index(i)
		for _, msg := range validation.IsQualifiedName(string(c.Type)) {
			errs = append(errs, field.Invalid(at.Child("type"), string(c.Type), msg))
		}
		if c.Status != corev1.ConditionTrue && c.Status != corev1.ConditionFalse && c.Status != corev1.ConditionUnknown {
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status, []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown}))
		}
	}
	switch {
	case r.OnExitCodes != nil && len(r.OnPodConditions) > 0:
		errs = append(errs, field.Invalid(at, field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported"))
	case r.OnExitCodes == nil && len(r.OnPodConditions) == 0:
		errs = append(errs, field.Invalid(at, field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required"))
	}
	return errs
}

func validateReplacement(s *batchv1.JobSpec, spec *field.Path) field.ErrorList {
	p, at := s.PodReplacementPolicy, spec.Child("podReplacementPolicy")
	switch {
	case p == nil:
		return nil
	case s.PodFailurePolicy != nil && *p != batchv1.Failed:
		return field.ErrorList{field.NotSupported(at, *p, []batchv1.PodReplacementPolicy{batchv1.Failed})}
	case *p != batchv1.Failed && *p != batchv1.TerminatingOrFailed:
		return field.ErrorList{field.NotSupported(at, *p, []batchv1.PodReplacementPolicy{batchv1.Failed, batchv1.TerminatingOrFailed})}
	}
	return nil
}

// validateJobUpdate keeps a job's work the same. Where it does it may change
// as long as it has not begun; how many pods take part may change together if
// each has an index.
func validateJobUpdate(j, old *batchv1.Job, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	s, was := &j.Spec, &old.Spec
	fixed := func(name string, now, before any) {
		errs = append(errs, apivalidation.ValidateImmutableField(now, before, spec.Child(name))...)
	}
	switch {
	case !indexed(s):
		fixed("completions", s.Completions, was.Completions)
	case s.Completions == nil || equality.Semantic.DeepEqual(s.Completions, was.Completions):
	case s.Parallelism == nil || *s.Completions != *s.Parallelism:
		errs = append(errs, field.Invalid(spec.Child("completions"), s.Completions, "can only be modified in tandem with spec.parallelism"))
	}
	fixed("selector", s.Selector, was.Selector)
	errs = append(errs, validateTemplateUpdate(&s.Template, old, spec.Child("template"))...)
	fixed("completionMode", s.CompletionMode, was.CompletionMode)
	fixed("podFailurePolicy", s.PodFailurePolicy, was.PodFailurePolicy)
	fixed("backoffLimitPerIndex", s.BackoffLimitPerIndex, was.BackoffLimitPerIndex)
	fixed("managedBy", s.ManagedBy, was.ManagedBy)
	fixed("successPolicy", s.SuccessPolicy, was.SuccessPolicy)
	return errs
}

// validateTemplateUpdate keeps the pods of a job the same. A queueing controller changes a suspended job without active
// pods, which has not begun or has the condition Suspended: where its pods run, their labels, annotations and
// scheduling gates, and the resources of their containers.
func validateTemplateUpdate(t *corev1.PodTemplateSpec, old *batchv1.Job, at *field.Path) field.ErrorList {
	was := &old.Spec.Template
	if !idle(old) {
		return apivalidation.ValidateImmutableField(t, was, at)
	}
	want := was.Spec.DeepCopy()
	want.NodeSelector = t.Spec.NodeSelector
	want.Tolerations = t.Spec.Tolerations
	want.SchedulingGates = t.Spec.SchedulingGates
	want.Affinity = withNodeAffinity(was.Spec.Affinity, t.Spec.Affinity)
	takeResources(want.Containers, t.Spec.Containers)
	takeResources(want.InitContainers, t.Spec.InitContainers)
	return apivalidation.ValidateImmutableField(&t.Spec, want, at.Child("spec"))
}

// idle reports whether a job is suspended, and none of its pods runs.
func idle(j *batchv1.Job) bool {
	suspended := j.Spec.Suspend != nil && *j.Spec.Suspend
	return suspended && (j.Status.StartTime == nil || condition(j, batchv1.JobSuspended) != nil) && j.Status.Active == 0
}

// withNodeAffinity returns was with the node affinity of now. One may be nil if the other has no other affinity.
func withNodeAffinity(was, now *corev1.Affinity) *corev1.Affinity {
	var a corev1.Affinity
	if was != nil {
		a = *was
	}
	a.NodeAffinity = nil
	if now != nil {
		a.NodeAffinity = now.NodeAffinity
	} else if a == (corev1.Affinity{}) {
		return nil
	}
	return &a
}

// takeResources gives each container the resources that now has at the same place under the same name.
func takeResources(containers, now []corev1.Container) {
	if len(containers) != len(now) {
		return
	}
	for i := range containers {
		if containers[i].Name == now[i].Name {
			containers[i].Resources = now[i].Resources
		}
	}
}

// Of indexed jobs with more completions and pods at once than these a part of the result can get lost.
const (
	trackedCompletions = 100_000
	trackedAtOnce      = 10_000
)

func warnOfJob(j, old *batchv1.Job) []string {
	var all []string
	if old == nil {
		all = podspec.NameWarnings(j.Name, podspec.InHostnames)
	}
	return append(all, specWarnings("Job", j.Name, &j.Spec, field.NewPath("spec"))...)
}

func specWarnings(kind, name string, s *batchv1.JobSpec, spec *field.Path) []string {
	var sentences []string
	if indexed(s) && s.Completions != nil && *s.Completions > trackedCompletions && s.Parallelism != nil && *s.Parallelism > trackedAtOnce {
		sentences = append(sentences, spec.String()+": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
	}
	return append(sentences, podspec.Warnings(kind, name, &s.Template.ObjectMeta, &s.Template.Spec, spec.Child("template"))...)
}
