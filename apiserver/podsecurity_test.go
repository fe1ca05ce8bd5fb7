package apiserver_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodSecurityThroughTheServer(t *testing.T) {
	f := serveFull(t)
	f.create("/api/v1/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	f.create("/api/v1/namespaces/default/serviceaccounts", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	bad := pod("bad")
	bad.Spec.HostNetwork = true
	f.create(pods, bad)

	warned := func(a answer, want ...string) {
		t.Helper()
		got := a.header.Values("Warning")
		if a.code >= 300 || len(got) != len(want) {
			t.Fatalf("%d with the warnings %q, want %q: %s", a.code, got, want, a.body)
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("warning %q, want %q", got[i], want[i])
			}
		}
	}
	warned(f.do("PATCH", "/api/v1/namespaces/default", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`,
		"Content-Type: application/merge-patch+json"),
		`existing pods in namespace \"default\" violate the new PodSecurity enforce level \"baseline:latest\"`, "bad: host namespaces")
	f.refused(f.do("PATCH", "/api/v1/namespaces/default", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"strict"}}}`,
		"Content-Type: application/merge-patch+json"), 422, metav1.StatusReasonInvalid, "must be one of privileged, baseline, restricted")
	bad.Name = "worse"
	f.refused(f.do("POST", pods, bad), 403, metav1.StatusReasonForbidden,
		`pods "worse" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`)
	f.create(pods, pod("good"))

	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	d.Spec.Template.Labels = map[string]string{"a": "b"}
	d.Spec.Template.Spec = bad.Spec
	warned(f.do("POST", "/apis/apps/v1/namespaces/default/deployments", d), `would violate PodSecurity \"baseline:latest\": host namespaces`)
}

func TestPodWithUnknownRuntimeClassIsRefused(t *testing.T) {
	f := serveFull(t)
	f.create("/api/v1/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	f.create("/api/v1/namespaces/default/serviceaccounts", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	p, class := pod("p"), "gvisor"
	p.Spec.RuntimeClassName = &class
	f.refused(f.do("POST", pods, p), 403, metav1.StatusReasonForbidden, `pods "p" is forbidden: pod rejected: RuntimeClass "gvisor" not found`)
}

func TestTolerationsOfPodCanBeReplaced(t *testing.T) {
	f := serveFull(t)
	f.create("/api/v1/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	f.create("/api/v1/namespaces/default/serviceaccounts", &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	p := into[corev1.Pod](f, f.do("POST", pods, pod("p")), 201)
	p.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
	p = into[corev1.Pod](f, f.do("PUT", pods+"/p", &p), 200)
	if len(p.Spec.Tolerations) != 3 || p.Generation != 2 {
		t.Errorf("generation %d with the tolerations %v, want 2 with the one that was written and the default ones", p.Generation, p.Spec.Tolerations)
	}
}
