package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sampan-io/sampan/controller/dependents"
	"github.com/sampan-io/sampan/internal/storytest"
)

// TestStories plays the stories in testdata/*.txt. A story has a job or an rc and its pods, which exist only in the test.
// Commands are
//
//	job name=value …       makes or changes the job; rc does the same for the rc
//	pod NAME STATE [k=v …] sets a pod to pending, running, ready, succeeded, failed, rejected (by its node), deleted
//	                       (being deleted) or gone
//	+DURATION              time passes
//	plan                   plans and carries out; the changes follow in lines with ">"
//
// To accept changed output run the test with -update, then review the difference.
func TestStories(t *testing.T) {
	storytest.PlayCommands(t, "testdata", func(script *storytest.Story) storytest.Commands {
		s := &story{Story: script}
		return storytest.Commands{
			"job": s.setJob,
			"rc":  s.setRC,
			"pod": func(words []string) { s.setPod(words[0], words[1], words[2:]) },
			"plan": func([]string) {
				if s.job != nil {
					s.planJob()
				} else {
					s.planRC()
				}
			},
		}
	})
}

type story struct {
	*storytest.Story
	job  *batchv1.Job
	rc   *corev1.ReplicationController
	pods []*corev1.Pod
	made int
}

func (s *story) setJob(words []string) {
	if s.job == nil {
		s.job = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job", UID: "job", CreationTimestamp: metav1.NewTime(s.Now)}}
		s.job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	spec := &s.job.Spec
	storytest.Pairs(words, func(name, value string, n int32) {
		long, is := int64(n), value == "true"
		switch name {
		case "parallelism":
			spec.Parallelism = &n
		case "completions":
			spec.Completions = &n
		case "backoffLimit":
			spec.BackoffLimit = &n
		case "activeDeadlineSeconds":
			spec.ActiveDeadlineSeconds = &long
		case "perIndex":
			spec.BackoffLimitPerIndex = &n
		case "maxFailed":
			spec.MaxFailedIndexes = &n
		case "onExit": // ACTION:CODE
			action, code, _ := strings.Cut(value, ":")
			number, _ := strconv.Atoi(code)
			if spec.PodFailurePolicy == nil {
				spec.PodFailurePolicy = &batchv1.PodFailurePolicy{}
			}
			spec.PodFailurePolicy.Rules = append(spec.PodFailurePolicy.Rules, batchv1.PodFailurePolicyRule{
				Action:      batchv1.PodFailurePolicyAction(action),
				OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{int32(number)}},
			})
		case "onCondition": // ACTION:TYPE
			action, kind, _ := strings.Cut(value, ":")
			if spec.PodFailurePolicy == nil {
				spec.PodFailurePolicy = &batchv1.PodFailurePolicy{}
			}
			spec.PodFailurePolicy.Rules = append(spec.PodFailurePolicy.Rules, batchv1.PodFailurePolicyRule{
				Action:          batchv1.PodFailurePolicyAction(action),
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.PodConditionType(kind), Status: corev1.ConditionTrue}},
			})
		case "succeeds": // INDEXES or INDEXES:COUNT
			indexes, count, counted := strings.Cut(value, ":")
			rule := batchv1.SuccessPolicyRule{}
			if indexes != "" {
				rule.SucceededIndexes = &indexes
			}
			if counted {
				number, _ := strconv.Atoi(count)
				rule.SucceededCount = new(int32(number))
			}
			if spec.SuccessPolicy == nil {
				spec.SuccessPolicy = &batchv1.SuccessPolicy{}
			}
			spec.SuccessPolicy.Rules = append(spec.SuccessPolicy.Rules, rule)
		case "ttl":
			spec.TTLSecondsAfterFinished = &n
		case "suspend":
			spec.Suspend = &is
		case "mode":
			mode := batchv1.CompletionMode(value)
			spec.CompletionMode = &mode
		case "replace":
			policy := batchv1.PodReplacementPolicy(value)
			spec.PodReplacementPolicy = &policy
		case "restart":
			spec.Template.Spec.RestartPolicy = corev1.RestartPolicy(value)
		case "deleted":
			s.job.DeletionTimestamp = &metav1.Time{Time: s.Now}
		default:
			s.T.Fatalf("unknown field %q of a job", name)
		}
	})
}

