package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/apiserver"
	"github.com/sampan-io/sampan/apiserver/admission"
	"github.com/sampan-io/sampan/apiserver/apiservertest"
	"github.com/sampan-io/sampan/apiserver/auth"
	"github.com/sampan-io/sampan/apiserver/operation"
	"github.com/sampan-io/sampan/catalog"
	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/controller"
	"github.com/sampan-io/sampan/controller/controllertest"
	"github.com/sampan-io/sampan/controller/disruption"
	"github.com/sampan-io/sampan/controller/endpoints"
	"github.com/sampan-io/sampan/controller/garbage"
	"github.com/sampan-io/sampan/controller/namespaces"
	"github.com/sampan-io/sampan/controller/nodelifecycle"
	"github.com/sampan-io/sampan/controller/sets"
	"github.com/sampan-io/sampan/controller/workload"
	"github.com/sampan-io/sampan/internal/run"
)

// A testCluster is the real API server in memory with all controllers, which have the same rights as in a cluster. It
// replaces the scheduler and the nodes.
type testCluster struct {
	*testing.T
	boss client.Interface
	ctx  context.Context //nolint:containedctx // as in testing.T: the test's own, with a limit
}

func openHarbour(t *testing.T) *testCluster {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	var kinds []*catalog.Kind
	s := apiservertest.Open(t, func(o *apiserver.Options) {
		kinds = o.Catalog.Kinds()
		objects := operation.NewReader(o.Catalog, o.Store)
		o.Log = log
		o.Admission = []admission.Plugin{admission.NewNamespaceLifecycle(objects), admission.NewServiceAccount(objects)}
	})
	h := &testCluster{T: t, boss: s.As(auth.User{Name: "boss", Groups: []string{"system:masters"}})}
	manager := s.As(auth.User{Name: "system:kube-controller-manager", Groups: []string{"system:authenticated"}})
	var served []client.Resource[client.Object]
	for _, k := range kinds {
		served = append(served, client.Resource[client.Object]{GroupVersionResource: k.GVR(), Kind: k.Kind, Namespaced: k.Namespaced})
	}
	config := controller.Config{Client: manager, As: func(name string) client.Interface { return s.As(controllertest.Account(name)) }, Log: log}
	work := slices.Concat(
		workload.Tasks(config),
		sets.Tasks(config),
		disruption.Tasks(config),
		endpoints.Tasks(config),
		namespaces.Tasks(namespaces.Options{Config: config, Resources: served, RootCA: []byte("PEM")}),
		garbage.Tasks(garbage.Options{Config: config, Resources: served}),
		nodelifecycle.Tasks(nodelifecycle.Options{Config: config}),
	)
	var cancel context.CancelFunc
	h.ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	for _, name := range []string{"default", "kube-node-lease"} {
		create(h, client.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	ready := make(chan struct{})
	g := run.NewGroup(context.WithoutCancel(t.Context()), 0)
	g.Go(func(ctx context.Context) {
		err := run.Stages(ctx,
			run.Stage(work),
			run.Stage{{Name: "test", Run: func(ctx context.Context) error { close(ready); <-ctx.Done(); return nil }}},
		)
		if err != nil {
			t.Errorf("the controllers ended with %v", err)
		}
	})
	t.Cleanup(g.Stop)
	select {
	case <-ready:
	case <-h.ctx.Done():
		t.Fatal("the controllers are not ready within a minute")
	}
	return h
}

func create[T client.Object](h *testCluster, r client.Resource[T], obj T) T {
	h.Helper()
	made, err := r.Create(context.WithoutCancel(h.Context()), h.boss, obj)
	if err != nil {
		h.Fatal(err)
	}
	return made
}

// await blocks until the objects of a namespace are as holds wants them.
func await[T client.Object](h *testCluster, r client.Resource[T], namespace, what string, holds func([]T) bool) []T {
	h.Helper()
	items, meta, err := r.List(h.ctx, h.boss, namespace, metav1.ListOptions{})
	if err != nil {
		h.Fatal(err)
	}
	if holds(items) {
		return items
	}
	for _, err := range r.Watch(h.ctx, h.boss, namespace, metav1.ListOptions{ResourceVersion: meta.ResourceVersion}) {
		if err != nil {
			h.Fatalf("waiting for %s: %v; there are %+v", what, err, items)
		}
		if items, _, err = r.List(h.ctx, h.boss, namespace, metav1.ListOptions{}); err != nil {
			h.Fatal(err)
		}
		if holds(items) {
			return items
		}
	}
	h.Fatalf("waiting for %s: the watch ended; there are %+v", what, items)
	return nil
}

// become binds a pod if it is not, and writes the status that a node would.
func (h *testCluster) become(pod *corev1.Pod, phase corev1.PodPhase, ip string) {
	h.Helper()
	if pod.Spec.NodeName == "" {
		_, err := h.boss.Create(h.ctx, client.Pods.GroupVersionResource, pod.Namespace, pod.Name, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"},
		}, metav1.CreateOptions{}, "binding")
		if err != nil {
			h.Fatal(err)
		}
	}
	now, err := client.Pods.Get(h.ctx, h.boss, pod.Namespace, pod.Name)
	if err != nil {
		h.Fatal(err)
	}
	now = now.DeepCopy()
	status := corev1.ConditionFalse
	if phase == corev1.PodRunning {
		status = corev1.ConditionTrue
	}
	now.Status.Phase, now.Status.PodIP = phase, ip
	now.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	now.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}}
	if _, err := client.Pods.Update(h.ctx, h.boss, now, "status"); err != nil {
		h.Fatal(err)
	}
}

