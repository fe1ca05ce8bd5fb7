package apiserver_test

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A field that is stored but has no effect causes one warning for the client that writes it.
func TestFieldsWithoutEffectWarn(t *testing.T) {
	f := serve(t)
	const jobs = "/apis/batch/v1/namespaces/default/jobs"
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}}
	job.Spec.Template.Spec = pod("").Spec
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
		Action: batchv1.PodFailurePolicyActionFailJob,
		OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{1},
		},
	}}}
	said := func(a answer, want ...string) {
		t.Helper()
		got := a.header.Values("Warning")
		if a.code >= 300 || len(got) != len(want) {
			t.Fatalf("%d with the warnings %q, want %q: %s", a.code, got, want, a.body)
		}
		for i := range want {
			if !strings.HasPrefix(got[i], `299 - "`+want[i]+": has no effect in this version: ") {
				t.Errorf("warning %q, want one of %s", got[i], want[i])
			}
		}
	}
	said(f.do("POST", jobs+"?dryRun=All", job), "spec.podFailurePolicy")
	said(f.do("POST", jobs, job), "spec.podFailurePolicy")
	const merge = "Content-Type: application/merge-patch+json"
	said(f.do("PATCH", jobs+"/j", `{"metadata":{"labels":{"a":"b"}}}`, merge))
	said(f.do("PATCH", jobs+"/j", `{"spec":{"suspend":true}}`, merge), "spec.podFailurePolicy")
	said(f.do("GET", jobs+"/j", nil))

	p := pod("p")
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
	}}}}
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule}}
	said(f.do("POST", pods, p)) // the scheduler obeys this field
	p.Name = "q"
	p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}}
	said(f.do("POST", pods, p), "spec.containers[0].livenessProbe", "spec.containers[0].lifecycle")
	p = pod("hp")
	p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 8081}}
	said(f.do("POST", pods, p)) // which leads to the pod
	p.Name, p.Spec.HostNetwork = "hn", true
	p.Spec.Containers[0].Ports[1].HostPort = 81
	said(f.do("POST", pods, p)) // its ports are the host's
}
