package workload

import (
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// A failureMatch is the verdict of a Job's podFailurePolicy on a failed pod.
type failureMatch struct {
	action  batchv1.PodFailurePolicyAction // of the rule; empty if there is none
	message string                         // of the Job's failure, for the action FailJob
}

// counts reports whether the failure counts against the limits of the Job.
func (m failureMatch) counts() bool { return m.action != batchv1.PodFailurePolicyActionIgnore }

// matchFailure returns the verdict of the first rule that matches a failed pod.
func matchFailure(policy *batchv1.PodFailurePolicy, pod *corev1.Pod) failureMatch {
	if policy == nil {
		return failureMatch{}
	}
	for i, rule := range policy.Rules {
		var why string
		if rule.OnExitCodes != nil {
			c := failedContainer(pod, rule.OnExitCodes)
			if c == nil {
				continue
			}
			why = fmt.Sprintf("Container %s for pod %s/%s failed with exit code %v", c.Name, pod.Namespace, pod.Name, c.State.Terminated.ExitCode)
		} else {
			c := matchingCondition(pod, rule.OnPodConditions)
			if c == nil {
				continue
			}
			why = fmt.Sprintf("Pod %s/%s has condition %v", pod.Namespace, pod.Name, c.Type)
		}
		m := failureMatch{action: rule.Action}
		if rule.Action == batchv1.PodFailurePolicyActionFailJob {
			m.message = fmt.Sprintf("%s matching %v rule at index %d", why, rule.Action, i)
		}
		return m
	}
	return failureMatch{}
}

// failedContainer returns the first container that failed with an exit code that a rule names, or nil.
func failedContainer(pod *corev1.Pod, rule *batchv1.PodFailurePolicyOnExitCodesRequirement) *corev1.ContainerStatus {
	all := slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses)
	for i := range all {
		c := &all[i]
		t := c.State.Terminated
		if t == nil || t.ExitCode == 0 || rule.ContainerName != nil && *rule.ContainerName != c.Name {
			continue
		}
		listed := slices.Contains(rule.Values, t.ExitCode)
		if rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && listed || rule.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn && !listed {
			return c
		}
	}
	return nil
}

func matchingCondition(pod *corev1.Pod, patterns []batchv1.PodFailurePolicyOnPodConditionsPattern) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		for _, pattern := range patterns {
			if c.Type == pattern.Type && c.Status == pattern.Status {
				return c
			}
		}
	}
	return nil
}

// matchSuccess returns the index of the first rule of a successPolicy that the completed indexes fulfill, or -1.
func matchSuccess(policy *batchv1.SuccessPolicy, completions int, done intervals) int {
	if policy == nil || len(done) == 0 {
		return -1
	}
	for i, rule := range policy.Rules {
		if rule.SucceededIndexes == nil {
			if rule.SucceededCount != nil && done.len() >= int(*rule.SucceededCount) {
				return i
			}
			continue
		}
		wanted, have := 0, 0
		for _, r := range parseIntervals(*rule.SucceededIndexes) {
			for n := r[0]; n <= min(r[1], completions-1); n++ {
				wanted++
				if done.has(n) {
					have++
				}
			}
		}
		if wanted > 0 && (have == wanted || rule.SucceededCount != nil && have >= int(*rule.SucceededCount)) {
			return i
		}
	}
	return -1
}

// limitedPerIndex reports whether each index of a Job has its own limit of failures.
func limitedPerIndex(job *batchv1.Job) bool { return job.Spec.BackoffLimitPerIndex != nil }

// failuresOf returns how many pods of the index of a pod failed before it: failures that count, and failures that the
// podFailurePolicy ignores.
func failuresOf(pod *corev1.Pod) (counted, ignored int) {
	return number(pod, batchv1.JobIndexFailureCountAnnotation), number(pod, batchv1.JobIndexIgnoredFailureCountAnnotation)
}

// number returns the value of an annotation, or 0 if it is no count.
func number(pod *corev1.Pod, annotation string) int {
	n, err := strconv.ParseInt(pod.Annotations[annotation], 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int(n)
}

// failures returns the numbers of failures of an index after the failure of one of its pods; nil means none.
func failures(job *batchv1.Job, failed *corev1.Pod) (counted, ignored int) {
	if failed == nil {
		return 0, 0
	}
	counted, ignored = failuresOf(failed)
	if matchFailure(job.Spec.PodFailurePolicy, failed).counts() {
		return counted + 1, ignored
	}
	return counted, ignored + 1
}

// failsIndex reports whether the failure of a pod is the end of its index.
func failsIndex(job *batchv1.Job, failed *corev1.Pod) bool {
	m := matchFailure(job.Spec.PodFailurePolicy, failed)
	before, _ := failuresOf(failed)
	return m.action == batchv1.PodFailurePolicyActionFailIndex || m.counts() && before >= int(*job.Spec.BackoffLimitPerIndex)
}
