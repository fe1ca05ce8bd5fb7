package controller_test

import (
	"context"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sampan-io/sampan/client"
	"github.com/sampan-io/sampan/internal/run"
)

// man lets pods serve as soon as they are there, and go as soon as they are to, until the
// test ends.
func (h *testCluster) man() {
	h.Helper()
	g := run.NewGroup(h.ctx, 0)
	h.Cleanup(g.Stop)
	now := int64(0)
	g.Go(func(ctx context.Context) {
		for ev, err := range client.Pods.Watch(ctx, h.boss, "default", metav1.ListOptions{}) {
			if err != nil {
				return
			}
			pod, ok := ev.Object.(*corev1.Pod)
			switch {
			case !ok || ev.Type == "DELETED" || ev.Type == "BOOKMARK":
			case pod.DeletionTimestamp != nil:
				_ = client.Pods.Delete(ctx, h.boss, pod.Namespace, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}) // or it has gone
			case pod.Status.Phase != corev1.PodRunning:
				h.serve(ctx, pod)
			}
		}
	})
}

// serve binds a pod to n1 and makes it ready, unless the pod has been deleted.
func (h *testCluster) serve(ctx context.Context, pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		_, _ = h.boss.Create(ctx, client.Pods.GroupVersionResource, pod.Namespace, pod.Name, &corev1.Binding{
			Target: corev1.ObjectReference{Kind: "Node", Name: "n1"},
		}, metav1.CreateOptions{}, "binding")
	}
	now, err := client.Pods.Get(ctx, h.boss, pod.Namespace, pod.Name)
	if err != nil {
		return
	}
	now = now.DeepCopy()
	now.Status.Phase = corev1.PodRunning
	now.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	_, _ = client.Pods.Update(ctx, h.boss, now, "status")
}

func appTemplate(name string) (*metav1.LabelSelector, corev1.PodTemplateSpec) {
	app := map[string]string{"app": name}
	return &metav1.LabelSelector{MatchLabels: app}, corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: app},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}},
	}
}

// change updates an object, and tries again while there are conflicts.
func change[T client.Object](h *testCluster, r client.Resource[T], name string, set func(T)) {
	h.Helper()
	for {
		obj, err := r.Get(h.ctx, h.boss, "default", name)
		if err != nil {
			h.Fatal(err)
		}
		obj = obj.DeepCopyObject().(T)
		set(obj)
		_, err = r.Update(h.ctx, h.boss, obj, "")
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			h.Fatal(err)
		}
	}
}

// only returns a condition on the only object of a list.
func only[T any](holds func(T) bool) func([]T) bool {
	return func(all []T) bool { return len(all) == 1 && holds(all[0]) }
}

