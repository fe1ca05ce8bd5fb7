package test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applyautoscaling "k8s.io/client-go/applyconfigurations/autoscaling/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestServerSideApplyByClientGo applies with the typed clients: objects, their status and
// their scale, and what is extracted from what was read.
func TestServerSideApplyByClientGo(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	_, cfg := simulated(t, 1)
	cs := clientset(t, cfg)
	labels := map[string]string{"app": "web"}
	web := func(replicas int32, image string) *applyapps.DeploymentApplyConfiguration {
		return applyapps.Deployment("web", "default").WithLabels(labels).WithSpec(applyapps.DeploymentSpec().WithReplicas(replicas).
			WithSelector(applymeta.LabelSelector().WithMatchLabels(labels)).
			WithTemplate(applycore.PodTemplateSpec().WithLabels(labels).WithSpec(applycore.PodSpec().
				WithContainers(applycore.Container().WithName("main").WithImage(image).WithPorts(applycore.ContainerPort().WithContainerPort(80))))))
	}
	alice := metav1.ApplyOptions{FieldManager: "alice"}
	deployments := cs.AppsV1().Deployments("default")
	d, err := deployments.Apply(ctx, web(1, "one"), alice)
	if err != nil {
		t.Fatal(err)
	}
	extracted, err := applyapps.ExtractDeployment(d, "alice")
	if err != nil || *extracted.Spec.Replicas != 1 || extracted.Spec.Strategy != nil || len(extracted.Spec.Template.Spec.Containers) != 1 {
		t.Errorf("extracted %+v, %v: want what was applied", extracted, err)
	}
	extracted.Spec.Template.Spec.Containers[0].WithImage("two")
	if d, err = deployments.Apply(ctx, extracted, alice); err != nil || d.Spec.Template.Spec.Containers[0].Image != "two" || *d.Spec.Replicas != 1 {
		t.Errorf("the extracted one, changed: %+v, %v", d, err)
	}

	// A forced scale by another manager, and then the field as a shared one.
	scale := applyautoscaling.Scale().WithSpec(applyautoscaling.ScaleSpec().WithReplicas(3))
	_, err = deployments.ApplyScale(ctx, "web", scale, metav1.ApplyOptions{FieldManager: "scaler"})
	if !apierrors.IsConflict(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		t.Errorf("ApplyScale = %v, want a conflict of field managers", err)
	}
	s, err := deployments.ApplyScale(ctx, "web", scale, metav1.ApplyOptions{FieldManager: "scaler", Force: true})
	if err != nil || s.Spec.Replicas != 3 {
		t.Fatalf("ApplyScale = %+v, %v", s, err)
	}
	if _, err = deployments.Apply(ctx, web(1, "two"), alice); !apierrors.IsConflict(err) {
		t.Errorf("Apply of what the scaler took = %v", err)
	}
	if d, err = deployments.Apply(ctx, web(3, "two"), alice); err != nil || *d.Spec.Replicas != 3 {
		t.Errorf("Apply of what the scaler says = %v, %v", d, err)
	}

	// Conditions of two managers in one status, of a pod that no node runs.
	pods := cs.CoreV1().Pods("default")
	pod := applycore.Pod("gated", "default").WithSpec(applycore.PodSpec().WithContainers(applycore.Container().WithName("main").WithImage("any")).
		WithSchedulingGates(applycore.PodSchedulingGate().WithName("example.com/wait")))
	if _, err := pods.Apply(ctx, pod, alice); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		status := applycore.Pod("gated", "default").WithStatus(applycore.PodStatus().
			WithConditions(applycore.PodCondition().WithType(corev1.PodConditionType("example.com/" + name)).WithStatus(corev1.ConditionTrue)))
		p, err := pods.ApplyStatus(ctx, status, metav1.ApplyOptions{FieldManager: name})
		if err != nil {
			t.Fatal(err)
		}
		if own, err := applycore.ExtractPodStatus(p, name); err != nil || len(own.Status.Conditions) != 1 || own.Spec != nil {
			t.Errorf("of the status, %s has %+v, %v", name, own, err)
		}
	}

	// The dynamic client.
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "conf"}, "data": map[string]any{"a": "1"},
	}}
	maps := dyn.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("default")
	first, err := maps.Apply(ctx, "conf", obj, alice)
	if err != nil {
		t.Fatal(err)
	}
	w, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=conf", ResourceVersion: first.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	again, err := maps.Apply(ctx, "conf", obj, alice)
	if err != nil || again.GetResourceVersion() != first.GetResourceVersion() {
		t.Errorf("the same once more has version %s and had %s, %v", again.GetResourceVersion(), first.GetResourceVersion(), err)
	}
	obj.Object["data"] = map[string]any{"a": "2"}
	if again, err = maps.Apply(ctx, "conf", obj, alice); err != nil {
		t.Fatal(err)
	}
	// Watchers hear of the change alone.
	if e := <-w.ResultChan(); e.Object.(*unstructured.Unstructured).GetResourceVersion() != again.GetResourceVersion() {
		t.Errorf("the watch tells of %v, want version %s", e.Object, again.GetResourceVersion())
	}
}

// TestServerSideApplyByControllerRuntime applies as controllers do: apply configurations,
// whole objects as patches, status and force.
func TestServerSideApplyByControllerRuntime(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	_, cfg := simulated(t, 1)
	cs := clientset(t, cfg)
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	conf := applycore.ConfigMap("conf", "default").WithData(map[string]string{"a": "1"})
	if err := c.Apply(ctx, conf, client.FieldOwner("operator")); err != nil {
		t.Fatal(err)
	}
	conf = applycore.ConfigMap("conf", "default").WithData(map[string]string{"a": "2"})
	if err := c.Apply(ctx, conf, client.FieldOwner("other")); !apierrors.IsConflict(err) {
		t.Errorf("Apply by another = %v, want a conflict", err)
	}
	if err := c.Apply(ctx, conf, client.FieldOwner("other"), client.ForceOwnership); err != nil {
		t.Error(err)
	}

	// The older way: a whole object with zero values that are left out.
	secret := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"},
		StringData: map[string]string{"k": "v"},
	}
	if err := c.Patch(ctx, secret, client.Apply, client.FieldOwner("operator"), client.ForceOwnership); err != nil { //nolint:staticcheck // what operators of today do
		t.Fatal(err)
	}
	if got, err := cs.CoreV1().Secrets("default").Get(ctx, "s", metav1.GetOptions{}); err != nil || string(got.Data["k"]) != "v" {
		t.Errorf("the secret is %v, %v", got, err)
	}

	// What a controller creates and then updates counts for it from the first apply on.
	made := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "rs"}, Spec: appsv1.ReplicaSetSpec{
		Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}
	if err := c.Create(ctx, made); err != nil {
		t.Fatal(err)
	}
	marked := applyapps.ReplicaSet("rs", "default").WithAnnotations(map[string]string{"example.com/mark": "1"})
	if err := c.Apply(ctx, marked, client.FieldOwner("operator")); err != nil {
		t.Fatal(err)
	}
	rs, err := cs.AppsV1().ReplicaSets("default").Get(ctx, "rs", metav1.GetOptions{})
	if err != nil || rs.Annotations["example.com/mark"] != "1" || len(rs.Spec.Template.Spec.Containers) != 1 {
		t.Errorf("the replica set is %v, %v", rs, err)
	}
	for _, e := range rs.ManagedFields {
		if e.Manager == "before-first-apply" && e.Operation == metav1.ManagedFieldsOperationUpdate {
			return
		}
	}
	t.Errorf("what was there belongs to nobody: %v", rs.ManagedFields)
}
