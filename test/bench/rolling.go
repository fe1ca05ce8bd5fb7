package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// rolling measures a rolling update of simulated pods, one at a time. The floor is
// to create as many pods, each when the one before is gone, and delete them.
func (b *bench) rolling(ctx context.Context) error {
	api, err := b.client()
	if err != nil {
		return err
	}
	const n = 100
	began := time.Now()
	for i := range n {
		if err := comeAndGo(ctx, api, fmt.Sprintf("bench-%d", i)); err != nil {
			return err
		}
	}
	floor := time.Since(began)
	if err := createController(ctx, api, n); err != nil {
		return err
	}
	if err := awaitPods(ctx, api, n, isReady); err != nil {
		return err
	}
	began = time.Now()
	if _, err := b.sampan(ctx, "rolling-update", "web", "--image=demo:v2", "--update-period=0s"); err != nil {
		return err
	}
	b.against(fmt.Sprintf("rolling update of %d simulated pods", n), time.Since(began), floor, "<= 3 times")
	return nil
}

// comeAndGo makes a pod, waits until it is ready, deletes it and waits until it is
// gone.
func comeAndGo(ctx context.Context, api kubernetes.Interface, name string) error {
	if err := createPod(ctx, api, name); err != nil {
		return err
	}
	if err := awaitPods(ctx, api, 1, isReady); err != nil {
		return err
	}
	if err := api.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return awaitPods(ctx, api, 0, nil)
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func createController(ctx context.Context, api kubernetes.Interface, replicas int32) error {
	labels := map[string]string{"app": "web"}
	_, err := api.CoreV1().ReplicationControllers("default").Create(ctx, &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ReplicationControllerSpec{Replicas: &replicas, Template: &corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "demo:v1"}}},
		}},
	}, metav1.CreateOptions{})
	return err
}