// TestAppsOnTheRealServer rolls each kind of apps out and over, with the rights that
// the controllers have in a cluster, and evicts from a budget.
func TestAppsOnTheRealServer(t *testing.T) {
	h := openHarbour(t)
	h.man()
	node := create(h, client.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}).DeepCopy()
	at := metav1.Now()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: at, LastTransitionTime: at}}
	node.ResourceVersion = ""
	if _, err := client.Nodes.Update(h.ctx, h.boss, node, "status"); err != nil {
		t.Fatal(err)
	}

	selector, template := appTemplate("web")
	create(h, client.Deployments, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: selector, Template: template},
	})
	rolled := func(revision string) func(*appsv1.Deployment) bool {
		return func(d *appsv1.Deployment) bool {
			s := d.Status
			return d.Annotations["deployment.kubernetes.io/revision"] == revision && s.ObservedGeneration == d.Generation &&
				s.Replicas == 3 && s.UpdatedReplicas == 3 && s.AvailableReplicas == 3 && s.TerminatingReplicas != nil && *s.TerminatingReplicas == 0
		}
	}
	await(h, client.Deployments, "default", "the first rollout", only(rolled("1")))
	change(h, client.Deployments, "web", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "v2" })
	await(h, client.Deployments, "default", "the second rollout", only(rolled("2")))

	selector, template = appTemplate("db")
	create(h, client.StatefulSets, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"},
		Spec:       appsv1.StatefulSetSpec{Replicas: new(int32(2)), Selector: selector, Template: template, ServiceName: "db"},
	})
	settled := func(s *appsv1.StatefulSet) bool {
		return s.Status.ObservedGeneration == s.Generation && s.Status.UpdatedReplicas == 2 && s.Status.AvailableReplicas == 2 &&
			s.Status.CurrentRevision == s.Status.UpdateRevision
	}
	await(h, client.StatefulSets, "default", "the set", only(settled))
	change(h, client.StatefulSets, "db", func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "v2" })
	await(h, client.StatefulSets, "default", "the updated set", only(settled))

	selector, template = appTemplate("agent")
	create(h, client.DaemonSets, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent"},
		Spec:       appsv1.DaemonSetSpec{Selector: selector, Template: template},
	})
	everywhere := func(d *appsv1.DaemonSet) bool {
		return d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedNumberScheduled == 1 && d.Status.NumberAvailable == 1
	}
	await(h, client.DaemonSets, "default", "the daemon", only(everywhere))
	change(h, client.DaemonSets, "agent", func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.Containers[0].Image = "v2" })
	await(h, client.DaemonSets, "default", "the updated daemon", only(everywhere))
	await(h, client.ControllerRevisions, "default", "two revisions of each", func(all []*appsv1.ControllerRevision) bool { return len(all) == 4 })

	selector, _ = appTemplate("web")
	create(h, client.PodDisruptionBudgets, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromString("100%")), Selector: selector},
	})
	await(h, client.PodDisruptionBudgets, "default", "the budget", only(func(b *policyv1.PodDisruptionBudget) bool {
		return b.Status.ObservedGeneration == b.Generation && b.Status.CurrentHealthy == 3 && b.Status.ExpectedPods == 3
	}))
	pods, _, err := client.Pods.List(h.ctx, h.boss, "default", metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil || len(pods) != 3 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	evict := func() error {
		_, err := h.boss.Create(h.ctx, client.Pods.GroupVersionResource, "default", pods[0].Name,
			&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pods[0].Name}}, metav1.CreateOptions{}, "eviction")
		return err
	}
	if err := evict(); !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		t.Errorf("an eviction without room = %v", err)
	}
	change(h, client.PodDisruptionBudgets, "web", func(b *policyv1.PodDisruptionBudget) { b.Spec.MinAvailable = new(intstr.FromInt32(2)) })
	await(h, client.PodDisruptionBudgets, "default", "room", only(func(b *policyv1.PodDisruptionBudget) bool { return b.Status.DisruptionsAllowed == 1 }))
	if err := evict(); err != nil {
		t.Errorf("an eviction with room = %v", err)
	}
	await(h, client.Deployments, "default", "another pod", only(rolled("2")))
}

// TestClaimsGoAsTheirSetSays scales a StatefulSet down and deletes it; the garbage
// collector takes the claims that are held by what is gone.
func TestClaimsGoAsTheirSetSays(t *testing.T) {
	h := openHarbour(t)
	h.man()
	selector, template := appTemplate("db")
	retain := appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
	}
	create(h, client.StatefulSets, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)), Selector: selector, Template: template, PersistentVolumeClaimRetentionPolicy: &retain,
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{"kept": "long"}},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}},
		},
	})
	named := func(names ...string) func([]*corev1.PersistentVolumeClaim) bool {
		return func(all []*corev1.PersistentVolumeClaim) bool {
			var have []string
			for _, c := range all {
				have = append(have, c.Name)
			}
			slices.Sort(have)
			return slices.Equal(have, names)
		}
	}
	claims := await(h, client.PersistentVolumeClaims, "default", "two claims", named("data-db-0", "data-db-1"))
	if c := claims[0]; c.Labels["kept"] != "long" || c.Labels["app"] != "db" || c.Status.Phase != corev1.ClaimPending {
		t.Errorf("a claim is %+v", c)
	}
	await(h, client.StatefulSets, "default", "the set", only(func(s *appsv1.StatefulSet) bool { return s.Status.AvailableReplicas == 2 }))
	pod, err := client.Pods.Get(h.ctx, h.boss, "default", "db-1")
	if err != nil {
		t.Fatal(err)
	}
	if v := pod.Spec.Volumes[0]; v.Name != "data" || v.PersistentVolumeClaim == nil || v.PersistentVolumeClaim.ClaimName != "data-db-1" {
		t.Errorf("the first volume of a pod is %+v", v)
	}
	change(h, client.StatefulSets, "db", func(s *appsv1.StatefulSet) { s.Spec.Replicas = new(int32(1)) })
	await(h, client.PersistentVolumeClaims, "default", "one claim", named("data-db-0"))
	if err := client.StatefulSets.Delete(h.ctx, h.boss, "default", "db", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(h, client.PersistentVolumeClaims, "default", "no claim", named())
}