// TestTheControllersOnTheRealServer is the life of a namespace: its account, a controller
// behind a service, a job, and its end.
func TestTheControllersOnTheRealServer(t *testing.T) {
	h := openHarbour(t)
	create(h, client.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	create(h, client.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "port"}})
	await(h, client.ServiceAccounts, "port", "the account", func(all []*corev1.ServiceAccount) bool { return len(all) == 1 })
	await(h, client.ConfigMaps, "port", "the certificate", func(all []*corev1.ConfigMap) bool { return len(all) == 1 })

	labels := map[string]string{"app": "web"}
	three := int32(3)
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "sampan.local/demo:v1"}}}
	create(h, client.Services, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "port", Name: "web"},
		Spec: corev1.ServiceSpec{Selector: labels, ClusterIP: corev1.ClusterIPNone, ClusterIPs: []string{corev1.ClusterIPNone}, Ports: []corev1.ServicePort{{
			Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080),
		}}},
	})
	create(h, client.ReplicationControllers, &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: "port", Name: "web"},
		Spec: corev1.ReplicationControllerSpec{
			Replicas: &three, Selector: labels,
			Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	})
	pods := await(h, client.Pods, "port", "three pods", func(all []*corev1.Pod) bool { return len(all) == 3 })
	for i, p := range pods {
		h.become(p, corev1.PodRunning, fmt.Sprintf("10.1.0.%d", i+1))
	}
	await(h, client.ReplicationControllers, "port", "three replicas that are ready", func(all []*corev1.ReplicationController) bool {
		return all[0].Status.ReadyReplicas == 3 && all[0].Status.AvailableReplicas == 3 && all[0].Status.ObservedGeneration == 1
	})
	await(h, client.Endpoints, "port", "three addresses", func(all []*corev1.Endpoints) bool {
		return len(all) == 1 && len(all[0].Subsets) == 1 && len(all[0].Subsets[0].Addresses) == 3
	})

	spec.RestartPolicy = corev1.RestartPolicyNever
	create(h, client.Jobs, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "port", Name: "build"},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}},
	})
	ofJob := func(all []*corev1.Pod) *corev1.Pod {
		for _, p := range all {
			if p.Labels["job-name"] == "build" {
				return p
			}
		}
		return nil
	}
	pods = await(h, client.Pods, "port", "the pod of the job", func(all []*corev1.Pod) bool { return ofJob(all) != nil })
	h.become(ofJob(pods), corev1.PodRunning, "10.1.0.9")
	await(h, client.Jobs, "port", "the job to run", func(all []*batchv1.Job) bool {
		return all[0].Status.Active == 1 && all[0].Status.Ready != nil && *all[0].Status.Ready == 1
	})
	pods = await(h, client.Pods, "port", "the pod of the job", func(all []*corev1.Pod) bool { return ofJob(all) != nil })
	h.become(ofJob(pods), corev1.PodSucceeded, "10.1.0.9")
	await(h, client.Jobs, "port", "the job to be complete", func(all []*batchv1.Job) bool {
		for _, c := range all[0].Status.Conditions {
			if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
				return all[0].Status.Succeeded == 1 && all[0].Status.CompletionTime != nil
			}
		}
		return false
	})

	foreground := metav1.DeletePropagationForeground
	if err := client.Jobs.Delete(h.ctx, h.boss, "port", "build", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		t.Fatal(err)
	}
	await(h, client.Jobs, "port", "the job to go", func(all []*batchv1.Job) bool { return len(all) == 0 })
	await(h, client.Pods, "port", "its pod to go before it", func(all []*corev1.Pod) bool { return ofJob(all) == nil })

	if err := client.Namespaces.Delete(h.ctx, h.boss, "", "port", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// The pods are on a node, which alone may say that they have ended.
	none := int64(0)
	pods = await(h, client.Pods, "port", "the pods to be marked", func(all []*corev1.Pod) bool {
		for _, p := range all {
			if p.DeletionTimestamp == nil {
				return false
			}
		}
		return true
	})
	for _, p := range pods {
		if err := client.Pods.Delete(h.ctx, h.boss, "port", p.Name, metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	await(h, client.Namespaces, "", "the namespace to go", func(all []*corev1.Namespace) bool { return len(all) == 2 })
}
