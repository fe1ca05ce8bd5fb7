package workload_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/cache"
	"github.com/sampan-io/sampan/client/clienttest"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/workload"
	"github.com/sampan-io/sampan/internal/leaktest"
	"github.com/sampan-io/sampan/internal/run"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// tasks are the controllers under test.
func tasks(c client.Interface, caches *cache.Shared) []run.Task {
	return workload.Tasks(controllertest.Config(c, caches))
}

func controlling(t *testing.T, f func(t *testing.T, s *clienttest.Server), objs ...client.Object) {
	controllertest.Controlling(t, tasks, f, objs...)
}

func rc(replicas int32) *corev1.ReplicationController {
	labels := map[string]string{"app": "web"}
	return &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Generation: 1},
		Spec: corev1.ReplicationControllerSpec{
			Replicas: &replicas, Selector: labels,
			Template: &corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
}

func job(set func(*batchv1.JobSpec)) *batchv1.Job {
	one := int32(1)
	labels := map[string]string{"job-name": "build"}
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "build", Generation: 1},
		Spec: batchv1.JobSpec{
			Parallelism: &one, Completions: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
	if set != nil {
		set(&j.Spec)
	}
	return j
}

func theRC(s *clienttest.Server) *corev1.ReplicationController {
	return clienttest.Find(s, client.ReplicationControllers, "default", "web")
}

func TestAControllerMakesWhatItWantsOnce(t *testing.T) {
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		creates := 0
		for _, w := range s.Writes() {
			if w.Verb == "create" && w.Resource == "pods" {
				creates++
			}
		}
		pods := controllertest.Active(s)
		if len(pods) != 7 || creates != 7 {
			t.Fatalf("%d pods after %d creates, want 7 and 7", len(pods), creates)
		}
		p := pods[0]
		ref := metav1.GetControllerOf(p)
		if ref == nil || ref.Kind != "ReplicationController" || ref.Name != "web" || ref.UID != theRC(s).UID || ref.BlockOwnerDeletion == nil || !*ref.BlockOwnerDeletion {
			t.Errorf("the controller of a pod is %+v", ref)
		}
		if !strings.HasPrefix(p.Name, "web-") || p.Labels["app"] != "web" {
			t.Errorf("a pod is %s with labels %v", p.Name, p.Labels)
		}
		st := theRC(s).Status
		if st.Replicas != 7 || st.FullyLabeledReplicas != 7 || st.ObservedGeneration != 1 {
			t.Errorf("status = %+v", st)
		}
		events := 0
		for _, e := range clienttest.All(s, client.Events, "default") {
			if e.Reason == "SuccessfulCreate" && e.InvolvedObject.Kind == "ReplicationController" && strings.HasPrefix(e.Message, "Created pod: web-") {
				events++
			}
		}
		if events != 7 {
			t.Errorf("%d events about new pods, want 7", events)
		}

		for _, p := range pods {
			controllertest.Become(t, s, p, corev1.PodRunning, true)
		}
		synctest.Wait()
		if st := theRC(s).Status; st.ReadyReplicas != 7 || st.AvailableReplicas != 7 {
			t.Errorf("status = %+v, want 7 ready and available", st)
		}
	}, rc(7))
}

func TestAnIdleControllerWritesNothing(t *testing.T) {
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		synctest.Wait()
		var asked atomic.Int32
		s.Intercept(func(clienttest.Request) error { asked.Add(1); return nil })
		time.Sleep(24 * time.Hour)
		if asked.Load() != 0 {
			t.Errorf("%d requests on an idle day", asked.Load())
		}
	}, rc(2), job(nil))
}

func TestAControllerReplacesAndScales(t *testing.T) {
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		lost := controllertest.Active(s)[0]
		s.Remove(t, lost)
		synctest.Wait()
		if n := len(controllertest.Active(s)); n != 3 {
			t.Errorf("%d pods after one was lost, want 3", n)
		}
		one := theRC(s).DeepCopy()
		*one.Spec.Replicas = 1
		if _, err := client.ReplicationControllers.Update(t.Context(), s, one, ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(controllertest.Active(s)); n != 1 {
			t.Errorf("%d pods after scaling down, want 1", n)
		}
		if st := theRC(s).Status; st.Replicas != 1 || st.ObservedGeneration != 2 {
			t.Errorf("status = %+v", st)
		}
	}, rc(3))
}

func TestOrphansAreAdoptedAndStrangersReleased(t *testing.T) {
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "orphan", Labels: map[string]string{"app": "web"}}}
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		got := clienttest.Find(s, client.Pods, "default", "orphan")
		if ref := metav1.GetControllerOf(got); ref == nil || ref.UID != theRC(s).UID {
			t.Fatalf("the orphan's controller is %v", ref)
		}
		if n := len(controllertest.Active(s)); n != 2 {
			t.Errorf("%d pods, want the orphan and one more", n)
		}
		stranger := got.DeepCopy()
		stranger.Labels["app"] = "debug"
		if _, err := client.Pods.Update(t.Context(), s, stranger, ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if ref := metav1.GetControllerOf(clienttest.Find(s, client.Pods, "default", "orphan")); ref != nil {
			t.Errorf("the pod with other labels still has the controller %v", ref)
		}
		if n := len(controllertest.Active(s)); n != 3 {
			t.Errorf("%d pods, want a new one instead of the released", n)
		}
	}, rc(2), orphan)
}