func (s *story) setRC(words []string) {
	if s.rc == nil {
		labels := map[string]string{"app": "rc"}
		s.rc = &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "rc", UID: "rc"}}
		s.rc.Spec.Selector = labels
		s.rc.Spec.Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	}
	s.rc.Generation++
	storytest.Pairs(words, func(name, _ string, n int32) {
		switch name {
		case "replicas":
			s.rc.Spec.Replicas = &n
		case "minReadySeconds":
			s.rc.Spec.MinReadySeconds = n
		case "deleted":
			s.rc.DeletionTimestamp = &metav1.Time{Time: s.Now}
		default:
			s.T.Fatalf("unknown field %q of an rc", name)
		}
	})
}

func (s *story) setPod(name, state string, words []string) {
	i := slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return p.Name == name })
	if i < 0 {
		s.pods = append(s.pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(s.Now), Labels: map[string]string{"app": "rc"},
		}})
		i = len(s.pods) - 1
	}
	pod := s.pods[i].DeepCopy()
	s.pods[i] = pod
	at := metav1.NewTime(s.Now)
	ready := func(status corev1.ConditionStatus) {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: at}}
	}
	end := func(code int32) {
		ready(corev1.ConditionFalse)
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: at},
		}}}
	}
	if state != "gone" && state != "deleted" && state != "pending" {
		pod.Spec.NodeName = cmp.Or(pod.Spec.NodeName, "n1")
	}
	switch state {
	case "pending":
		pod.Status.Phase = corev1.PodPending
	case "running":
		pod.Status.Phase = corev1.PodRunning
		ready(corev1.ConditionFalse)
	case "ready":
		pod.Status.Phase = corev1.PodRunning
		ready(corev1.ConditionTrue)
	case "succeeded":
		pod.Status.Phase = corev1.PodSucceeded
		end(0)
	case "failed":
		pod.Status.Phase = corev1.PodFailed
		end(1)
	case "rejected":
		pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "NodePorts"
	case "deleted":
		pod.DeletionTimestamp = &at
	case "gone":
		s.pods = slices.Delete(s.pods, i, i+1)
	default:
		s.T.Fatalf("unknown state %q of a pod", state)
	}
	storytest.Pairs(words, func(name, value string, n int32) {
		switch name {
		case "node":
			pod.Spec.NodeName = value
		case "cost":
			pod.Annotations = map[string]string{corev1.PodDeletionCost: value}
		case "label":
			pod.Labels = map[string]string{"app": "rc", "extra": value}
		case "exit":
			pod.Status.ContainerStatuses[0].Name = "c"
			pod.Status.ContainerStatuses[0].State.Terminated.ExitCode = n
		case "condition":
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(value), Status: corev1.ConditionTrue})
		case "restarts":
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: n}}
		default:
			s.T.Fatalf("unknown field %q of a pod", name)
		}
	})
}

func podNames(pods []*corev1.Pod) string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Name)
	}
	return strings.Join(all, " ")
}

