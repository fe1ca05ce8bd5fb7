package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// fleet is the Deployment that is rolled out, and the nodes that have room for it and
// for the surge of a quarter.
const (
	fleetSize  = 1000
	fleetNodes = "--simulated-nodes=16"
)

// rollouts measures a rolling update of a large Deployment by our controllers, and by
// upstream's at their default rates and at rates without an effect, each in the place
// of ours on a cluster of its own.
func (b *bench) rollouts(ctx context.Context) error {
	manager := filepath.Join(filepath.Dir(b.program), "upstream", "kube-controller-manager")
	if _, err := os.Stat(manager); errors.Is(err, fs.ErrNotExist) {
		b.row(fmt.Sprintf("rollout of %d replicas: left out, it is measured beside upstream's controllers and there is no %s; `.ci/upstream build` makes it", fleetSize, manager))
		return nil
	} else if err != nil {
		return err
	}
	ours, err := b.rollOut(ctx)
	if err != nil {
		return err
	}
	for _, theirs := range []struct {
		rates string
		args  []string
	}{
		{"default rates", nil},
		{"any rate", []string{"--kube-api-qps=100000", "--kube-api-burst=100000"}},
	} {
		took, err := b.rollOutBy(ctx, manager, theirs.args)
		if err != nil {
			return fmt.Errorf("kube-controller-manager, %s: %w", theirs.rates, err)
		}
		for i, what := range []string{"start", "rollout"} {
			b.row(fmt.Sprintf("%s of %d replicas, beside kube-controller-manager (%s)", what, fleetSize, theirs.rates),
				ms(ours[i]), ms(took[i]), fmt.Sprintf("%.3f", ours[i].Seconds()/took[i].Seconds()), []string{"", "<= 0.2"}[i])
		}
	}
	return nil
}

// rollOutBy is rollOut with upstream's controllers, on a new cluster.
func (b *bench) rollOutBy(ctx context.Context, manager string, args []string) (took [2]time.Duration, err error) {
	if err := b.down(ctx); err != nil {
		return took, err
	}
	if _, err := b.sampan(ctx, "up", fleetNodes, "--controllers=*,-deployment-controller,-replicaset-controller"); err != nil {
		return took, err
	}
	log, err := os.Create(filepath.Join(b.dir, "kube-controller-manager.log"))
	if err != nil {
		return took, err
	}
	defer func() { _ = log.Close() }()
	args = append([]string{
		"--kubeconfig=" + filepath.Join(b.data(), "admin.kubeconfig"), "--leader-elect=false", "--secure-port=0",
		"--controllers=deployment-controller,replicaset-controller",
	}, args...)
	cmd := exec.CommandContext(ctx, manager, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return took, err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	return b.rollOut(ctx)
}

// rollOut makes the Deployment and changes its image. It returns how long each took,
// from the answer to the request to a status that says that it is done.
func (b *bench) rollOut(ctx context.Context) (took [2]time.Duration, err error) {
	api, err := b.client()
	if err != nil {
		return took, err
	}
	// Roll out a small one first, so that all components have started.
	if err := createDeployment(ctx, api, "first", 1); err != nil {
		return took, err
	}
	if err := awaitRollout(ctx, api, "first"); err != nil {
		return took, err
	}
	const name = "fleet"
	for i, do := range []func() error{
		func() error { return createDeployment(ctx, api, name, fleetSize) },
		func() error {
			_, err := api.AppsV1().Deployments("default").Patch(ctx, name, types.StrategicMergePatchType,
				[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"demo:v2"}]}}}}`), metav1.PatchOptions{})
			return err
		},
	} {
		if err := do(); err != nil {
			return took, err
		}
		began := time.Now()
		if err := awaitRollout(ctx, api, name); err != nil {
			return took, err
		}
		took[i] = time.Since(began)
	}
	return took, nil
}

func createDeployment(ctx context.Context, api kubernetes.Interface, name string, replicas int32) error {
	labels := map[string]string{"app": name}
	_, err := api.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "demo:v1"}}},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

// rolledOut reports whether the Deployment has the pods that it is to have, and no
// other.
func rolledOut(d *appsv1.Deployment) bool {
	n := *d.Spec.Replicas
	s := d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == n && s.AvailableReplicas == n && s.Replicas == n
}

// rolloutLimit is far more than upstream takes at its default rates.
const rolloutLimit = 20 * time.Minute

func awaitRollout(ctx context.Context, api kubernetes.Interface, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, rolloutLimit, fmt.Errorf("deployment %s is not rolled out after %v", name, rolloutLimit))
	defer cancel()
	all := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
	w, err := api.AppsV1().Deployments("default").Watch(ctx, all)
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		switch d := e.Object.(type) {
		case *appsv1.Deployment:
			if e.Type != watch.Deleted && rolledOut(d) {
				return nil
			}
		case *metav1.Status:
			return fmt.Errorf("watching deployment %s: %s", name, d.Message)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("the watch of deployment %s ended", name)
}