func TestAControllerThatIsDeletedLeavesItsPodsAlone(t *testing.T) {
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		if err := client.ReplicationControllers.Delete(t.Context(), s, "default", "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.Remove(t, controllertest.Active(s)[0])
		synctest.Wait()
		if n := len(controllertest.Active(s)); n != 2 {
			t.Errorf("%d pods, want the 2 that were left", n)
		}
	}, rc(3))
}

func TestAQuotaCostsOneRefusalAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New(t, rc(100))
		var refused atomic.Int32
		s.Intercept(func(r clienttest.Request) error {
			if r.Verb == "create" && r.Resource == "pods" {
				refused.Add(1)
				return apierrors.NewForbidden(corev1.Resource("pods"), "", fmt.Errorf("exceeded quota"))
			}
			return nil
		})
		controllertest.Live(t, tasks, s, func() {
			synctest.Wait()
			// The first try wakes the controller once more by its status.
			if refused.Load() > 2 {
				t.Errorf("%d creates were refused at once, want 1 or 2", refused.Load())
			}
			c := theRC(s).Status.Conditions
			if len(c) != 1 || c[0].Type != corev1.ReplicationControllerReplicaFailure || c[0].Reason != "FailedCreate" || c[0].Message != "pods is forbidden: exceeded quota" {
				t.Errorf("conditions = %+v", c)
			}
			time.Sleep(time.Hour)
			if refused.Load() > 60 {
				t.Errorf("%d creates were refused in an hour, want few", refused.Load())
			}
			s.Intercept(nil)
			time.Sleep(time.Hour)
			if st := theRC(s).Status; st.Replicas != 100 || len(st.Conditions) != 0 {
				t.Errorf("%d replicas and %v after the quota was raised", st.Replicas, st.Conditions)
			}
		})
	})
}

func theJob(s *clienttest.Server) *batchv1.Job {
	return clienttest.Find(s, client.Jobs, "default", "build")
}

func conditions(j *batchv1.Job) (names []string) {
	for _, c := range j.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			names = append(names, string(c.Type)+":"+c.Reason)
		}
	}
	return names
}

func TestAJobRunsToItsEnd(t *testing.T) {
	ttl := int32(60)
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		pods := controllertest.Active(s)
		if len(pods) != 1 || !slices.Contains(pods[0].Finalizers, batchv1.JobTrackingFinalizer) {
			t.Fatalf("pods = %v, want one with the finalizer", pods)
		}
		controllertest.Become(t, s, pods[0], corev1.PodRunning, true)
		synctest.Wait()
		if st := theJob(s).Status; st.Active != 1 || *st.Ready != 1 || st.StartTime == nil {
			t.Errorf("status = %+v", st)
		}
		s.Writes()
		controllertest.Become(t, s, pods[0], corev1.PodSucceeded, false)
		synctest.Wait()
		j := theJob(s)
		if want := []string{"SuccessCriteriaMet:CompletionsReached", "Complete:CompletionsReached"}; !slices.Equal(conditions(j), want) {
			t.Errorf("conditions = %v, want %v", conditions(j), want)
		}
		if j.Status.Succeeded != 1 || j.Status.Active != 0 || j.Status.CompletionTime == nil || len(j.Status.UncountedTerminatedPods.Succeeded) != 0 {
			t.Errorf("status = %+v", j.Status)
		}
		if p := clienttest.Find(s, client.Pods, "default", pods[0].Name); len(p.Finalizers) != 0 {
			t.Errorf("the pod still has %v", p.Finalizers)
		}
		writes := 0
		for _, w := range s.Writes() {
			if w.Resource != "events" {
				writes++
			}
		}
		if writes != 3 {
			t.Errorf("%d writes to account for a pod, want 3: two of the status and one of the pod", writes)
		}
		time.Sleep(59 * time.Second)
		if theJob(s).DeletionTimestamp != nil {
			t.Error("the job is deleted before its time")
		}
		time.Sleep(2 * time.Second)
		if j := theJob(s); j.DeletionTimestamp == nil || !slices.Contains(j.Finalizers, metav1.FinalizerDeleteDependents) {
			t.Errorf("the job is not being deleted in the foreground after its time to live")
		}
	}, job(func(spec *batchv1.JobSpec) { spec.TTLSecondsAfterFinished = &ttl }))
}