func (s *story) planJob() {
	plan := planJob(s.job, s.pods, s.Now)
	for _, index := range plan.create {
		pod := jobPod(s.job, index, plan.replaced[index])
		pod.Name = fmt.Sprintf("p%d", s.made)
		s.made++
		pod.UID = types.UID(pod.Name)
		pod.CreationTimestamp = metav1.NewTime(s.Now)
		pod.Status.Phase = corev1.PodPending
		s.pods = append(s.pods, pod)
		if index >= 0 {
			s.Say("create %s for index %d", pod.Name, index)
		} else {
			s.Say("create %s", pod.Name)
		}
	}
	if len(plan.create) > 0 { // as reconcile does
		plan = planJob(s.job, s.pods, s.Now)
	}
	if !equality.Semantic.DeepEqual(plan.status, s.job.Status) {
		s.Say("status %s", s.jobStatus(plan.status))
		s.job = s.job.DeepCopy()
		s.job.Status = plan.status
		for _, e := range plan.events {
			s.Say("event %s %s: %s", e.kind, e.reason, e.message)
		}
	}
	untrack := func(name string, f func(*corev1.Pod)) {
		for i, p := range s.pods {
			if p.Name == name {
				s.pods[i] = p.DeepCopy()
				s.pods[i].Finalizers = nil
				f(s.pods[i])
			}
		}
	}
	if len(plan.release) > 0 {
		s.Say("release %s", podNames(plan.release))
		for _, p := range plan.release {
			untrack(p.Name, func(*corev1.Pod) {})
		}
	}
	if len(plan.remove) > 0 {
		s.Say("remove %s", podNames(plan.remove))
		for _, p := range plan.remove {
			untrack(p.Name, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: s.Now} })
		}
	}
	if plan.after > 0 {
		s.Say("look again in %v", plan.after)
	}
	if left, limited := expiry(s.job, s.Now); limited {
		s.Say("expires in %v", left)
	}
}

func (s *story) jobStatus(st batchv1.JobStatus) string {
	words := []string{fmt.Sprintf("active=%d ready=%d", st.Active, *st.Ready)}
	if *st.Terminating > 0 {
		words = append(words, fmt.Sprintf("terminating=%d", *st.Terminating))
	}
	words = append(words, fmt.Sprintf("succeeded=%d failed=%d", st.Succeeded, st.Failed))
	if st.CompletedIndexes != "" {
		words = append(words, "indexes="+st.CompletedIndexes)
	}
	if st.FailedIndexes != nil {
		words = append(words, "failedIndexes="+*st.FailedIndexes)
	}
	if u := st.UncountedTerminatedPods; len(u.Succeeded)+len(u.Failed) > 0 {
		words = append(words, fmt.Sprintf("uncounted=%v/%v", u.Succeeded, u.Failed))
	}
	if st.StartTime != nil {
		words = append(words, "started="+st.StartTime.Sub(s.job.CreationTimestamp.Time).String())
	}
	if st.CompletionTime != nil {
		words = append(words, "completed="+st.CompletionTime.Sub(s.job.CreationTimestamp.Time).String())
	}
	for _, c := range st.Conditions {
		words = append(words, fmt.Sprintf("%s=%s(%s)", c.Type, c.Status, c.Reason))
	}
	return strings.Join(words, " ")
}

func (s *story) planRC() {
	plan := planReplicas(describeRC(s.rc), s.pods, nil, s.Now)
	for range plan.create {
		pod := dependents.PodFrom(s.rc, s.rc.Spec.Template)
		pod.Name = fmt.Sprintf("p%d", s.made)
		s.made++
		pod.UID = types.UID(pod.Name)
		pod.CreationTimestamp = metav1.NewTime(s.Now)
		pod.Status.Phase = corev1.PodPending
		s.pods = append(s.pods, pod)
		s.Say("create %s", pod.Name)
	}
	if len(plan.remove) > 0 {
		s.Say("remove %s", podNames(plan.remove))
		for _, gone := range plan.remove {
			s.pods = slices.DeleteFunc(s.pods, func(p *corev1.Pod) bool { return p.Name == gone.Name })
		}
	}
	wish := describeRC(s.rc)
	count := countReplicas(wish, s.pods, s.Now)
	if status := wish.statusNow(count, plan, nil, s.Now); !equality.Semantic.DeepEqual(status, wish.status) {
		s.rc = replication.withStatus(s.rc, status)
		s.Say("status replicas=%d labeled=%d ready=%d available=%d observed=%d",
			status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas, status.ObservedGeneration)
	}
	if after := dependents.Sooner(count.after, plan.after); after > 0 {
		s.Say("look again in %v", after)
	}
}
