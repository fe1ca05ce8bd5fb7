package clienttest_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sampan-io/sampan/await/compat"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/client/clienttest"
)

// clientset returns one of the real server.
func clientset(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	h := httptest.NewServer(realServer(t).Handler())
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	cs, err := kubernetes.NewForConfig(&rest.Config{Host: h.URL, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

func TestTheConnectionOfAClientsetConforms(t *testing.T) {
	clienttest.Conform(t, func(t *testing.T) client.Interface {
		c, err := client.FromREST(clientset(t).CoreV1().RESTClient(), client.RESTOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	})
}

func TestClientsetNeedsConnection(t *testing.T) {
	if _, err := client.FromREST((*rest.RESTClient)(nil), client.RESTOptions{}); err == nil { // what a fake one has
		t.Error("a fake clientset was taken")
	}
	if _, err := client.FromREST(nil, client.RESTOptions{}); err == nil {
		t.Error("nil was taken")
	}
	if _, err := client.FromClientset(&kubernetes.Clientset{}); err == nil {
		t.Error("an empty clientset was taken")
	}
}

// TestWaitsOverAClientset makes what is waited for with a clientset and waits over
// its connection, on another group than that of the REST client.
func TestWaitsOverAClientset(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var cs kubernetes.Interface = clientset(t)
	c, err := client.FromClientset(cs)
	if err != nil {
		t.Fatal(err)
	}
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "sampan.local/demo:v1"}},
	}}
	job, err := cs.BatchV1().Jobs("default").Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "build"}, Spec: batchv1.JobSpec{Template: template}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := cs.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "build-x", Labels: job.Spec.Template.Labels}, Spec: template.Spec,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	steps := make(chan error, 2)
	go func() { // what a node and a controller would say
		pod.Status.Phase = corev1.PodRunning
		_, err := cs.CoreV1().Pods("default").UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		steps <- err
	}()
	if err := compat.WaitForJobPodsRunning(ctx, c, "default", "build", 1); err != nil {
		t.Error(err)
	}
	go func() {
		now := metav1.Now()
		job.Status = batchv1.JobStatus{StartTime: &now, Succeeded: 1, CompletionTime: &now, UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{}}
		for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
			job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
		}
		_, err := cs.BatchV1().Jobs("default").UpdateStatus(ctx, job, metav1.UpdateOptions{})
		steps <- err
	}()
	if err := compat.WaitForJobComplete(ctx, c, "default", "build"); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-steps; err != nil {
			t.Error(err)
		}
	}
}