func TestAFailedPodIsReplacedAfterAPause(t *testing.T) {
	limit := int32(1)
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		first := controllertest.Active(s)[0]
		controllertest.Become(t, s, first, corev1.PodFailed, false)
		synctest.Wait()
		if n := len(controllertest.Active(s)); n != 1 {
			t.Fatalf("%d pods at once after a failure, want the failed one alone", n)
		}
		time.Sleep(12 * time.Second)
		pods := controllertest.Active(s)
		if len(pods) != 2 {
			t.Fatalf("%d pods after the pause, want 2", len(pods))
		}
		for _, p := range pods {
			if p.Name != first.Name {
				controllertest.Become(t, s, p, corev1.PodFailed, false)
			}
		}
		synctest.Wait()
		j := theJob(s)
		if want := []string{"FailureTarget:BackoffLimitExceeded", "Failed:BackoffLimitExceeded"}; !slices.Equal(conditions(j), want) || j.Status.Failed != 2 {
			t.Errorf("conditions = %v, failed %d", conditions(j), j.Status.Failed)
		}
	}, job(func(spec *batchv1.JobSpec) { spec.BackoffLimit = &limit }))
}

func TestTheFinalizerOfAGoneJobsPodIsTakenAway(t *testing.T) {
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "left", Finalizers: []string{batchv1.JobTrackingFinalizer}}}
	yes := true
	owned := orphan.DeepCopy()
	owned.Name = "owned"
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "gone", UID: "gone", Controller: &yes}}
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		s.Remove(t, theJob(s))
		synctest.Wait()
		for _, p := range clienttest.All(s, client.Pods, "default") {
			if len(p.Finalizers) != 0 {
				t.Errorf("pod %s still has %v", p.Name, p.Finalizers)
			}
		}
	}, job(nil), orphan, owned)
}

// TestFinishedJobsExpire has two Jobs with a time to live, one of them managed by another controller.
func TestFinishedJobsExpire(t *testing.T) {
	for _, manager := range []string{"", "example.com/other"} {
		j := job(func(spec *batchv1.JobSpec) { spec.TTLSecondsAfterFinished = new(int32(60)) })
		if manager != "" {
			j.Spec.ManagedBy = &manager
		}
		controlling(t, func(t *testing.T, s *clienttest.Server) {
			pods := controllertest.Active(s)
			if (len(pods) == 0) != (manager != "") {
				t.Fatalf("%d pods of a job managed by %q", len(pods), manager)
			}
			done := clienttest.Find(s, client.Jobs, "default", "build").DeepCopy()
			done.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
			s.Set(t, done)
			time.Sleep(59 * time.Second)
			synctest.Wait()
			if jobs := clienttest.All(s, client.Jobs, "default"); len(jobs) != 1 || jobs[0].DeletionTimestamp != nil {
				t.Error("the job is deleted too early")
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if jobs := clienttest.All(s, client.Jobs, "default"); len(jobs) != 0 && jobs[0].DeletionTimestamp == nil {
				t.Error("the job is not deleted")
			}
		}, j)
	}
}

// TestIndexesCountTheirFailures checks what the pods of an Indexed job carry.
func TestIndexesCountTheirFailures(t *testing.T) {
	j := job(func(spec *batchv1.JobSpec) {
		mode := batchv1.IndexedCompletion
		spec.CompletionMode, spec.BackoffLimitPerIndex, spec.BackoffLimit = &mode, new(int32(3)), new(int32(100))
	})
	controlling(t, func(t *testing.T, s *clienttest.Server) {
		first := controllertest.Active(s)[0]
		controllertest.Become(t, s, first, corev1.PodFailed, false)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if p := clienttest.Find(s, client.Pods, "default", first.Name); len(p.Finalizers) != 1 {
			t.Errorf("finalizers %v before there is another pod of the index", p.Finalizers)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for _, p := range controllertest.Active(s) {
			want := map[string]string{"batch.kubernetes.io/job-completion-index": "0", "batch.kubernetes.io/job-index-failure-count": "1"}
			if p.Name == first.Name {
				want["batch.kubernetes.io/job-index-failure-count"] = "0"
			}
			if len(p.Annotations) != 2 || p.Annotations["batch.kubernetes.io/job-completion-index"] != "0" ||
				p.Annotations["batch.kubernetes.io/job-index-failure-count"] != want["batch.kubernetes.io/job-index-failure-count"] {
				t.Errorf("annotations of %s are %v, want %v", p.Name, p.Annotations, want)
			}
			if p.Spec.Hostname != "build-0" || p.Labels["batch.kubernetes.io/job-completion-index"] != "0" {
				t.Errorf("pod %s has hostname %q and labels %v", p.Name, p.Spec.Hostname, p.Labels)
			}
		}
		if st := clienttest.Find(s, client.Jobs, "default", "build").Status; st.Failed != 1 || st.Active != 1 || st.FailedIndexes == nil || *st.FailedIndexes != "" {
			t.Errorf("status = %+v", st)
		}
	}, j)
}
